"""Session windows: which rows belong together, when they are written, what stays of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
import polars as pl
import pytest

import penstock as ps
from penstock.base.columns import TIME
from penstock.base.times import NOT_STARTED
from penstock.operators.kernel import UNTIL
from penstock.operators.stores.keyed_rows import KeyedRows
from penstock.operators.windows.sessions import SessionKernel
from penstock.query.expressions import ExpressionLike
from penstock.query.nodes import Aggregate
from penstock.testing.streams import TestStream

SCHEMA: dict[str, pl.DataType] = {"k": pl.String(), "x": pl.Int64(), "ts": pl.Datetime("us")}
ROWS = {"n": "count(*)"}
Row = dict[str, Any]
SESSIONS = """
    with marked as (
        select *, coalesce(ts - lag(ts) over w > interval 6 seconds, true) as fresh
        from rows window w as (partition by k order by ts)
    ), numbered as (
        select *, sum(fresh::int) over (partition by k order by ts) as session from marked
    )
    select k, min(ts) as window_start, max(ts) + interval 6 seconds as window_end,
           count(*) as n, sum(x)::bigint as s, median(x)::double as m
    from numbered group by k, session
"""
START = ps.at("2024-01-01")
SECOND = 1_000_000


def rows_at(*given: tuple[float, str | None, int | None]) -> list[Row]:
    return [{"k": k, "x": x, "ts": START + timedelta(seconds=t)} for t, k, x in given]


def found(
    rows: list[Row], values: Mapping[str, ExpressionLike] = ROWS, *, finish: bool = True
) -> list[tuple[Any, ...]]:
    source = ps.from_rows([], schema=SCHEMA, time="ts", delay="10 seconds")
    query = source.aggregate(by="k", window=ps.session("5 seconds"), **values)
    with TestStream(query.write_memory(ordered=True), instances=2) as stream:
        for row in rows:
            stream.add([row])
        if finish:
            stream.finish()
        stream.expect_reference()
        return [
            (r["k"], (r["window_start"] - START).total_seconds(),
             (r["window_end"] - START).total_seconds(), *list(r.values())[3:])
            for r in stream.rows()
        ]  # fmt: skip


def test_rows_at_most_the_gap_apart_are_one_session() -> None:
    rows = rows_at((1, "a", 0), (6, "a", 0), (11.000001, "a", 0), (2, "b", 0))
    assert found(rows) == [("b", 2, 7, 1), ("a", 1, 11, 2), ("a", 11.000001, 16.000001, 1)]


def test_a_row_between_two_sessions_makes_them_one() -> None:
    rows = rows_at((1, "a", 1), (9, "a", 2), (5, "a", 4))
    values = {"n": "count(*)", "s": "sum(x)"}
    assert found(rows, values) == [("a", 1, 14, 3, 7)]
    assert found(rows[:2], values) == [("a", 1, 6, 1, 1), ("a", 9, 14, 1, 2)]


def test_a_session_is_written_when_the_watermark_is_past_its_end_and_no_sooner() -> None:
    rows = rows_at((1, "a", 0), (4, "a", 0), (19, "b", 0))
    assert found(rows, finish=False) == []
    assert found([*rows, *rows_at((19.000001, "b", 0))], finish=False) == [("a", 1, 9, 2)]


def test_null_is_a_key_and_a_stream_without_keys_has_one_group() -> None:
    rows = rows_at((1, None, 0), (3, "a", 0), (4, None, 0))
    assert found(rows) == [("a", 3, 8, 1), (None, 1, 9, 2)]
    source = ps.from_rows([], schema=SCHEMA, time="ts", delay="10 seconds")
    query = source.aggregate(window=ps.session("1s"), n="count(*)").write_memory()
    with TestStream(query) as stream:
        stream.add(rows)
        stream.finish()
        assert sorted(row["n"] for row in stream.rows()) == [1, 2]


@pytest.mark.parametrize(
    "values", [{"m": "median(x)"}, {"f": "first(x)", "d": "count(distinct x)"}]
)
def test_a_long_session_of_many_epochs(values: dict[str, ExpressionLike]) -> None:
    rows = rows_at(*[(t, "a", t % 7) for t in range(0, 120, 4)], (3, "b", 0), (130, "a", 9))
    assert len(found(rows, values)) == 2


@pytest.mark.slow
def test_a_batch_engine_finds_the_same_sessions() -> None:
    draw = np.random.default_rng(7)
    times = np.cumsum(draw.integers(0, 2 * SECOND, 10_000)) - draw.integers(0, 20 * SECOND, 10_000)
    rows = pl.DataFrame({
        "k": pl.Series(["a", "b", "c", None]).gather(draw.integers(0, 4, 10_000)),
        "x": draw.integers(0, 100, 10_000),
        "ts": pl.Series(times).cast(pl.Datetime("us")),
    }, SCHEMA)  # fmt: skip
    source = ps.from_rows([], schema=SCHEMA, time="ts", delay="1 minute")
    query = source.aggregate(
        by="k", window=ps.session("6 seconds"), n="count(*)", s="sum(x)", m="median(x)"
    )
    other = source.aggregate(by="k", window=ps.session("6 seconds"), n="count(*)", s="sum(x)")
    with TestStream(query.write_memory("m").also(other.write_memory("p")), instances=3) as stream:
        for first in range(0, 10_000, 700):
            stream.add(rows[first : first + 700].to_dicts(), splits=3)
        stream.finish()
        kept, partials = pl.DataFrame(stream.rows("m")), pl.DataFrame(stream.rows("p"))
    batch = duckdb.sql(SESSIONS)  # it finds the frame by its name
    assert batch is not None
    expected = batch.pl()
    assert expected.height > 500
    key = ["window_start", "k"]
    assert kept.sort(key).equals(expected.cast(dict(kept.schema)).sort(key))
    assert partials.sort(key).equals(expected.drop("m").cast(dict(partials.schema)).sort(key))


def kernel_of(**values: ExpressionLike) -> SessionKernel:
    stream = ps.from_rows(
        [], schema={"k": pl.Int64, "x": pl.Int64, "ts": pl.Datetime("us")}, time="ts"
    )
    node = stream.aggregate(
        by="k", window=ps.session("10 seconds"), **(values or {"s": "sum(x)"})
    )._node
    assert isinstance(node, Aggregate)
    return SessionKernel(node, 1, ordered=False)


def sent(kernel: SessionKernel, keys: range, second: int) -> pl.DataFrame:
    rows = pl.DataFrame({"k": keys, "x": keys}, schema={"k": pl.Int64, "x": pl.Int64})
    timed = rows.with_columns(pl.lit(second * SECOND, dtype=pl.Int64).alias(TIME))
    return kernel.combine(kernel.prepare(timed.lazy()).collect())


def test_rewriting_is_bounded_by_what_came() -> None:
    kernel = kernel_of()
    state, came, rewritten = kernel.restore([], NOT_STARTED), 0, 0
    for second in range(0, 600, 3):
        arrived = [sent(kernel, range(5), second)]
        done = kernel.advance(state, arrived, second * SECOND)
        state, came, rewritten = done.state, came + arrived[0].height, rewritten + done.kept.height
        assert done.results.is_empty()
        assert (
            sum(run.rows.height for run in state.fragments) <= 5 * 8
        )  # four that came, four that were rewritten
    assert 0 < rewritten <= came


def test_the_deltas_that_are_still_needed_are_the_state_in_any_compaction() -> None:
    kernel = kernel_of()
    state, deltas = kernel.restore([], NOT_STARTED), []
    for second in range(0, 60, 3):
        arrived = [sent(kernel, range(second % 4), second), sent(kernel, range(2), second + 1)]
        done = kernel.advance(state, arrived, (second - 5) * SECOND)
        parts = [d for d in (kernel.delta(arrived), done.kept) if d.height]
        deltas += [d.filter(pl.col(UNTIL) > (second - 5) * SECOND) for d in parts]
        state, watermark = done.state, (second - 5) * SECOND
    expected = kernel.advance(state, [], 10**12).results
    assert expected.height == 3
    paired = [kernel.compact(deltas[i : i + 3], watermark) for i in range(0, len(deltas), 3)]
    for some in (deltas, paired, paired[::-1], [kernel.compact(paired[::-1], watermark)]):
        again = kernel.advance(kernel.restore(some, watermark), [], 10**12).results
        assert again.sort("k", "window_start").equals(expected.sort("k", "window_start"))


def test_an_epoch_touches_the_sessions_that_got_rows_or_ended() -> None:
    touched = {}
    for kept in (1_000, 64_000):
        kernel = kernel_of()
        state = kernel.restore([], NOT_STARTED)
        state = kernel.advance(state, [sent(kernel, range(kept), 1_000)], 0).state
        heights: list[int] = []
        find = KeyedRows.find

        def counted(self: KeyedRows, keys: pl.DataFrame) -> pl.DataFrame:
            heights.append(keys.height)  # noqa: B023
            return find(self, keys)  # noqa: B023

        with patch.object(KeyedRows, "find", counted):
            for second in range(1, 60):
                keys = range(100_000, 100_100)
                done = kernel.advance(state, [sent(kernel, keys, second)], second * SECOND)
                state = done.state
        touched[kept] = sum(heights)
        assert len(state.fragments) <= 12
    assert touched[64_000] == touched[1_000] <= 60 * 100 * 3
