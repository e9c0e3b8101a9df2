"""The queries that faults are tried on: small, and together with every way to keep state.

Law: every shape has late rows, refused rows and output in any run of a few epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import polars as pl

import penstock as ps
from penstock.compiler import compile_query
from penstock.plan.compiled import CompiledQuery
from penstock.query import nodes
from penstock.query.stream import Sinks, Stream
from penstock.query.windows import Window

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


def _counted(stream: Stream, window: Window, by: str = "k") -> Stream:
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


def _joined(folder: str) -> Sinks:
    both = _source("a").join(_source("b"), on="k", within="3 seconds", how="full")
    return both.write_parquet(f"{folder}/out", ordered=True)


def _itself(folder: str) -> Sinks:
    rows = _numbers(_source())
    pairs = rows.join(rows, on="g", within="2 seconds", where="x < x_right")
    return pairs.write_parquet(f"{folder}/out")


def _crossed(folder: str) -> Sinks:
    pairs = _source("a").product(_source("b"), within="2 seconds", where="x = x_right or k > s")
    last = _source("a").product(_source("b"), within=ps.count_window(2), where="x > x_right")
    return pairs.write_parquet(f"{folder}/out").also(last.write_memory("last"))


def _last_rows(folder: str) -> Sinks:
    """Look back by rows: windows of rows, and a join with the last rows of a key."""
    rows = _numbers(_source())
    windows = rows.aggregate(by="k", window=ps.count_window(4, every=3), n="sum(x)", m="max(ts)")
    pairs = rows.join(_source("b"), on="k", within=ps.count_window(2))
    return windows.write_parquet(f"{folder}/out").also(pairs.write_memory("pairs"))


def _sessions(folder: str) -> Sinks:
    sessions = _counted(_numbers(_source()), ps.session("2 seconds"))
    best = sessions.select("k", "total").top(2, "total", window=ps.tumbling("10 seconds"))
    return sessions.write_parquet(f"{folder}/out").also(best.write_memory("best"))


class Remembered(ps.Process):
    """Adds up a key's rows; forgets the key three seconds after its last row."""

    state: Mapping[str, Any] = {"total": pl.Int64}
    output: Mapping[str, Any] = {"total": pl.Int64, "why": pl.String}

    def on_row(self, row: Mapping[str, Any], context: ps.Context) -> list[dict[str, Any]]:
        """Add a row; fails where s is no number."""
        total = (context.state or {"total": 0})["total"] + int(row["s"])
        context.state = {"total": total}
        context.clear_timers()
        context.set_timer(context.time + timedelta(seconds=3))
        return [{"total": total, "why": "row"}]

    def on_timer(self, time: datetime, context: ps.Context) -> list[dict[str, Any]]:
        """Forget the key."""
        total = (context.state or {"total": 0})["total"]
        context.state = None
        return [{"total": total, "why": "timer"}]


def _processed(folder: str) -> Sinks:
    done = _source().process(Remembered(), by="k")
    return done.write_parquet(f"{folder}/out", ordered=True)


def _looked_up(folder: str) -> Sinks:
    """Drop repeated rows, and look up each row's key in a table that changes."""
    few = _numbers(_source()).dedup(by=("k", "g"), within="4 seconds")
    known = few.enrich(_source("b"), on="k")
    return known.write_parquet(f"{folder}/out")


SHAPES: dict[str, Shape] = {
    "tumbling": Shape(build=_tumbling, plain=TUMBLING),
    "sliding": Shape(build=_sliding, plain=SLIDING),
    "kept": Shape(build=_kept),
    "chained": Shape(build=_chained),
    "ordered": Shape(build=_ordered),
    "united": Shape(build=_united, sources=2, plain=TUMBLING),
    "split": Shape(build=_split),
    "idle": Shape(build=_idle, sources=2, idle=True),
    "joined": Shape(build=_joined, sources=2),
    "itself": Shape(build=_itself),
    "crossed": Shape(build=_crossed, sources=2),
    "last rows": Shape(build=_last_rows, sources=2),
    "sessions": Shape(build=_sessions),
    "processed": Shape(build=_processed),
    "looked up": Shape(build=_looked_up, sources=2),
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
