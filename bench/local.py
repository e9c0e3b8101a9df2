"""Run a query on a made-up stream in this process, without Spark: for tests and documents."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import penstock as ps
from penstock.compiler import compile_query
from penstock.testing import LocalRun
from penstock.workloads.files import Made, Several, delay_of, parts_of

if TYPE_CHECKING:
    from penstock.query.stream import Sinks, Stream

Cuts = tuple[float, ...]
CUTS: Cuts = (0.0, 0.07, 0.4, 0.41, 1.0)
"""Where epochs begin and end, as shares of the rows: large ones and small ones."""


def sources(made: Made | Several) -> Any:
    """Return a stream of the made-up rows' columns that is fed by hand; of several, by name."""
    return unwrap(
        {
            name: ps.from_rows(
                [], schema=dict(part.frame(0, 1).schema), time="ts", name=name or "rows",
                delay=delay_of(part),
            )
            for name, part in parts_of(made).items()
        }
    )  # fmt: skip


def unwrap(by_name: Mapping[str, Any]) -> Any:
    """Return what belongs to the one stream of an input, or to each of several by its name."""
    return by_name[""] if set(by_name) == {""} else by_name


def query_of(streams: "Mapping[str, Stream]") -> "Sinks":
    """Return one query that keeps each stream in memory by its name."""
    first, *others = (stream.write_memory(name) for name, stream in streams.items())
    return first.also(*others)


def run_streams(
    made: Made | Several,
    streams: "Callable[[Any], Mapping[str, Stream]]",
    folder: Path,
    *,
    instances: int = 1,
    cuts: Cuts = CUTS,
    sizes: Sequence[int] = (),
) -> dict[str, pl.DataFrame]:
    """Return what each stream gives for all the rows, in epochs of two splits, and the end.

    Before an epoch that has a place in `sizes`, every subquery gets so many instances.
    """
    query = compile_query(query_of(streams(sources(made))).sinks, instances=instances)
    run = LocalRun(query, folder)
    parts = {name or "rows": part for name, part in parts_of(made).items()}
    given = {
        number: parts[source.name].frame(0, parts[source.name].rows)
        for number, source in query.sources
    }
    for (begin, end), size in zip_longest(pairwise(cuts), sizes[: len(cuts) - 1]):
        for subquery in query.subqueries if size else ():
            run.driver.rescale(subquery.id, size)
        run.epoch({number: _splits(rows, begin, end) for number, rows in given.items()})
    run.finish()
    assert run.driver.last is not None
    totals = run.driver.last.totals
    read = sum(rows.height for rows in given.values())
    assert (totals["read"], totals["refused"], totals["late"]) == (read, 0, 0), totals
    return {sink.target: run.table(number) for number, sink in query.sinks}


def _splits(rows: pl.DataFrame, begin: float, end: float) -> list[pl.DataFrame]:
    """Return a share of the rows in two halves."""
    first, last = round(begin * rows.height), round(end * rows.height)
    middle = (first + last) // 2
    return [rows[first:middle], rows[middle:last]]


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
