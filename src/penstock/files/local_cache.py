"""The local cache: copies of immutable remote files on this machine's disk.

Law: losing, damaging or refusing the cache changes only the time that a read takes. Callers
verify what they read and `forget` a copy that is wrong; every error of the disk is a miss. So this
is the one module besides the disk seam that writes to a local disk: nothing in it has to last.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import uuid
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path

CACHE_BYTES = 2 << 30
CACHED_SUFFIX = ".arrow"
"""Segments are immutable and their names are never used again; all else is read afresh."""


class LocalCache:
    """Files by URI in one folder, at most so many bytes; several processes may share it."""

    def __init__(self, folder: Path, *, limit_bytes: int = CACHE_BYTES) -> None:
        """Use a folder, which is made when the first copy is kept."""
        self.folder = folder
        self.limit_bytes = limit_bytes

    @staticmethod
    def from_environment() -> LocalCache:
        """Return the cache that PENSTOCK_CACHE_DIR and PENSTOCK_CACHE_BYTES describe."""
        usual = Path(tempfile.gettempdir()) / f"penstock-cache-{os.getuid()}"
        folder = Path(os.environ.get("PENSTOCK_CACHE_DIR") or usual)
        limit = int(os.environ.get("PENSTOCK_CACHE_BYTES") or CACHE_BYTES)
        return LocalCache(folder, limit_bytes=limit)

    def get(self, uri: str) -> bytes | None:
        """Return the copy of a file, if there is one, and note that it was used."""
        path = self._path(uri)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        with suppress(OSError):
            os.utime(path)
        return data

    def put(self, uri: str, data: bytes) -> None:
        """Keep a copy of a file, unless it alone is too large or the disk does not want it."""
        if len(data) > self.limit_bytes or not self._own():
            return
        hidden = self.folder / f".{uuid.uuid4().hex}.tmp"
        with suppress(OSError):
            try:
                hidden.write_bytes(data)
                os.replace(hidden, self._path(uri))
            finally:
                hidden.unlink(missing_ok=True)
            self._trim()

    def drop(self, uri: str) -> bool:
        """Remove the copy of a file; return whether there was one."""
        try:
            self._path(uri).unlink()
        except OSError:
            return False
        return True

    def _path(self, uri: str) -> Path:
        return self.folder / hashlib.sha256(uri.encode()).hexdigest()

    def _own(self) -> bool:
        """Return whether the folder is ours: in a shared /tmp another user may have made it."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = os.lstat(self.folder)
        except OSError:
            return False
        return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()

    def _trim(self) -> None:
        """Remove the least recently used copies until the rest fit."""
        found = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process removed it
                    status = entry.stat(follow_symlinks=False)
                    found.append((status.st_mtime_ns, status.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self.limit_bytes:
                return
            with suppress(FileNotFoundError):
                os.unlink(path)
            total -= size


class CachedReads(ABC):
    """The reading half of a remote file system, through a local cache."""

    cache: LocalCache

    @abstractmethod
    def _fetch(self, path: str) -> bytes:
        """Return the bytes of a file from the store."""

    def read(self, path: str) -> bytes:
        """Return the bytes of a file, from the cache if it is a segment."""
        if not path.endswith(CACHED_SUFFIX):
            return self._fetch(path)
        data = self.cache.get(path)
        if data is None:
            data = self._fetch(path)
            self.cache.put(path, data)
        return data

    def forget(self, path: str) -> bool:
        """Drop the local copy of a file; return whether there was one."""
        return self.cache.drop(path)
