"""Count windows: which rows, which values, and what stays of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest

import penstock as ps
from penstock.base.columns import POSITION, SOURCE, TIME
from penstock.base.times import NOT_STARTED
from penstock.operators.kernel import FOREVER, UNTIL
from penstock.operators.stores.keyed_rows import KeyedRows
from penstock.operators.windows import count
from penstock.operators.windows.count import CountKernel, may_tie
from penstock.operators.windows.sliding import Blocks
from penstock.query.expressions import ExpressionLike
from penstock.query.nodes import Aggregate
from penstock.query.stream import Stream
from penstock.query.windows import CountWindow
from penstock.testing.streams import TestStream

SCHEMA = {"k": pl.String, "x": pl.Float64, "s": pl.String, "ts": pl.Datetime("us")}
Row = dict[str, Any]
ROWS = {"n": "count(*)"}
KEPT = {"m": "median(x)", "v": "variance(x)"}


def rows_at(*given: tuple[int, str | None, float | None]) -> list[Row]:
    start = ps.at("2024-01-01")
    return [
        {"k": k, "x": x, "s": None, "ts": start.replace(minute=t // 60, second=t % 60)}
        for t, k, x in given
    ]


def source(delay: str = "0 seconds") -> Stream:
    return ps.from_rows([], schema=SCHEMA, time="ts", delay=delay)


def found(
    window: CountWindow, rows: list[Row], values: Mapping[str, ExpressionLike], finish: bool = True
) -> list[Row]:
    counted = source("10 seconds").aggregate(by="k", window=window, **values)
    query = counted.write_memory(ordered=True)
    with TestStream(query, instances=2) as stream:
        for row in rows:
            stream.add([row])
        if finish:
            stream.finish()
        stream.expect_reference()
        return stream.rows()


def test_windows_follow_one_another_and_show_the_times_of_their_rows() -> None:
    rows = rows_at((1, "a", 1), (3, "b", 2), (2, "a", 4), (8, "a", 8), (9, "a", 16), (9, "b", 32))
    shown = [
        (r["k"], r["window_start"].second, r["window_end"].second, r["total"])
        for r in found(ps.count_window(2), rows, {"total": "sum(x)"})
    ]
    assert shown == [("a", 1, 2, 5.0), ("a", 8, 9, 24.0), ("b", 3, 9, 34.0)]


def test_rows_count_in_stream_order_not_as_they_come() -> None:
    rows = rows_at((9, "a", 9), (5, "a", 5), (7, "a", 7), (1, "a", 1))
    firsts = found(ps.count_window(2, every=1), rows, {"f": "first(x)", "t": "last(x)"})
    assert [(r["f"], r["t"]) for r in firsts] == [(1, 5), (5, 7), (7, 9)]


def test_a_row_counts_when_the_watermark_has_passed_it_and_no_sooner() -> None:
    rows = rows_at((1, "a", 1), (2, "a", 2), (12, "a", 3))
    assert found(ps.count_window(2), rows, ROWS, finish=False) == []
    rows += rows_at((13, "b", 0))
    assert len(found(ps.count_window(2), rows, ROWS, finish=False)) == 1


def test_a_window_that_does_not_fill_is_not_written() -> None:
    assert found(ps.count_window(3), rows_at((1, "a", 1), (2, "a", 2)), ROWS) == []


def test_nulls_count_as_rows_and_null_is_a_key() -> None:
    rows = rows_at((1, None, None), (2, None, None), (3, None, 5.0), (4, None, None))
    values: dict[str, ExpressionLike] = {
        "n": "count(*)",
        "c": "count(x)",
        "s": pl.col("x").sum(),
        "m": "avg(x)",
    }
    shown = found(ps.count_window(2), rows, values)
    assert [(r["k"], r["n"], r["c"], r["s"], r["m"]) for r in shown] == [
        (None, 2, 0, 0.0, None),
        (None, 2, 1, 5.0, 5.0),
    ]


ODD = [1e20, 1.0, None, 3.0, math.inf, 4.0, math.nan, 5.0, None, None, -math.inf, 6.0, 7.0, 0.5]


@pytest.mark.parametrize(
    "window", [ps.count_window(2, every=1), ps.count_window(4, every=3)], ids=str
)
def test_what_has_left_a_window_leaves_no_trace(window: CountWindow) -> None:
    values: dict[str, ExpressionLike] = {
        "s": pl.col("x").sum(), "m": "avg(x)", "v": "variance(x)", "p": pl.col("x").std(ddof=0),
        "lo": "min(x)", "hi": "max(x)", "c": "count(x)", "f": "first(x)", "l": "last(x)",
        "some": "sum(x) filter (where x > 2)", "rows": pl.col("x").filter(pl.col("x") > 2).len(),
    }  # fmt: skip
    shown = found(window, rows_at(*[(i, "a", x) for i, x in enumerate(ODD)]), values)
    sums = [row["s"] for row in shown]
    if window.every == 1:
        assert sums[:3] == [1e20, 1.0, 3.0], "1e20 must not swallow the 1 that came after it"
        assert math.isnan(sums[5])
        assert sums[7:9] == [5.0, 0.0]


@pytest.mark.parametrize("most", [1, 7, 4_000_000])
def test_functions_that_cannot_slide_see_each_window_whole(most: int) -> None:
    values: dict[str, ExpressionLike] = {
        "d": "count(distinct x)", "a": ps.approx_distinct("x"),
        "lo": "min(k)", "n": "sum(1)",
    }  # fmt: skip
    rows = rows_at(*[(i, "a", float(i % 3)) for i in range(12)])
    with patch.object(count, "_MOST", most):
        shown = found(ps.count_window(3, every=2), rows, values)
        assert {(r["d"], r["a"], r["lo"]) for r in shown} == {(3, 3, "a")}
        medians = found(ps.count_window(5, every=1), rows, KEPT)
        assert len(medians) == 8


def test_a_window_whose_value_fails_is_refused_alone() -> None:
    rows = rows_at((1, "a", 100.0), (2, "a", 100.0), (3, "a", 1.0), (4, "a", 2.0))
    small = pl.col("x").sum().cast(pl.Int8)
    query = source().aggregate(by="k", window=ps.count_window(2), n=small).write_memory()
    with TestStream(query) as stream:
        stream.add(rows)
        stream.finish()
        stream.expect_reference()
        assert [row["n"] for row in stream.rows()] == [3]
        assert stream.counts()["refusedResults"] == 1


def test_a_row_whose_argument_fails_is_refused_and_does_not_count() -> None:
    rows = [
        r | {"s": s}
        for r, s in zip(rows_at(*[(i, "a", 1) for i in range(5)]), "12z34", strict=True)
    ]
    query = source().aggregate(by="k", window=ps.count_window(2), n="sum(cast(s as bigint))")
    with TestStream(query.write_memory()) as stream:
        stream.add(rows)
        stream.finish()
        stream.expect_reference()
        assert [row["n"] for row in stream.rows()] == [3, 7]


def test_rows_at_one_place_are_told_apart_by_what_is_read() -> None:
    same = source()
    twice = same.union(same.map(x="x - 1"))
    query = twice.aggregate(window=ps.count_window(2, every=1), f="first(x)", l="last(x)")
    with TestStream(query.write_memory(ordered=True), instances=2) as stream:
        stream.add(rows_at((1, "a", 5), (2, "a", 9)))
        stream.finish()
        stream.expect_reference()
        assert [(r["f"], r["l"]) for r in stream.rows()] == [(4, 5), (5, 8), (8, 9)]


def test_only_streams_with_ties_send_columns_to_break_them() -> None:
    plain = source().map(x="x + 1").filter("x > 0")
    assert not may_tie(plain._node)
    assert may_tie(plain.union(plain)._node)
    assert may_tie(plain.aggregate(window=ps.tumbling("1s"), n="count(*)")._node)


def kernel_of(window: CountWindow, **values: ExpressionLike) -> CountKernel:
    stream = ps.from_rows(
        [], schema={"k": pl.Int64, "x": pl.Float64, "ts": pl.Datetime("us")}, time="ts"
    )
    node = stream.aggregate(by="k", window=window, **(values or {"t": "sum(x)"}))._node
    assert isinstance(node, Aggregate)
    return CountKernel(node, 1, ordered=False)


def sent(kernel: CountKernel, keys: range, time: int) -> pl.DataFrame:
    rows = pl.DataFrame(
        {"k": keys, "x": [float(time)] * len(keys)}, {"k": pl.Int64, "x": pl.Float64}
    )
    hidden = [
        pl.lit(time, dtype=pl.Int64).alias(TIME),
        pl.lit(0, dtype=pl.Int32).alias(SOURCE),
        pl.int_range(pl.len(), dtype=pl.Int64).alias(POSITION),
    ]
    return kernel.prepare(rows.with_columns(hidden).lazy()).collect()


@pytest.mark.parametrize("window", [ps.count_window(3), ps.count_window(4, every=1)], ids=str)
def test_compaction_in_any_grouping_restores_the_same_state(window: CountWindow) -> None:
    kernel = kernel_of(window)
    state, deltas = kernel.restore([], NOT_STARTED), []
    for time in range(1, 12):
        arrived = [sent(kernel, range(time % 3 + 1), time)]
        done = kernel.advance(state, arrived, time - 1)
        parts = [kernel.delta(arrived), done.kept]
        deltas += [d.filter(pl.col(UNTIL) > time - 1) for d in parts if d.height]
        state = done.state
    whole = [kernel.compact(deltas, 10)]
    paired = [kernel.compact(deltas[i : i + 4], 10) for i in range(0, len(deltas), 4)]
    shuffled = [paired[i] for i in np.random.default_rng(3).permutation(len(paired))]
    expected = kernel.advance(state, [sent(kernel, range(3), 20)], 30)
    for some in (deltas, whole, paired, shuffled):
        restored = kernel.restore(some, 10)
        again = kernel.advance(restored, [sent(kernel, range(3), 20)], 30)
        columns = expected.results.columns
        assert again.results.sort(columns).equals(expected.results.sort(columns))
    of_window = window.size - 1 if window.every == 1 else 1
    assert whole[0].filter(pl.col(UNTIL) == FOREVER).height <= 3 * of_window + 3


def test_an_epoch_touches_the_groups_that_got_rows() -> None:
    touched = {}
    for kept in (1_000, 64_000):
        kernel = kernel_of(ps.count_window(4, every=2))
        state = kernel.restore([], NOT_STARTED)
        state = kernel.advance(state, [sent(kernel, range(kept), 0)], 1).state
        heights: list[int] = []
        closed = CountKernel._close

        def counted(self: CountKernel, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
            heights.append(rows.height)  # noqa: B023
            return closed(self, rows)  # noqa: B023

        with patch.object(CountKernel, "_close", counted):
            for epoch in range(1, 30):
                arrived = [sent(kernel, range(100), epoch)]
                done = kernel.advance(state, arrived, epoch + 1)
                assert done.kept.height == 100
                state = done.state
        touched[kept] = sum(heights)
        assert state.rows.rows.live <= kept + 4 * 100
    assert touched[64_000] == touched[1_000] <= 30 * 100 * 5


def test_a_row_costs_the_same_however_far_its_window_is_filled() -> None:
    kernel = kernel_of(ps.count_window(100_000))
    state = kernel.restore([], NOT_STARTED)
    read: list[int] = []
    find = KeyedRows.find

    def counted(self: KeyedRows, keys: pl.DataFrame) -> pl.DataFrame:
        read.append((rows := find(self, keys)).height)
        return rows

    for epoch, height in enumerate([10, 50_000, 10, 40_000, 10]):
        arrived = [pl.concat([sent(kernel, range(1), epoch)] * height)]
        read.clear()
        with patch.object(KeyedRows, "find", counted):
            state = kernel.advance(state, arrived, epoch + 1).state
        assert sum(read) <= 1 + 256
    assert state.rows.rows.live == 90_030


def test_a_row_is_in_one_cell_however_many_windows_overlap() -> None:
    starts = np.arange(0, 901)
    blocks = Blocks.of(starts, np.zeros(901, dtype=np.int64), 100)
    assert blocks.rows.size == 1000
    assert blocks.height == 10
    matrix = blocks.matrix(pl.Series(np.arange(1000)), 0)
    assert blocks.total(matrix).tolist() == [sum(range(s, s + 100)) for s in starts]
    assert blocks.extreme(matrix, np.minimum).tolist() == starts.tolist()
