"""The file-system seam: how durable files are written and read.

Law: a file that `write_new` has returned for is whole on disk under its name, and no other writer
can have made that name; a reader never sees a part of a file.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path

from penstock.errors import CheckpointError


def write_new(path: Path, data: bytes, *, fsync: bool = True) -> str:
    """Write a file that must not exist yet; return the SHA-256 of its bytes.

    Raises:
        FileExistsError: Another writer made the name first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
    try:
        with hidden.open("xb") as file:
            file.write(data)
            file.flush()
            if fsync:
                os.fsync(file.fileno())
        os.link(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)
    if fsync:
        sync_folder(path.parent)
    return hashlib.sha256(data).hexdigest()


def read_checked(path: Path, *, size: int, sha256: str) -> bytes:
    """Return a file's bytes after its size and checksum have been verified.

    Raises:
        CheckpointError: The file is missing or is not the one that was written.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise CheckpointError(
            path=str(path), reason="a file that the manifest names is missing"
        ) from error
    if len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
        raise CheckpointError(
            path=str(path), reason=f"damaged: {len(data)} bytes, expected {size} with another hash"
        )
    return data


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
