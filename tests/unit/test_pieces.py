"""What states weigh: every kernel's, against the rows that it holds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

import penstock as ps
from penstock.base.columns import POSITION, SOURCE, TIME
from penstock.base.times import NOT_STARTED
from penstock.compiler import compile_query
from penstock.operators.kernel import UNTIL, Kernel, state_bytes
from penstock.operators.kernels import kernel_of
from penstock.operators.stores.pieces import piece_bytes
from penstock.query.processes import Context, Row
from penstock.query.stream import Stream

SCHEMA: dict[str, Any] = {"k": pl.String, "x": pl.Int64, "ts": pl.Datetime("us")}
START = datetime(2026, 1, 1)
HOUR = 3_600_000_000
LEAST, MOST = 0.6, 4.5
"""A state weighs at least and at most so many times what its rows weigh in one frame."""


class Last(ps.Process):
    """Keeps the last value of a key."""

    state = {"x": pl.Int64}  # noqa: RUF012  # read only
    output = {"x": pl.Int64}  # noqa: RUF012

    def on_row(self, row: Row, context: Context) -> None:
        context.state = {"x": row["x"]}


class LastOnes(ps.BatchProcess):
    """The same, for many keys at a time."""

    state = {"x": pl.Int64}  # noqa: RUF012
    output = {"x": pl.Int64}  # noqa: RUF012

    def on_rows(self, rows: pl.DataFrame, state: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        none = rows.select("k", "x", "__row").clear()
        return none, rows.group_by("k").agg(pl.col("x").last())


def both(stream: Stream) -> tuple[Stream, Stream]:
    return stream.filter("x % 2 = 0"), stream.filter("x % 2 = 1").select("k", "ts", y="x")


QUERIES: dict[str, Callable[[Stream], Stream]] = {
    "tumbling": lambda s: s.aggregate(by="k", window=ps.tumbling("1 day"), n="sum(x)"),
    "sliding": lambda s: s.aggregate(
        by="k", window=ps.sliding("1 day", every="1 hour"), n="sum(x)", m="max(x)"
    ),
    "median": lambda s: s.aggregate(by="k", window=ps.tumbling("1 day"), n="median(x)"),
    "session": lambda s: s.aggregate(by="k", window=ps.session("1 day"), n="sum(x)"),
    "count": lambda s: s.aggregate(by="k", window=ps.count_window(1000), n="sum(x)"),
    "top": lambda s: s.top(5, "x", by="k", window=ps.tumbling("1 day")),
    "join": lambda s: both(s)[0].join(both(s)[1], on="k", within="1 day"),
    "full join": lambda s: both(s)[0].join(both(s)[1], on="k", within="1 day", how="full"),
    "count join": lambda s: both(s)[0].join(both(s)[1], on="k", within=ps.count_window(1000)),
    "product": lambda s: both(s)[0].product(both(s)[1], within="1 day", where="x < 0"),
    "count product": lambda s: both(s)[0].product(
        both(s)[1], within=ps.count_window(10**6), where="x < 0"
    ),
    "dedup": lambda s: s.dedup(by=["k", "x"], within="1 day"),
    "enrich": lambda s: both(s)[0].enrich(both(s)[1], on="k"),
    "process": lambda s: s.process(Last(), by="k"),
    "batch process": lambda s: s.process(LastOnes(), by="k"),
    "order": lambda s: s,
}


def prepared(name: str, rows: int) -> tuple[Kernel, list[pl.DataFrame]]:
    """Return the kernel of a query and what comes to it of some rows, all of different keys."""
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    query = compile_query(QUERIES[name](stream).write_memory(ordered=name == "order").sinks)
    head = query.stateful[0]
    kernel = kernel_of(query, head)
    frames = []
    for edge in (e for s in query.subqueries if s.head == head for e in query.edges_into(s.id)):
        frame = pl.DataFrame(
            {
                "k": [f"a key of some length {i}" for i in range(rows)],
                "x": range(rows),
                "y": range(rows),
                "ts": [START + timedelta(microseconds=i) for i in range(rows)],
            }
        ).select(
            *query.nodes[edge.producer].schema,
            pl.int_range(rows).alias(TIME),
            pl.lit(0, dtype=pl.Int32).alias(SOURCE),
            pl.int_range(rows).alias(POSITION),
        )
        frames.append(kernel.combine(kernel.prepare(frame.lazy(), edge.port).collect()))
    return kernel, frames


def advanced(name: str, rows: int, watermark: int) -> tuple[Kernel, Any, int]:
    """Return a kernel, its state after rows that came in three epochs, and what the rows weigh."""
    kernel, frames = prepared(name, rows)
    state, kept = kernel.restore([], NOT_STARTED), []
    for part in range(3):
        arrived = [f[f.height * part // 3 : f.height * (part + 1) // 3] for f in frames]
        done = kernel.advance(state, arrived, watermark if part == 2 else NOT_STARTED)
        kept += [kernel.delta(arrived), done.kept]
        state = done.state
    one = kernel.compact([delta for delta in kept if delta.height], watermark, True)
    return kernel, state, int(one.drop(UNTIL).estimated_size())


@pytest.mark.parametrize("watermark", [NOT_STARTED, HOUR], ids=["waiting", "final"])
@pytest.mark.parametrize("name", list(QUERIES))
def test_a_state_weighs_what_its_rows_weigh(name: str, watermark: int) -> None:
    weights = []
    for rows in (3000, 12_000):
        kernel, state, in_one_frame = advanced(name, rows, watermark)
        weights.append(state_bytes(kernel, state))
        if name == "order" and watermark == HOUR:
            assert weights[-1] == 0, "all rows have left"
        else:
            assert LEAST * in_one_frame <= weights[-1] <= MOST * in_one_frame
    assert weights[1] == pytest.approx(4 * weights[0], rel=0.35)


def found_in(value: Any) -> dict[int, Any]:
    """Return all frames and arrays in a value, by identity."""
    if isinstance(value, pl.DataFrame | np.ndarray):
        return {id(value): value}
    if is_dataclass(value):
        return found_in([getattr(value, f.name) for f in fields(value)])
    if isinstance(value, tuple | list):
        return {k: v for one in value for k, v in found_in(one).items()}
    return {}


@pytest.mark.parametrize("watermark", [NOT_STARTED, HOUR], ids=["waiting", "final"])
@pytest.mark.parametrize("name", list(QUERIES))
def test_no_piece_is_forgotten(name: str, watermark: int) -> None:
    kernel, state, _ = advanced(name, 300, watermark)
    named = {id(p): p for p in kernel.pieces(state) if not isinstance(p, tuple)}
    assert {k: piece_bytes(p) for k, p in named.items()} == {
        k: piece_bytes(p) for k, p in found_in(state).items()
    }


PROCESS = """
import gc, pickle, sys, psutil
from penstock.operators.kernel import state_bytes
from tests.unit.test_pieces import advanced
name, rows, watermark = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
kernel, state, _ = advanced(name, rows, watermark)
whole = pickle.dumps(state)
copies = [pickle.loads(whole)]  # so that all is there that a copy needs on the way
gc.collect()
before = psutil.Process().memory_info().rss
copies += [pickle.loads(whole) for _ in range(8)]
gc.collect()
print((psutil.Process().memory_info().rss - before) / 8 / state_bytes(kernel, state))
"""


@pytest.mark.parametrize("name", ["join", "sliding", "count", "process"])
def test_a_process_grows_by_as_much_with_a_copy_of_a_state(name: str) -> None:
    command = [sys.executable, "-c", PROCESS, name, "100000", str(HOUR)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 0.7 < float(ran.stdout) < 1.6
