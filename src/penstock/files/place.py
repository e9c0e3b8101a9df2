"""The file-system seam: durable files on local disks, S3 and HDFS.

Everything that a checkpoint or a sink keeps is read and written through a `Place`, a path on a
`FileSystem`. Laws: a file that `write_new` has returned for is whole and lasting under its name,
and no other writer can have made that name; a reader never sees a part of a file; a folder that
`publish` makes appears with all its files or not at all.
"""

from __future__ import annotations

import hashlib
import io
import logging
import posixpath
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlparse

from penstock.base.errors import CheckpointError
from penstock.files.disk import Disk, Entry, RealDisk

_LOG = logging.getLogger(__name__)


class FileSystem(Protocol):
    """Durable files by absolute path or URI."""

    moves_folders: bool
    """Whether `publish` works; without it, a sink's epoch is published as one file."""

    def unique(self) -> str:
        """Return a word that no other writer uses."""
        ...

    def write_new(self, path: str, data: bytes) -> None:
        """Write a file that must not exist yet, with its folders.

        Raises:
            FileExistsError: Another writer made the name first.
        """
        ...

    def read(self, path: str) -> bytes:
        """Return the bytes of a file.

        Raises:
            FileNotFoundError: There is no such file.
        """
        ...

    def open(self, path: str) -> Any:
        """Return a file to be read in parts, such as a footer.

        Raises:
            FileNotFoundError: There is no such file.
        """
        ...

    def list(self, folder: str) -> list[Entry]:
        """Return what is in a folder, by name; nothing if there is no such folder."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder of this name."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file or an empty folder, if it is there."""
        ...

    def move(self, old: str, new: str) -> None:
        """Move a file or folder to a name that nobody uses; not atomic everywhere."""
        ...

    def sync(self, path: str) -> None:
        """Make a file that another program wrote last, as far as that is ours to do."""
        ...

    def forget(self, path: str) -> bool:
        """Drop a local copy of a file, which may be damaged; return whether there was one."""
        ...

    def publish(self, folder: str, files: Mapping[str, str]) -> None:
        """Make a folder appear, in one step, with the given files under new names.

        May be called again, and by several at once, with the same arguments.

        Args:
            folder: The folder to make.
            files: For each name in it, the file to move there.
        """
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder on a file system.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     note = place_of(folder) / "notes" / "a.txt"
    ...     digest = note.write_new(b"hello")
    ...     note.read(), note.exists(), [entry.name for entry in note.parent.list()]
    (b'hello', True, ['a.txt'])
    """

    files: FileSystem
    path: str

    def __truediv__(self, name: str) -> Place:
        return Place(self.files, f"{self.path.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        """The last part of the path."""
        return posixpath.basename(self.path)

    @property
    def parent(self) -> Place:
        """The folder that this is in."""
        return Place(self.files, posixpath.dirname(self.path))

    def write_new(self, data: bytes) -> str:
        """Write this file, which must not exist yet; return the SHA-256 of its bytes.

        Raises:
            FileExistsError: Another writer made the name first.
        """
        self.files.write_new(self.path, data)
        return sha256(data)

    def read(self) -> bytes:
        """Return the bytes of this file."""
        return self.files.read(self.path)

    def read_checked(self, *, size: int, digest: str) -> bytes:
        """Return this file's bytes after their number and hash have been verified.

        Raises:
            CheckpointError: The file is missing or is not the one that was written.
        """
        reason = ""
        for _ in range(2):  # a damaged local copy is forgotten and fetched again, once
            try:
                data = self.read()
            except FileNotFoundError as error:
                raise CheckpointError(path=self.path, reason="a file in use is missing") from error
            if len(data) != size:
                reason = f"damaged: {len(data)} bytes instead of {size}"
            elif sha256(data) != digest:
                reason = "damaged: its bytes have another SHA-256"
            else:
                return data
            if not self.files.forget(self.path):
                break
            _LOG.warning("the local copy of %s is %s; it is fetched again", self.path, reason)
        raise CheckpointError(path=self.path, reason=reason)

    def read_named(self) -> bytes:
        """Return this file's bytes after they have been verified against the hash in its name.

        Raises:
            CheckpointError: The file is missing or damaged.
        """
        found = _NAMED.search(self.name)
        for _ in range(2):  # as in read_checked
            try:
                data = self.read()
            except FileNotFoundError as error:
                raise CheckpointError(path=self.path, reason="a file in use is missing") from error
            if found is None or sha256(data).startswith(found[1]):
                return data
            if not self.files.forget(self.path):
                break
        reason = "damaged: its bytes do not have the hash in its name"
        raise CheckpointError(path=self.path, reason=reason)

    def list(self) -> list[Entry]:
        """Return what is in this folder, by name; nothing if it does not exist."""
        return sorted(self.files.list(self.path), key=lambda entry: entry.name)

    def exists(self) -> bool:
        """Return whether there is a file or folder here."""
        return self.files.exists(self.path)

    def delete(self) -> None:
        """Remove this file or empty folder, if it is there."""
        self.files.delete(self.path)

    def sync(self) -> None:
        """Make this file last; another program wrote it."""
        self.files.sync(self.path)


@contextmanager
def explain_os_errors(checkpoint: Place) -> Iterator[None]:
    """Let what the operating system has against a checkpoint leave as an error that says so.

    Raises:
        CheckpointError: The checkpoint cannot be read or written.
    """
    try:
        yield
    except OSError as error:
        reason = (
            f"it cannot be read or written: {error}; give a folder in which this user "
            "(and the user of Spark's workers) may create files"
        )
        raise CheckpointError(path=str(checkpoint), reason=reason) from error


def sha256(data: bytes) -> str:
    """Return the SHA-256 of some bytes in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def name_by_hash(stem: str, digest: str, ending: str) -> str:
    """Return a file name that carries the beginning of the hash of the file's bytes.

    >>> name_by_hash("part-00000", sha256(b"rows"), ".parquet")
    'part-00000-bc51e9e65d79e1c9.parquet'
    """
    return f"{stem}-{digest[:16]}{ending}"


