"""Staged files: what tasks write for sinks, hidden until the epoch is committed.

Law: a staged file has a name that no other attempt can use, and nobody but the driver of the
committed epoch makes it visible.
"""

from __future__ import annotations

import io

import polars as pl

from penstock.files.place import place_of
from penstock.plan.epoch import SinkPlan, StagedFile


def staging_folder(target: str, owner: str) -> str:
    """Return the folder beside a sink's folder where the files of a query wait.

    Each has its own, since a query sweeps away what it does not know.

    >>> staging_folder("/out/heavy", "1a2b3c4d5e6f")
    '/out/.heavy.staging-1a2b3c4d'
    """
    parent, _, name = target.rstrip("/").rpartition("/")
    return f"{parent}/.{name}.staging-{owner[:8]}"


def stage_frame(
    sink: SinkPlan, kind: str, epoch: int, frame: pl.DataFrame, *, fsync: bool = True
) -> StagedFile:
    """Write a frame as a staged Parquet file."""
    data = parquet_bytes(frame)
    folder = place_of(sink.staging, fsync=fsync)
    place = folder / f"{epoch:012d}-{kind}-{folder.files.unique()}.parquet"
    digest = place.write_new(data)
    return StagedFile(
        kind=kind,
        target=sink.target,
        path=str(place),
        rows=frame.height,
        bytes=len(data),
        sha256=digest,
    )


def read_staged(staged: StagedFile) -> pl.DataFrame:
    """Return the rows of a staged file, verified.

    Raises:
        CheckpointError: The file is missing or damaged.
    """
    data = place_of(staged.path).read_checked(size=staged.bytes, digest=staged.sha256)
    return pl.read_parquet(io.BytesIO(data))


def parquet_bytes(frame: pl.DataFrame) -> bytes:
    """Return a frame as the bytes of a Parquet file."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="lz4")
    return buffer.getvalue()
