"""Staged files: what tasks write for sinks, hidden until the epoch is committed.

Law: a staged file has a name that no other attempt can use, and nobody but the driver of the
committed epoch makes it visible.
"""

from __future__ import annotations

import io

import polars as pl

from penstock.files.place import place_of
from penstock.plan.epoch import SinkPlan, StagedFile


def write_staged(
    plan: SinkPlan,
    word: str,
    epoch: int,
    data: bytes,
    ending: str,
    *,
    rows: int,
    fsync: bool,
) -> StagedFile:
    """Write a staged file.

    Args:
        plan: Where the files of the sink wait, and where they are to go.
        word: ``output``, ``late`` or ``dead``.
        epoch: The epoch.
        data: The bytes of the file.
        ending: How its name ends.
        rows: How many rows it has.
        fsync: Whether it is synced.
    """
    folder = place_of(plan.staging, fsync=fsync)
    place = folder / f"{epoch:012d}-{word}-{folder.files.unique()}{ending}"
    digest = place.write_new(data)
    return StagedFile(
        kind=word,
        target=plan.target,
        path=str(place),
        rows=rows,
        bytes=len(data),
        sha256=digest,
    )


def read_staged_bytes(staged: StagedFile) -> bytes:
    """Return the bytes of a staged file, verified.

    Raises:
        CheckpointError: The file is missing or damaged.
    """
    return place_of(staged.path).read_checked(size=staged.bytes, digest=staged.sha256)


def read_staged(staged: StagedFile) -> pl.DataFrame:
    """Return the rows of a staged Parquet file, verified.

    Raises:
        CheckpointError: The file is missing or damaged.
    """
    return pl.read_parquet(io.BytesIO(read_staged_bytes(staged)))


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """Return a frame as the bytes of a Parquet file."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="lz4")
    return buffer.getvalue()