_NAMED = re.compile(r"-([0-9a-f]{16})\.[a-z]+$")
_TRIES = 8
"""How often a folder is made again whose parents others remove."""


class LocalFiles:
    """Files on a disk of this machine, or on one that is mounted like one.

    A file is written under a hidden name, synced, linked to its own name (which fails if the name
    is taken) and its folder is synced.
    """

    moves_folders = True

    def __init__(
        self,
        disk: Disk | None = None,
        *,
        fsync: bool = True,
        unique: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """Use a disk; without ``fsync`` a crash of the machine may take what was written."""
        self.disk = disk or RealDisk()
        self.fsync = fsync
        self.unique = unique
        self._lasting: set[str] = set()

    def write_new(self, path: str, data: bytes) -> None:
        """Write a file that must not exist yet, with its folders."""
        folder, name = posixpath.split(path)
        hidden = f"{folder}/.{name}.{self.unique()}.tmp"
        try:
            self._ensure(folder)
            self._create(folder, hidden, data)
            while not self._try_link(hidden, path):
                self._create(folder, hidden, data)
        finally:
            with suppress(OSError):  # what is left is collected as garbage
                self.disk.unlink(hidden)
        self._sync(folder)

    def _try_link(self, hidden: str, path: str) -> bool:
        """Give a file its own name; False if a driver that is further on has swept it away."""
        try:
            self.disk.link(hidden, path)
        except FileNotFoundError:
            if self.disk.exists(hidden):
                raise
            return False
        return True

    def _create(self, folder: str, hidden: str, data: bytes) -> None:
        try:
            self.disk.create(hidden, data, sync=self.fsync)
        except FileNotFoundError:  # somebody removed the folder, empty as it was
            self._lasting.discard(folder)
            self._ensure(folder)
            self.disk.create(hidden, data, sync=self.fsync)

    def _ensure(self, folder: str) -> None:
        """Make a folder that lasts; whoever made it may have died before its parent was synced."""
        if folder in self._lasting:
            return
        parent = posixpath.dirname(folder)
        if not self.disk.is_folder(folder):
            self._make(folder, parent)
        self._sync(parent)
        self._lasting.add(folder)

    def _make(self, folder: str, parent: str) -> None:
        """Make a folder below one that others may remove meanwhile; give up after some tries.

        Where no folder can be made, as below /proc, the disk says the same as if it were removed.
        """
        for left in reversed(range(_TRIES)):
            if parent != folder:
                self._ensure(parent)
            try:
                self.disk.make_folder(folder)
            except FileExistsError:
                return
            except FileNotFoundError:  # somebody removed the folders above, which we knew of
                if not left:
                    raise
                self._lasting.clear()
            else:
                return

    def _sync(self, path: str) -> None:
        if self.fsync:
            self.disk.sync(path)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""
        return self.disk.read(path)

    def open(self, path: str) -> Any:
        """Return a file to be read in parts."""
        if isinstance(self.disk, RealDisk):
            return open(path, "rb")
        return io.BytesIO(self.disk.read(path))

    def list(self, folder: str) -> list[Entry]:
        """Return what is in a folder; nothing if there is no such folder."""
        try:
            return self.disk.list(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder of this name."""
        return self.disk.exists(path)

    def delete(self, path: str) -> None:
        """Remove a file or an empty folder, if it is there."""
        with suppress(FileNotFoundError):
            if self.disk.is_folder(path):
                self._lasting.discard(path)
                self.disk.remove_folder(path)
            else:
                self.disk.unlink(path)

    def move(self, old: str, new: str) -> None:
        """Move a file or folder to a name that nobody uses."""
        if self.disk.exists(new):
            raise FileExistsError(new)
        parent = posixpath.dirname(new)
        if not self.disk.is_folder(parent):
            self._lasting.discard(parent)
        self._ensure(parent)
        self.disk.rename(old, new)
        self._lasting.discard(old)
        self._sync(posixpath.dirname(new))
        self._sync(posixpath.dirname(old))

    def sync(self, path: str) -> None:
        """Make a file that another program wrote last, and its name."""
        self._sync(path)
        self._sync(posixpath.dirname(path))

    def forget(self, path: str) -> bool:
        """Do nothing: there are no copies."""
        return False

    def publish(self, folder: str, files: Mapping[str, str]) -> None:
        """Make a folder appear, in one step, with the given files under new names.

        The files are linked into a hidden folder, which is then renamed; until it is, they stay
        where they were. Several may do this at once: each step works or was done by another.
        """
        target, name = posixpath.split(folder)
        if not self.disk.is_folder(target):  # it may have been moved away since we made it
            self._lasting.discard(target)
        self._ensure(target)
        if self.disk.is_folder(folder):
            self._sync(target)  # whoever renamed it may have died before that lasted
            return
        staging = posixpath.dirname(next(iter(files.values())))
        gathered = f"{staging}/.{posixpath.basename(target)}-{name}"
        try:
            with suppress(FileExistsError):
                self.disk.make_folder(gathered)
            for new, old in files.items():
                self._gather(old, f"{gathered}/{new}")
            self._sync(gathered)
            self.disk.rename(gathered, folder)
        except OSError:
            if not self.disk.is_folder(folder):
                raise
            self._undo_gathering(gathered, files)
        self._sync(target)
        for old in files.values():
            self.delete(old)

    def _gather(self, old: str, new: str) -> None:
        try:
            self.disk.link(old, new)
        except (FileExistsError, FileNotFoundError):  # done before, by us or by another
            if not self.disk.exists(new):
                raise

    def _undo_gathering(self, gathered: str, files: Mapping[str, str]) -> None:
        """Remove what was gathered after another had published."""
        with suppress(OSError):
            for name in files:
                self.delete(f"{gathered}/{name}")
            self.disk.remove_folder(gathered)


_STAND_INS: list[Callable[[bool], FileSystem]] = []
_LOCAL: dict[bool, LocalFiles] = {}


def place_of(uri: str | Path, *, fsync: bool = True) -> Place:
    """Return the place of a path or URI: a local path, ``file:``, ``s3:`` or ``hdfs:``.

    Raises:
        CheckpointError: Nobody knows how to keep files safe there.
    """
    text = str(uri)
    scheme = urlparse(text).scheme if "://" in text or text.startswith("file:") else ""
    if scheme in ("", "file"):
        path = unquote(urlparse(text).path) if scheme else text
        return Place(local_files(fsync=fsync), str(Path(path).expanduser().absolute()))
    from penstock.files.remote import remote_files

    return Place(remote_files(text), text.rstrip("/"))


def local_files(*, fsync: bool = True) -> FileSystem:
    """Return this machine's files, or those that a test has put in their place."""
    if _STAND_INS:
        return _STAND_INS[-1](fsync)
    return _LOCAL.setdefault(fsync, LocalFiles(fsync=fsync))


@contextmanager
def in_place_of_local(make: Callable[[bool], FileSystem]) -> Iterator[None]:
    """Let local paths mean another file system for a while; for tests.

    Args:
        make: Returns the file system to use, given whether files are to be synced.
    """
    _STAND_INS.append(make)
    try:
        yield
    finally:
        _STAND_INS.pop()
