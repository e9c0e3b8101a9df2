"""Run a query on a made-up stream in this process, without Spark: for tests and documents."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

import penstock as ps
from penstock.compiler import compile_query
from penstock.testing import LocalRun
from penstock.workloads.files import Made

if TYPE_CHECKING:
    from penstock.query.stream import Sinks, Stream

Cuts = tuple[float, ...]
CUTS: Cuts = (0.0, 0.07, 0.4, 0.41, 1.0)
"""Where epochs begin and end, as shares of the rows: large ones and small ones."""


def source(made: Made) -> "Stream":
    """Return a stream of the made-up rows' columns that is fed by hand."""
    return ps.from_rows([], schema=dict(made.frame(0, 1).schema), time="ts")


def query_of(streams: "Mapping[str, Stream]") -> "Sinks":
    """Return one query that keeps each stream in memory by its name."""
    first, *others = (stream.write_memory(name) for name, stream in streams.items())
    return first.also(*others)


def run_streams(
    made: Made,
    streams: "Callable[[Stream], Mapping[str, Stream]]",
    folder: Path,
    *,
    instances: int = 1,
    cuts: Cuts = CUTS,
) -> dict[str, pl.DataFrame]:
    """Return what each stream gives for all the rows, in epochs of two splits, and the end."""
    query = compile_query(query_of(streams(source(made))).sinks, instances=instances)
    run = LocalRun(query, folder)
    rows = made.frame(0, made.rows)
    bounds = [round(cut * rows.height) for cut in cuts]
    for begin, end in pairwise(bounds):
        middle = (begin + end) // 2
        run.epoch({0: [rows[begin:middle], rows[middle:end]]})
    run.finish()
    assert run.driver.last is not None
    totals = run.driver.last.totals
    assert (totals["read"], totals["refused"], totals["late"]) == (rows.height, 0, 0), totals
    return {sink.target: run.table(number) for number, sink in query.sinks}


def run_local(
    made: Made,
    query: "Callable[[Stream], Stream]",
    folder: Path,
    *,
    instances: int = 1,
    cuts: Cuts = CUTS,
) -> pl.DataFrame:
    """Return what one stream gives for all the rows."""
    streams = run_streams(
        made, lambda rows: {"it": query(rows)}, folder, instances=instances, cuts=cuts
    )
    return streams["it"]
