"""Stage rows: what a task calls for the rows of any sink.

The plan names the kind of sink, and the kind says in what form its rows wait.
"""

from __future__ import annotations

import polars as pl

from penstock.plan.epoch import SinkPlan, StagedFile
from penstock.sinks.registry import find_kind


def stage_frame(
    sink: SinkPlan, word: str, epoch: int, frame: pl.DataFrame, *, fsync: bool = True
) -> StagedFile:
    """Write a frame as a staged file, in the form that the kind of the sink wants."""
    return find_kind(sink.kind).stage(sink, word, epoch, frame, fsync=fsync)
