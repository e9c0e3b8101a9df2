"""The limit: a plain batch job in Polars over all the rows at once, with no state to keep.

Rows are grouped to panes of the window's advance by Polars' streaming engine; the windows are
differences of running sums over a dense grid of keys and panes (NumPy, since a grid built by
joins in Polars took about four times as long). Only closed windows are written. The join is
keyed by caller and time bucket; the product is made of equality joins on numbers, so it does not
compare all pairs.
"""

import os
import time
from datetime import datetime

os.environ["POLARS_MAX_THREADS"] = "2"  # counts only before the import

import numpy as np
import numpy.typing as npt
import polars as pl

from bench.batch.calls import nearby, overlapping
from bench.engines.base import EngineJob, EngineTimes
from bench.workloads import ABOVE_KM, Workload

RUNS = 3
"""Timed runs; the best counts, since this engine stands for the limit of the machine."""

SECOND = 1_000_000


def run(job: EngineJob) -> EngineTimes:
    """Warm up on the small input, then run the job and return the best time."""
    write_results(job.warmed())
    best = min(_time(job) for _ in range(RUNS))
    return EngineTimes(seconds=best, epoch_ms=(best * 1000,))


def _time(job: EngineJob) -> float:
    """Return the seconds of one run, from the scan to the written file."""
    begun = time.perf_counter()
    write_results(job)
    return time.perf_counter() - begun


def write_results(job: EngineJob) -> None:
    """Compute the workload over all files and write one Parquet file."""
    calls = pl.scan_parquet(sorted(job.calls.glob("*.parquet")))
    job.out.mkdir(parents=True, exist_ok=True)
    load, file = job.workload, job.out / "all.parquet"
    if load.kind == "means":
        _means(job, calls).write_parquet(file)
    elif load.kind == "join":
        within_us = load.size_seconds * SECOND
        pairs = nearby(calls, above_km=ABOVE_KM, within_us=within_us)
        pairs.collect(engine="streaming").write_parquet(file)
    else:
        overlapping(calls, within_us=load.size_seconds * SECOND).collect().write_parquet(file)


def _means(job: EngineJob, calls: pl.LazyFrame) -> pl.DataFrame:
    panes = group_to_panes(calls, job.workload)
    closed = last_time(calls, panes)
    sums = slide(panes, job.workload) if job.workload.size_seconds > pane_of(job) else panes
    return to_means(sums, job.workload, closed)


def pane_of(job: EngineJob) -> int:
    """Return the pane's length in seconds: the advance, which must divide the size."""
    load = job.workload
    if load.size_seconds % load.every_seconds:
        raise ValueError(f"size is no multiple of the advance; workload={load!r}")
    return load.every_seconds


def group_to_panes(calls: pl.LazyFrame, load: Workload) -> pl.DataFrame:
    """Return one row per key and pane that has calls: how many, and their total length."""
    return (
        calls.select(
            load.key,
            pane=pl.col("ts").dt.truncate(f"{load.every_seconds}s"),
            length=pl.col("end") - pl.col("start"),
        )
        .group_by(load.key, "pane")
        .agg(pl.len().cast(pl.Int64).alias("calls"), pl.col("length").sum().cast(pl.Int64))
        .collect(engine="streaming")
    )


def last_time(calls: pl.LazyFrame, panes: pl.DataFrame) -> datetime:
    """Return the highest event time; row groups before the last pane are skipped."""
    last = pl.col("ts") >= panes["pane"].max()
    highest: datetime = calls.filter(last).select(pl.col("ts").max()).collect().item()
    return highest


def slide(panes: pl.DataFrame, load: Workload) -> pl.DataFrame:
    """Sum the panes of each window, for every key and every pane in which a window ends."""
    width = load.size_seconds // load.every_seconds
    keys = panes.select(pl.col(load.key).unique()).with_row_index("row")
    row = panes.join(keys, on=load.key, how="left", maintain_order="left")["row"].to_numpy()
    starts = panes["pane"].cast(pl.Int64)
    first = int(starts.to_numpy().min())
    column = ((starts - first) // (load.every_seconds * SECOND)).to_numpy()
    shape = (keys.height, int(column.max()) + 1)
    grid = {
        name: _windows(panes[name].to_numpy(), row, column, shape, width)
        for name in ("calls", "length")
    }
    pane = np.arange(shape[1], dtype=np.int64) * (load.every_seconds * SECOND) + first
    return pl.DataFrame(
        {
            load.key: keys[load.key].gather(np.repeat(np.arange(shape[0]), shape[1])),
            "pane": pl.Series(np.tile(pane, shape[0])).cast(pl.Datetime("us")),
            **grid,
        }
    )


def _windows(
    values: npt.NDArray[np.int64],
    row: npt.NDArray[np.integer],
    column: npt.NDArray[np.int64],
    shape: tuple[int, int],
    width: int,
) -> npt.NDArray[np.int64]:
    """Return sums over `width` panes that end at each cell, row by row."""
    grid = np.zeros((shape[0], shape[1] + width), dtype=np.int64)
    grid[row, column + width] = values
    np.cumsum(grid, axis=1, out=grid)
    return (grid[:, width:] - grid[:, :-width]).ravel()


def to_means(sums: pl.DataFrame, load: Workload, closed: datetime) -> pl.DataFrame:
    """Return the rows of closed windows that have calls."""
    return (
        sums.lazy()
        .filter(pl.col("calls") > 0)
        .select(
            load.key,
            window_end=pl.col("pane") + pl.duration(seconds=load.every_seconds),
            calls="calls",
            mean=(pl.col("length") // pl.col("calls")).cast(pl.Duration("us")),
        )
        .filter(pl.col("window_end") <= closed)
        .collect(engine="streaming")
    )
