"""Files on HDFS.

Law: `write_new` makes a name once. A file is written under a hidden name, closed and renamed by
the NameNode, which in one step refuses a name that is taken. The rename goes straight to libhdfs:
pyarrow's `HadoopFileSystem.move` deletes a file that is in the way and renames again, so with it
a second driver would replace the manifest of the first.

Tested against an imitation of both renames on a local folder and against a library that records
its calls; not against a real HDFS, which the tests have no room for. A closed file is on the
DataNodes, but in their memory unless ``dfs.datanode.synconclose`` is set.
"""

from __future__ import annotations

import ctypes
import errno
import os
import posixpath
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from penstock.base.errors import CheckpointError
from penstock.files.disk import Entry
from penstock.files.local_cache import CachedReads, LocalCache
from penstock.files.remote import entry_of, split_uri

Rename = Callable[[str, str], bool]
"""Renames a path as HDFS does and says whether it did: never over a file, but into a folder."""


class HdfsFiles(CachedReads):
    """The files of one HDFS."""

    moves_folders = True

    def __init__(
        self,
        files: pafs.FileSystem,
        rename: Rename,
        *,
        cache: LocalCache | None = None,
        unique: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """Use pyarrow's view of a file system for all but renaming."""
        self.files = files
        self.rename = rename
        self.cache = cache or LocalCache.from_environment()
        self.unique = unique

    def write_new(self, path: str, data: bytes) -> None:
        """Write a file that must not exist yet, with its folders."""
        folder, name = posixpath.split(_inner(path))
        hidden = posixpath.join(folder, f".{name}.{self.unique()}.tmp")
        with _as_os_errors(path):
            try:
                self.files.create_dir(folder, recursive=True)
                with self.files.open_output_stream(hidden, compression=None) as stream:
                    stream.write(data)
                self._rename_new(hidden, _inner(path), data)
            finally:
                with suppress(OSError):  # what is left is collected as garbage
                    self.files.delete_file(hidden)

    def _rename_new(self, old: str, new: str, data: bytes | None = None) -> None:
        """Rename to a name that nobody uses, or find out why that failed."""
        if self._kind(new) == pafs.FileType.Directory:  # HDFS would move it inside
            raise FileExistsError(errno.EEXIST, "the name is that of a folder", new)
        if self.rename(old, new):
            return
        if self._kind(old) == pafs.FileType.NotFound:
            if self._kind(new) == pafs.FileType.NotFound:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
            if data is None or self._bytes(new) == data:  # it was done, and the answer lost
                return
        if self._kind(new) == pafs.FileType.NotFound:
            raise OSError(errno.EIO, "HDFS refused to rename a file to this name", new)
        raise FileExistsError(errno.EEXIST, "another writer made this file first", new)

    def _fetch(self, path: str) -> bytes:
        inner = _inner(path)
        try:
            with _as_os_errors(path):
                return self._bytes(inner)
        except OSError as error:
            if self._kind(inner) != pafs.FileType.NotFound:
                raise
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error

    def _bytes(self, inner: str) -> bytes:
        with self.files.open_input_stream(inner, compression=None) as stream:
            data: bytes = stream.read()
            return data

    def open(self, path: str) -> Any:
        """Return a file to be read in parts."""
        with _as_os_errors(path):
            return self.files.open_input_file(_inner(path))

    def list(self, folder: str) -> list[Entry]:
        """Return what is in a folder; nothing if there is no such folder."""
        inner = _inner(folder)
        try:
            return [*self._list_entries(folder, inner)]
        except OSError:
            if self._kind(inner) != pafs.FileType.Directory:
                return []
        return [*self._list_entries(folder, inner)]  # it may have been made since we looked

    def _list_entries(self, folder: str, inner: str) -> tuple[Entry, ...]:
        with _as_os_errors(folder):
            found = self.files.get_file_info(pafs.FileSelector(inner))
        return tuple(entry_of(info) for info in found)

    def exists(self, path: str) -> bool:
        """Return whether there is a file or folder of this name."""
        return bool(self._kind(_inner(path)) != pafs.FileType.NotFound)

    def _kind(self, inner: str) -> Any:
        """Return whether a path is a file, a folder or nothing.

        pyarrow says "nothing" for every error of HDFS, so its root, which is always there, has to
        be seen before that is believed.
        """
        with _as_os_errors(inner):
            kind = self.files.get_file_info(inner).type
            if kind == pafs.FileType.NotFound:
                if self.files.get_file_info("/").type == pafs.FileType.NotFound:
                    raise OSError(errno.EIO, "HDFS does not answer", inner)
                kind = self.files.get_file_info(inner).type
        return kind

    def delete(self, path: str) -> None:
        """Remove a file or an empty folder, if it is there."""
        inner = _inner(path)
        kind = self._kind(inner)
        with _as_os_errors(path):
            if kind == pafs.FileType.Directory:
                if self.list(path):  # pyarrow would delete what is in it
                    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
                self.files.delete_dir(inner)
            elif kind != pafs.FileType.NotFound:
                self._delete_file(inner)
        self.forget(path)

    def _delete_file(self, inner: str) -> None:
        try:
            self.files.delete_file(inner)
        except OSError:
            if self._kind(inner) != pafs.FileType.NotFound:
                raise

    def move(self, old: str, new: str) -> None:
        """Move a file or folder to a name that nobody uses."""
        with _as_os_errors(new):
            self.files.create_dir(posixpath.dirname(_inner(new)), recursive=True)
        self._rename_new(_inner(old), _inner(new))
        self.forget(old)

    def sync(self, path: str) -> None:
        """Do nothing: a closed file is as lasting as HDFS makes it."""

    def publish(self, folder: str, files: Mapping[str, str]) -> None:
        """Make a folder appear, in one step, with the given files under new names.

        The files are gathered in a hidden folder, which is then renamed. Several may do this at
        once: each move either works or was done by another.
        """
        inner = _inner(folder)
        if self._kind(inner) == pafs.FileType.Directory:
            return
        target, name = posixpath.split(inner)
        staging = posixpath.dirname(_inner(next(iter(files.values()))))
        gathered = f"{staging}/.{posixpath.basename(target)}-{name}"
        try:
            with _as_os_errors(folder):
                self.files.create_dir(target, recursive=True)
                self.files.create_dir(gathered, recursive=True)
            for new, old in files.items():
                self._gather(_inner(old), f"{gathered}/{new}")
            self._rename_new(gathered, inner)
        except OSError:
            if self._kind(inner) != pafs.FileType.Directory:
                raise
            self._drop_empty(gathered)
        self._drop_empty(f"{inner}/{posixpath.basename(gathered)}")

    def _gather(self, old: str, new: str) -> None:
        if not self.rename(old, new) and self._kind(new) == pafs.FileType.NotFound:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)

    def _drop_empty(self, inner: str) -> None:
        """Remove the empty folder that one who came second left, maybe inside the published."""
        with suppress(OSError):
            if self._kind(inner) == pafs.FileType.Directory and not self.files.get_file_info(
                pafs.FileSelector(inner)
            ):
                self.files.delete_dir(inner)


