"""Remote files: which file system keeps the files of a URI.

Law: only a store with an atomic create-if-absent is used, since without one a second driver could
replace the manifest of the first. One object serves a (scheme, authority) in a process; a forked
child makes its own, because connections and threads do not survive a fork.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow.fs as pafs

from penstock.base.errors import CheckpointError
from penstock.files.disk import Entry

if TYPE_CHECKING:
    from penstock.files.place import FileSystem

ALIASES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "hdfs": "hdfs", "viewfs": "viewfs"}
_OPEN: dict[tuple[int, str, str], FileSystem] = {}


def split_uri(uri: str) -> tuple[str, str, str]:
    """Return the scheme, the authority and the path of a URI; nothing in it is an escape.

    >>> split_uri("s3a://bucket/a/b c#1.arrow")
    ('s3', 'bucket', 'a/b c#1.arrow')
    """
    scheme, _, rest = uri.partition("://")
    authority, _, path = rest.partition("/")
    return ALIASES.get(scheme.lower(), scheme), authority, path.rstrip("/")


def entry_of(info: pafs.FileInfo) -> Entry:
    """Return what pyarrow says of a name as an entry of a folder."""
    folder = info.type == pafs.FileType.Directory
    return Entry(name=info.base_name, bytes=0 if folder else info.size, folder=folder)


def remote_files(uri: str) -> FileSystem:
    """Return the file system that keeps the files of a URI.

    Raises:
        CheckpointError: The scheme is not supported, or what it needs is not installed.
    """
    scheme, authority, _ = split_uri(uri)
    key = (os.getpid(), scheme, authority)
    if key not in _OPEN:
        _OPEN[key] = _open(uri, scheme, authority)
    return _OPEN[key]


def _open(uri: str, scheme: str, authority: str) -> FileSystem:
    if scheme == "s3":
        from penstock.files.s3 import connect_s3

        return connect_s3(authority)
    if scheme in ("hdfs", "viewfs"):
        from penstock.files.hdfs import connect_hdfs

        return connect_hdfs(scheme, authority)
    supported = "local paths, file:, s3: (also s3a:, s3n:), hdfs: and viewfs:"
    reason = (
        f"files cannot be kept on {scheme!r}; supported: {supported}; a store must create a file "
        "only if it is absent, in one step, or a second driver could replace what the first wrote"
    )
    raise CheckpointError(path=uri, reason=reason)
