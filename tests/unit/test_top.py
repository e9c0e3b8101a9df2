"""Top: which rows are first, and when they are written."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest

import penstock as ps
from penstock.base.columns import POSITION, SOURCE, TIME
from penstock.base.times import NOT_STARTED
from penstock.operators.kernel import UNTIL
from penstock.operators.windows.top import TopKernel
from penstock.query.stream import Stream
from penstock.query.top import Top
from penstock.query.windows import TimeWindow
from penstock.testing.streams import TestStream

SCHEMA = {"k": pl.String, "x": pl.Float64, "ts": pl.Datetime("us")}
Row = dict[str, Any]
START = ps.at("2024-01-01")
SECOND = 1_000_000


def rows_at(*given: tuple[float, str | None, float | None]) -> list[Row]:
    return [{"k": k, "x": x, "ts": START + timedelta(seconds=t)} for t, k, x in given]


def source() -> Stream:
    return ps.from_rows([], schema=SCHEMA, time="ts", delay="5 seconds")


def found(stream: Stream, rows: list[Row], *, finish: bool = True) -> list[tuple[Any, ...]]:
    with TestStream(stream.write_memory(ordered=True), instances=3) as run:
        for first in range(0, len(rows), 2):
            run.add(rows[first : first + 2], splits=2)
        if finish:
            run.finish()
        run.expect_reference()
        return [(r["k"], r["x"], r["rank"]) for r in run.rows()]


def test_the_largest_of_each_window_come_first() -> None:
    rows = rows_at((1, "a", 3), (2, "b", 9), (4, "c", 5), (11, "d", 1), (8, "e", 7))
    top = found(source().top(2, "x", window=ps.tumbling("10 seconds")), rows)
    assert sorted(top, key=str) == [("b", 9, 1), ("d", 1, 1), ("e", 7, 2)]


def test_the_least_come_first_if_asked_and_nulls_come_last_in_both() -> None:
    rows = rows_at((1, "a", None), (2, "b", 9), (4, "c", 5), (3, "d", math.nan))
    window = ps.tumbling("10 seconds")
    least = found(source().top(3, "x", window=window, descending=False), rows)
    assert sorted(least, key=lambda r: r[2])[:2] == [("c", 5, 1), ("b", 9, 2)]
    largest = found(source().top(4, "x", window=window), rows)
    assert [k for k, _, _ in sorted(largest, key=lambda r: r[2])] == ["d", "b", "c", "a"]


def test_rows_that_tie_are_in_stream_order() -> None:
    rows = rows_at((3, "c", 1), (1, "a", 1), (2, "b", 1))
    top = found(source().top(2, "x", window=ps.tumbling("10 seconds")), rows)
    assert sorted(top, key=lambda r: r[2]) == [("a", 1, 1), ("b", 1, 2)]


def test_rows_at_one_place_that_tie_are_in_the_order_of_their_columns() -> None:
    same = source()
    twice = same.union(same.map(x="x - 1"))
    top = found(twice.top(1, pl.lit(0), window=ps.tumbling("10 seconds")), rows_at((1, "a", 5)))
    assert top == [("a", 4, 1)]


def test_groups_have_their_own_ranks() -> None:
    rows = rows_at((1, "a", 1), (2, "b", 2), (3, "a", 3), (4, None, 4), (5, None, 5))
    top = found(source().top(1, "x", by="k", window=ps.tumbling("10 seconds")), rows)
    assert sorted(top, key=str) == [("a", 3, 1), ("b", 2, 1), (None, 5, 1)]


def test_a_row_is_first_in_every_window_that_it_leads() -> None:
    rows = rows_at((1, "a", 9), (3, "b", 5), (7, "c", 7))
    stream = source().top(1, "x", window=ps.sliding("4 seconds", every="2 seconds"))
    assert [k for k, _, _ in found(stream, rows)] == ["a", "a", "b", "c", "c"]


def test_after_an_aggregate_the_event_time_is_the_window() -> None:
    rows = rows_at((1, "a", 1), (2, "b", 1), (3, "b", 1), (14, "c", 1), (30, "d", 1))
    counts = source().aggregate(by="k", window=ps.tumbling("10 seconds"), x="count(*)")
    assert found(counts.top(1, "x"), rows, finish=False) == [("b", 2, 1), ("c", 1, 1)]
    later = counts.top(1, "x").aggregate(window=ps.tumbling("20 seconds"), n="count(*)")
    with TestStream(later.write_memory()) as run:
        run.add(rows)
        run.finish()
        run.expect_reference()


@pytest.mark.filterwarnings("ignore::penstock.PenstockWarning")
def test_without_a_window_rows_of_one_event_time_compete_once_it_has_passed() -> None:
    rows = rows_at((1, "a", 1), (1, "b", 2), (2, "c", 0), (6, "d", 0))
    assert found(source().top(1, "x"), rows, finish=False) == []
    assert found(source().top(1, "x"), [*rows, *rows_at((6.5, "e", 1))], finish=False) == [
        ("b", 2, 1)
    ]


def test_mistakes_are_told_at_once() -> None:
    stream = source().map(rank="x").top(0, "k || nothing", by=["q", "q"], window=ps.session("1s"))  # type: ignore[arg-type]
    with pytest.raises(ps.QueryError) as error:
        stream.write_memory()
    text = str(error.value)
    for part in ("k must be", "nothing", "'q'", "given twice", "by time", "column 'rank'"):
        assert part in text
    listed = source().map(l=pl.concat_list("x", "x")).top(1, "l", window=ps.tumbling("1s"))
    with pytest.raises(ps.QueryError, match="cannot be ordered"):
        listed.write_memory()


def test_plans_say_what_it_does() -> None:
    stream = source().top(10, "x", by="k", window=ps.tumbling("1 minute"))
    text = stream.write_memory().explain(instances=2)
    assert "top 10 by x per k over tumbling 1m" in text
    assert "[keeps at most 10 of a group]" in text


def kernel_of(window: TimeWindow | None, k: int = 2) -> TopKernel:
    stream = ps.from_rows(
        [], schema={"k": pl.Int64, "x": pl.Int64, "ts": pl.Datetime("us")}, time="ts"
    )
    node = stream.top(k, "x", by="k", window=window)._node
    assert isinstance(node, Top)
    return TopKernel(node, 1, ordered=False)


def sent(kernel: TopKernel, keys: range, second: int, copies: int = 1) -> pl.DataFrame:
    many = [key for key in keys for _ in range(copies)]
    rows = pl.DataFrame({"k": many, "x": range(len(many))}, {"k": pl.Int64, "x": pl.Int64})
    hidden = [
        pl.lit(None, dtype=pl.Datetime("us")).alias("ts"),
        pl.lit(second * SECOND, dtype=pl.Int64).alias(TIME),
        pl.lit(0, dtype=pl.Int32).alias(SOURCE),
        pl.int_range(pl.len(), dtype=pl.Int64).alias(POSITION),
    ]
    return kernel.combine(kernel.prepare(rows.with_columns(hidden).lazy()).collect())


def test_only_the_first_rows_leave_a_load_balancer_and_stay() -> None:
    kernel = kernel_of(ps.sliding("60 seconds", every="10 seconds"))
    assert sent(kernel, range(3), 1, copies=50).height == 6
    state = kernel.restore([], NOT_STARTED)
    for second in range(5):
        state = kernel.advance(state, [sent(kernel, range(3), second, copies=9)] * 8, 0).state
    kept = sum(run.rows.height for run in state.open)
    assert kept <= 6 * 4


@pytest.mark.filterwarnings("ignore::penstock.PenstockWarning")
@pytest.mark.parametrize("window", [None, ps.sliding("9 seconds", every="1 second")], ids=str)
def test_compaction_in_any_grouping_restores_the_same_state(window: TimeWindow | None) -> None:
    kernel = kernel_of(window)
    state, deltas = kernel.restore([], NOT_STARTED), []
    for second in range(12):
        arrived = [
            sent(kernel, range(second % 3), second, copies=3),
            sent(kernel, range(2), second),
        ]
        done = kernel.advance(state, arrived, (second - 3) * SECOND)
        deltas += [kernel.delta(arrived).filter(pl.col(UNTIL) > (second - 3) * SECOND)]
        state = done.state
    expected = kernel.advance(state, [], 10**12).results
    paired = [kernel.compact(deltas[i : i + 3], 8 * SECOND) for i in range(0, len(deltas), 3)]
    for some in (deltas, paired, paired[::-1]):
        again = kernel.advance(kernel.restore(some, 8 * SECOND), [], 10**12).results
        assert again.sort(again.columns).equals(expected.sort(expected.columns))


def test_an_epoch_costs_what_came_however_much_is_kept() -> None:
    touched = {}
    for kept in (1_000, 64_000):
        kernel = kernel_of(ps.tumbling("1 day"))
        state = kernel.restore([], NOT_STARTED)
        state = kernel.advance(state, [sent(kernel, range(kept), 0)], 0).state
        heights: list[int] = []
        first_rows = TopKernel.first_rows

        def counted(self: TopKernel, rows: pl.DataFrame, node: str = "__pane") -> pl.DataFrame:
            heights.append(rows.height)  # noqa: B023
            return first_rows(self, rows, node)  # noqa: B023

        with patch.object(TopKernel, "first_rows", counted):
            for second in range(1, 64):
                state = kernel.advance(state, [sent(kernel, range(100), second)], 0).state
        touched[kept] = sum(heights)
        assert len(state.open) <= 12
    assert touched[64_000] <= 1.5 * touched[1_000]


def test_a_top_of_rows_without_a_window_warns() -> None:
    with pytest.warns(ps.PenstockWarning, match="window=") as told:
        alone = source().filter("x > 0").top(1, "x")
    assert told[0].filename == __file__
    assert "compares only rows of one event time" in alone.write_memory().explain()


def test_a_top_of_results_does_not_warn() -> None:
    counts = source().aggregate(by="k", window=ps.tumbling("10 seconds"), x="count(*)")
    best = counts.filter("x > 1").top(3, "x").map(y="x").select("k", "y")
    source().top(1, "x", window=ps.tumbling("10 seconds")).select("x").top(1, "x")
    assert "one event time" not in best.top(1, "y").write_memory().explain()