class LibHdfs:
    """The one function of libhdfs that pyarrow has only in a form that replaces files."""

    def __init__(self, library: Any, name_node: str, port: int) -> None:
        """Connect; libhdfs shares its JVM, and Hadoop the connection, with pyarrow.

        Raises:
            OSError: HDFS cannot be reached.
        """
        for name in ("hdfsNewBuilder", "hdfsBuilderConnect"):
            getattr(library, name).restype = ctypes.c_void_p
        library.hdfsRename.restype = ctypes.c_int
        self._library = library
        builder = ctypes.c_void_p(library.hdfsNewBuilder())
        text = name_node.encode()  # libhdfs keeps the pointer until it has connected
        library.hdfsBuilderSetNameNode(builder, ctypes.c_char_p(text))
        library.hdfsBuilderSetNameNodePort(builder, ctypes.c_uint16(port))
        connected = library.hdfsBuilderConnect(builder)
        if not connected:
            raise OSError(errno.EIO, "HDFS cannot be reached", name_node)
        self._connection = ctypes.c_void_p(connected)

    def rename(self, old: str, new: str) -> bool:
        """Rename a path as HDFS does; return whether it did."""
        names = (ctypes.c_char_p(old.encode()), ctypes.c_char_p(new.encode()))
        return bool(self._library.hdfsRename(self._connection, *names) == 0)


def connect_hdfs(scheme: str, authority: str) -> HdfsFiles:
    """Return the files of an HDFS; without an authority, of the one that Hadoop's files name.

    Raises:
        CheckpointError: libhdfs or Java cannot be loaded, or HDFS cannot be reached.
    """
    uri = f"{scheme}://{authority}"
    host, _, port = authority.partition(":")
    name_node = f"{scheme}://{host}" if host else "default"
    try:
        files = pafs.HadoopFileSystem(name_node, int(port or 0))
        return HdfsFiles(files, LibHdfs(_load_libhdfs(), name_node, int(port or 0)).rename)
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = (
            f"HDFS cannot be used: {error}; likely causes: HADOOP_HOME or ARROW_LIBHDFS_DIR does "
            "not lead to libhdfs.so, JAVA_HOME not to a Java, or CLASSPATH lacks the output of "
            "`hadoop classpath --glob`"
        )
        raise CheckpointError(path=uri, reason=reason) from error


def _load_libhdfs() -> ctypes.CDLL:
    """Load libhdfs from where pyarrow loads it, so that it is the same."""
    folders = [os.environ.get("ARROW_LIBHDFS_DIR", "")]
    if "HADOOP_HOME" in os.environ:
        folders.append(os.path.join(os.environ["HADOOP_HOME"], "lib", "native"))
    for folder in filter(None, folders):
        with suppress(OSError):
            return ctypes.CDLL(os.path.join(folder, "libhdfs.so"))
    return ctypes.CDLL("libhdfs.so")


def _inner(uri: str) -> str:
    return "/" + split_uri(uri)[2]


@contextmanager
def _as_os_errors(path: str) -> Iterator[None]:
    """Let pyarrow's errors leave as errors of the operating system."""
    try:
        yield
    except pa.ArrowException as error:
        if isinstance(error, OSError):
            raise
        raise OSError(errno.EIO, str(error), path) from error
