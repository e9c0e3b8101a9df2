"""The queries that faults are tried on: small, and together with every way to keep state.

Law: every shape has late rows, refused rows and output in any run of a few epochs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

import penstock as ps
from penstock.compiler import compile_query
from penstock.plan.compiled import CompiledQuery
from penstock.query import nodes
from penstock.query.stream import Sinks, Stream

COLUMNS: dict[str, pl.DataType] = {
    "k": pl.String(),
    "g": pl.Int64(),
    "x": pl.Int64(),
    "s": pl.String(),
    "ts": pl.Datetime("us"),
}
DELAY_SECONDS = 2
IDLE_SECONDS = 15
BUCKETS = 8
TUMBLING, SLIDING = ps.tumbling("5 seconds"), ps.sliding("10 seconds", every="5 seconds")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a query is spread: none of this may change what it gives."""

    strategy: str = "operator-set-cloud"
    instances: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A kind of query.

    Attributes:
        build: Returns the query; its Parquet sinks are below the folder.
        sources: How many sources it reads.
        plain: The window of a query that is one aggregate and nothing else, so that plain Polars
            can tell what comes of it.
        idle: Whether sources may be idle, so that the clock matters.
    """

    build: Callable[[str], Sinks]
    sources: int = 1
    plain: ps.TimeWindow | None = None
    idle: bool = False


def _source(name: str = "a", idle_seconds: int | None = None) -> Stream:
    node = nodes.Source(
        schema=COLUMNS,
        name=name,
        time="ts",
        delay_us=DELAY_SECONDS * 1_000_000,
        reader=nodes.Rows(rows=pl.DataFrame(schema=COLUMNS)),
        idle_us=None if idle_seconds is None else idle_seconds * 1_000_000,
    )
    return Stream(node)


def _numbers(stream: Stream) -> Stream:
    """Return a stream whose rows are refused where s is no number."""
    return stream.map(x="cast(s as bigint)").filter("x >= 0")


def _counted(stream: Stream, window: ps.TimeWindow, by: str = "k") -> Stream:
    return stream.aggregate(by=by, window=window, n="count(*)", total="sum(x)", most="max(x)")


def _tumbling(folder: str) -> Sinks:
    return _counted(_numbers(_source()), TUMBLING).write_parquet(f"{folder}/out")


def _sliding(folder: str) -> Sinks:
    return _counted(_numbers(_source()), SLIDING).write_memory("out")


def _kept(folder: str) -> Sinks:
    """Keep whole rows, as a median needs them."""
    middle = _numbers(_source()).aggregate(by="g", window=SLIDING, middle="median(x)")
    return middle.write_parquet(f"{folder}/out", ordered=True)


def _chained(folder: str) -> Sinks:
    first = _counted(_numbers(_source()), TUMBLING)
    again = first.select("k", x="total", ts="window_end")
    second = again.aggregate(by="k", window=ps.tumbling("15 seconds"), n="count(*)", t="sum(x)")
    return second.write_parquet(f"{folder}/out").also(first.write_memory("first"))


def _ordered(folder: str) -> Sinks:
    return _numbers(_source()).write_parquet(f"{folder}/out", ordered=True)


def _united(folder: str) -> Sinks:
    both = _numbers(_source("a").union(_source("b")))
    return _counted(both, TUMBLING).write_parquet(f"{folder}/out")


def _split(folder: str) -> Sinks:
    """Have two sinks of each kind on one aggregate and its input."""
    rows = _numbers(_source())
    counted = _counted(rows, SLIDING)
    few = counted.filter("n > 1").write_memory("few", ordered=True)
    return counted.write_parquet(f"{folder}/out").also(few, rows.write_parquet(f"{folder}/raw"))


def _idle(folder: str) -> Sinks:
    both = _source("a", IDLE_SECONDS).union(_source("b", IDLE_SECONDS))
    return _counted(both, TUMBLING).write_parquet(f"{folder}/out")


SHAPES: dict[str, Shape] = {
    "tumbling": Shape(build=_tumbling, plain=TUMBLING),
    "sliding": Shape(build=_sliding, plain=SLIDING),
    "kept": Shape(build=_kept),
    "chained": Shape(build=_chained),
    "ordered": Shape(build=_ordered),
    "united": Shape(build=_united, sources=2, plain=TUMBLING),
    "split": Shape(build=_split),
    "idle": Shape(build=_idle, sources=2, idle=True),
}


@lru_cache(maxsize=512)
def built(shape: str, folder: str) -> Sinks:
    """Return a query of some shape."""
    return SHAPES[shape].build(folder)


@lru_cache(maxsize=2048)
def compiled(shape: str, folder: str, layout: Layout) -> CompiledQuery:
    """Return a compiled query; compiling is a large part of a short run."""
    return compile_query(
        built(shape, folder).sinks,
        strategy=layout.strategy,
        instances=layout.instances,
        buckets=BUCKETS,
    )
