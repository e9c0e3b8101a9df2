"""Staged files: what tasks write for sinks, hidden until the epoch is committed.

Law: a staged file has a name that no other attempt can use, and nobody but the driver of the
committed epoch makes it visible.
"""

from __future__ import annotations

import io
import uuid
from pathlib import Path

import polars as pl

from penstock.plan.epoch import EpochPlan, StagedFile
from penstock.state.files import write_new


def staging_folder(target: str) -> Path:
    """Return the folder beside a sink's folder where its files wait.

    >>> staging_folder("out/heavy").as_posix()
    'out/.heavy.staging'
    """
    path = Path(target)
    return path.parent / f".{path.name}.staging"


def stage_frame(
    folder: Path,
    kind: str,
    operator: int,
    plan: EpochPlan,
    frame: pl.DataFrame,
) -> StagedFile:
    """Write a frame as a staged Parquet file."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="lz4")
    data = buffer.getvalue()
    path = folder / f"{plan.epoch:012d}-{kind}-{operator}-{uuid.uuid4().hex}.parquet"
    digest = write_new(path, data, fsync=plan.fsync)
    return StagedFile(
        kind=kind,
        operator=operator,
        path=str(path),
        rows=frame.height,
        bytes=len(data),
        sha256=digest,
    )
