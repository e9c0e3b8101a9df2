"""The disk: the few system calls from which durable files are made.

Law: nothing else in Penstock writes to a local disk, so a test can own it: stop before any call,
tear a write, forget what was not synced, fill up.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A name in a folder."""

    name: str
    bytes: int = 0
    folder: bool = False


class Disk(Protocol):
    """System calls on absolute paths; they raise what `os` raises."""

    def create(self, path: str, data: bytes, *, sync: bool) -> None:
        """Write a file that must not exist, and sync it if asked, through one handle."""
        ...

    def make_folder(self, path: str) -> None:
        """Make a folder; its parent must exist."""
        ...

    def link(self, old: str, new: str) -> None:
        """Give a file a second name, which must not exist."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Move a file over another, or a folder over an empty one or none."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        ...

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    def sync(self, path: str) -> None:
        """Make the bytes of a file that another program wrote, or the names in a folder, last."""
        ...

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""
        ...

    def list(self, path: str) -> list[Entry]:
        """Return the names in a folder."""
        ...

    def is_folder(self, path: str) -> bool:
        """Return whether there is a folder of this name."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder of this name."""
        ...


class RealDisk:
    """The disk of this machine."""

    def create(self, path: str, data: bytes, *, sync: bool) -> None:
        """Write a file that must not exist, and sync it if asked, through one handle."""
        with open(path, "xb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())

    def make_folder(self, path: str) -> None:
        """Make a folder; its parent must exist."""
        os.mkdir(path)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name, which must not exist."""
        os.link(old, new)

    def rename(self, old: str, new: str) -> None:
        """Move a file over another, or a folder over an empty one or none."""
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        os.unlink(path)

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        os.rmdir(path)

    def sync(self, path: str) -> None:
        """Make the bytes of a file that another program wrote, or the names in a folder, last."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""
        with open(path, "rb") as file:
            return file.read()

    def list(self, path: str) -> list[Entry]:
        """Return the names in a folder."""
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    folder = entry.is_dir()
                    size = 0 if folder else entry.stat().st_size
                except FileNotFoundError:  # removed while we looked
                    continue
                found.append(Entry(name=entry.name, bytes=size, folder=folder))
        return found

    def is_folder(self, path: str) -> bool:
        """Return whether there is a folder of this name."""
        return os.path.isdir(path)

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder of this name."""
        return os.path.lexists(path)
