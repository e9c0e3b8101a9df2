"""Input in epochs: one Parquet file each, written before the run.

Law: the input depends on its fields alone, so the load of an epoch is the same on any machine.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

import penstock as ps
from penstock.workloads.calls import CallRecords
from penstock.workloads.draws import I64, names
from penstock.workloads.files import write_atomically

if TYPE_CHECKING:
    from penstock.query.stream import Stream

FIRST = datetime(2026, 1, 1)
_OLDEST = 1_700_000_000


def write_epochs(folder: Path, frames: Iterable[pl.DataFrame]) -> int:
    """Write one file for each epoch and return how many rows they have; sources read in order."""
    folder.mkdir(parents=True)
    rows = 0
    for number, frame in enumerate(frames):
        path = folder / f"epoch-{number:05d}.parquet"
        write_atomically(frame, path, modified=_OLDEST + number)
        rows += frame.height
    return rows


def stream_of(folder: Path) -> "Stream":
    """Return the stream of a folder, one file in an epoch."""
    return ps.read_parquet(folder, time="ts", max_files_per_epoch=1)


def gathered(frames: Iterable[pl.DataFrame], counts: Iterable[int]) -> Iterable[pl.DataFrame]:
    """Give frames put together: so many of them for the first, so many for the second, and on.

    >>> ones = [pl.DataFrame({"x": [i]}) for i in range(3)]
    >>> [frame["x"].to_list() for frame in gathered(ones, [1, 2])]
    [[0], [1, 2]]
    """
    source = iter(frames)
    for count in counts:
        yield pl.concat([next(source) for _ in range(count)])


def call_epochs(
    *, epochs: int, rows: int, seconds: float = 1.0, callers: int = 10_000, seed: int = 0
) -> Iterable[pl.DataFrame]:
    """Give call records: so many an epoch, each epoch so many seconds of event time."""
    calls = CallRecords(
        rows=epochs * rows,
        callers=callers,
        hours=epochs * seconds / 3600,
        seed=seed,
        first=FIRST,
        mean_seconds=20.0,
    )
    return (calls.frame(number * rows, rows) for number in range(epochs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of one epoch: rows, and how callers are drawn: evenly, or around a mean."""

    rows: int
    mean: float | None = None
    deviation: float = 0.0


def load_epochs(
    loads: Iterable[Load], *, seconds: float = 1.0, callers: int = 10_000, seed: int = 0
) -> Iterable[pl.DataFrame]:
    """Give an epoch of call records for each load; callers beyond either end are drawn again."""
    random = np.random.default_rng(seed)
    known = names("600", 7, callers)
    for number, load in enumerate(loads):
        who = _callers(random, load, callers)
        base = CallRecords(
            rows=load.rows, callers=callers, hours=seconds / 3600, seed=seed + number
        )
        begin = FIRST + timedelta(seconds=number * seconds)
        frame = replace(base, first=begin, mean_seconds=20.0).frame(0, load.rows)
        yield frame.with_columns(known.gather(who).alias("src"))


def _callers(random: np.random.Generator, load: Load, callers: int) -> I64:
    if load.mean is None:
        return random.integers(0, callers, load.rows)
    drawn = np.rint(random.normal(load.mean, load.deviation, load.rows)).astype(np.int64)
    return np.clip(drawn, 0, callers - 1)
