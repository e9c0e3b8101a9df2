"""Joins: what pairs, when, under which names, and what is wrong with a join that cannot be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest

import penstock as ps
from penstock.base.columns import TIME
from penstock.base.errors import CheckpointError, QueryError
from penstock.base.times import NOT_STARTED
from penstock.compiler import compile_query
from penstock.operators.kernels import kernel_of
from penstock.operators.pairs import results as pairs
from penstock.operators.pairs.join import JoinKernel, JoinState
from penstock.operators.stores import bands
from penstock.operators.stores.bands import Band
from penstock.query.joins import Join
from penstock.query.stream import Stream
from penstock.task import run as task
from penstock.task.evaluate import Outcome, Work, evaluate
from penstock.testing.streams import TestStream

SCHEMA = {"k": pl.String(), "x": pl.Int64(), "ts": pl.Datetime("us")}
Row = dict[str, Any]


def at(second: float) -> datetime:
    return ps.at("2024-01-01") + timedelta(seconds=second)


def row(k: str | None, x: int, second: float) -> Row:
    return {"k": k, "x": x, "ts": at(second)}


def source(name: str, delay: str = "0s", schema: Mapping[str, pl.DataType] | None = None) -> Stream:
    return ps.from_rows([], schema=dict(schema or SCHEMA), time="ts", name=name, delay=delay)


def seconds(rows: Sequence[Row], *names: str) -> list[tuple[Any, ...]]:
    """Return columns of rows, times as seconds."""
    found = [
        tuple((v - at(0)).total_seconds() if isinstance(v, datetime) else v for v in values)
        for values in ([row[name] for name in names] for row in rows)
    ]
    return sorted(found, key=str)


def feed(stream: TestStream, rows: Mapping[str, Sequence[Row]]) -> None:
    """Run one epoch on rows of several sources."""
    given: dict[int | str, list[Row]] = {name: list(found) for name, found in rows.items()}
    stream.add(given)


LEFT, RIGHT = source("left"), source("right")


def test_pairs_are_less_than_the_window_apart() -> None:
    joined = LEFT.join(RIGHT, on="k", within="5 seconds")
    with TestStream(joined.write_memory()) as stream:
        feed(stream, {"left": [row("a", 1, 10)], "right": [row("a", s, s) for s in (5, 6, 10, 14)]})
        feed(stream, {"right": [row("a", 15, 15), row("b", 16, 16)]})
        assert seconds(stream.rows(), "x_right") == [(10,), (14,), (6,)]
        stream.expect_reference()


def test_a_pair_is_written_at_once_and_its_time_is_the_later_one() -> None:
    joined = LEFT.join(RIGHT, on="k", within="1 minute").map(one="1")
    ends = joined.aggregate(window=ps.tumbling("10 seconds"), n="count(*)")
    with TestStream(joined.write_memory("pairs").also(ends.write_memory("ends"))) as stream:
        feed(stream, {"left": [row("a", 1, 3)]})
        assert stream.rows("pairs") == []
        feed(stream, {"right": [row("a", 2, 17)]})
        assert len(stream.rows("pairs")) == 1
        stream.finish()
        assert seconds(stream.rows("ends"), "window_end", "n") == [(20.0, 1)]


def test_null_keys_match_nothing() -> None:
    joined = LEFT.join(RIGHT, on="k", within="1 minute")
    with TestStream(joined.write_memory()) as stream:
        feed(stream, {"left": [row(None, 1, 1)], "right": [row(None, 2, 1)]})
        stream.finish()
        assert stream.rows() == []


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [("a", 1, 2)]),
        ("left", [("a", 1, 2), ("b", 3, None), (None, 5, None)]),
        ("full", [("a", 1, 2), ("b", 3, None), ("c", None, 4), (None, 5, None), (None, None, 6)]),
    ],
)
def test_rows_that_stay_alone(how: str, expected: list[tuple[Any, ...]]) -> None:
    joined = LEFT.join(RIGHT, on="k", within="5 seconds", how=how)
    with TestStream(joined.write_memory(), instances=2) as stream:
        feed(
            stream,
            {
                "left": [row("a", 1, 1), row("b", 3, 2), row(None, 5, 3)],
                "right": [row("a", 2, 2), row("c", 4, 3), row(None, 6, 3)],
            },
        )
        stream.finish()
        assert seconds(stream.rows(), "k", "x", "x_right") == sorted(expected, key=str)
        stream.expect_reference()


def test_a_row_is_alone_once_the_watermark_has_passed_it_by_the_window() -> None:
    joined = LEFT.join(RIGHT, on="k", within="5 seconds", how="left")
    with TestStream(joined.write_memory()) as stream:
        feed(stream, {"left": [row("a", 1, 0), row("z", 0, 4.9)], "right": [row("z", 0, 4.9)]})
        assert [r["k"] for r in stream.rows()] == ["z"]
        feed(stream, {"left": [row("w", 0, 5)], "right": [row("y", 0, 5)]})
        assert sorted(r["k"] for r in stream.rows()) == ["a", "z"]
        stream.expect_reference()


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("how", ["inner", "full"])
def test_a_row_waits_to_the_last_microsecond(how: str, restart: bool) -> None:
    joined = LEFT.join(RIGHT, on="k", within="5 seconds", how=how)
    last = 14.999999
    with TestStream(joined.write_memory()) as stream:
        feed(stream, {"left": [row("a", 1, 10)], "right": [row("z", 2, 10)]})
        feed(stream, {n: [row(n, 0, last)] for n in ("left", "right")})
        if restart:
            stream.crash()
        feed(stream, {"right": [row("a", 3, last)], "left": [row("z", 4, last)]})
        assert seconds(stream.rows(), "x", "x_right") == [(1, 3), (4, 2)]
        stream.finish()
        stream.expect_reference()


@pytest.mark.parametrize("restart", [False, True])
def test_a_partner_is_remembered_until_the_row_is_over(restart: bool) -> None:
    joined = LEFT.join(RIGHT, on="k", within="5 seconds", how="full")
    with TestStream(joined.write_memory()) as stream:
        feed(stream, {"left": [row("a", 1, 10)], "right": [row("a", 2, 6)]})
        for second in (12, 14):  # the right row is over, the left one is not
            feed(stream, {n: [row(n, 0, second)] for n in ("left", "right")})
            if restart:
                stream.crash()
        stream.finish()
        assert [r["x_right"] for r in stream.rows() if r["k"] == "a"] == [2]
        stream.expect_reference()


def test_an_unmatched_row_has_the_end_of_its_window_as_its_time() -> None:
    joined = LEFT.join(RIGHT, on="k", within="5 seconds", how="left")
    ends = joined.aggregate(window=ps.tumbling("1 second"), n="count(*)")
    with TestStream(ends.write_memory()) as stream:
        feed(stream, {"left": [row("a", 1, 1)]})
        stream.finish()
        assert seconds(stream.rows(), "window_start") == [(6.0,)]


def test_the_predicate_belongs_to_the_match() -> None:
    joined = LEFT.join(RIGHT, on="k", within="5 seconds", how="full", where="x < x_right")
    with TestStream(joined.write_memory()) as stream:
        feed(stream, {"left": [row("a", 9, 1)], "right": [row("a", 2, 2)]})
        stream.finish()
        assert seconds(stream.rows(), "k", "x", "x_right") == [("a", 9, None), ("a", None, 2)]


def test_the_key_of_a_right_row_alone() -> None:
    shared = LEFT.join(RIGHT, on="k", within="5 seconds", how="full")
    apart = LEFT.join(RIGHT, left_on="k", right_on="k", within="5 seconds", how="full")
    with TestStream(shared.write_memory("s").also(apart.write_memory("a"))) as stream:
        feed(stream, {"right": [row("a", 2, 2)]})
        stream.finish()
        assert [r["k"] for r in stream.rows("s")] == ["a"]
        assert [(r["k"], r["k_right"]) for r in stream.rows("a")] == [(None, "a")]
        stream.expect_reference()


def test_a_stream_with_itself_pairs_no_row_with_itself() -> None:
    joined = LEFT.join(LEFT, on="k", within="5 seconds")
    twins = [row("a", 1, 1), row("a", 1, 1)]
    with TestStream(joined.write_memory(), instances=2) as stream:
        stream.add(twins)
        assert len(stream.rows()) == 2
        stream.add([row("a", 2, 3)])
        assert seconds(stream.rows(), "x", "x_right") == [(1, 1)] * 2 + [(1, 2)] * 2 + [(2, 1)] * 2
        stream.expect_reference()


@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_rows_pair_with_themselves_where_that_is_asked_for(how: str) -> None:
    where = "x + x_right <> 6"  # a row with 3 is no partner of its own
    joined = LEFT.join(LEFT, on="k", within="5 seconds", how=how, where=where, self_pairs=True)
    with TestStream(joined.write_memory(), instances=2) as stream:
        stream.add([row("a", 1, 1), row("a", 1, 1)])
        assert seconds(stream.rows(), "x", "x_right") == [(1, 1)] * 4
        stream.add([row("b", 2, 3), row("c", 3, 3)])
        stream.crash()
        stream.finish()
        alone = [(3, None), (None, 3)][: ("inner", "left", "full").index(how)]
        assert seconds(stream.rows(), "x", "x_right") == [(1, 1)] * 4 + [(2, 2), *alone]
        stream.expect_reference()


@pytest.mark.parametrize("self_pairs", [None, True])
def test_two_streams_of_one_source_pair_all_their_rows(self_pairs: bool | None) -> None:
    low, high = LEFT.filter("x < 3"), LEFT.filter("x > 1")
    joined = low.join(high, on="k", within="5 seconds", self_pairs=self_pairs)
    with TestStream(joined.write_memory(), instances=2) as stream:
        stream.add([row("a", x, 1) for x in (1, 2, 3)])
        assert seconds(stream.rows(), "x", "x_right") == [(1, 2), (1, 3), (2, 2), (2, 3)]
        stream.expect_reference()


def test_rows_of_two_streams_cannot_be_kept_from_themselves() -> None:
    low, high = LEFT.filter("x < 3"), LEFT.filter("x > 1")
    for made in (
        low.join(high, on="k", within="5 seconds", self_pairs=False),
        low.product(high, where="k = k_right", within="5 seconds", self_pairs=False),
    ):
        with pytest.raises(QueryError, match="self_pairs=False needs the same stream on both"):
            made.write_memory().explain()
    LEFT.join(RIGHT, on="k", within="5 seconds", self_pairs=False).write_memory().explain()
    counted = LEFT.join(LEFT, on="k", within=ps.count_window(2), self_pairs=True)
    with pytest.raises(QueryError, match="self_pairs=True needs a time window"):
        counted.write_memory().explain()


def test_self_pairs_are_pinned(tmp_path: Any) -> None:
    def joined(self_pairs: bool) -> Any:
        return LEFT.join(LEFT, on="k", within="1m", self_pairs=self_pairs).write_memory()

    with TestStream(joined(False), tmp_path) as stream:
        stream.add([row("a", 1, 1)])
    with pytest.raises(CheckpointError, match="join-0 self pairs"):
        TestStream(joined(True), tmp_path)


@pytest.mark.parametrize("self_pairs", [False, True])
@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_a_stream_with_itself_on_other_keys(how: str, self_pairs: bool) -> None:
    calls = source("calls", schema={"a": pl.Int64(), "b": pl.Int64(), "ts": pl.Datetime("us")})
    joined = calls.join(
        calls, left_on="a", right_on="b", within="5 seconds", how=how, self_pairs=self_pairs
    )
    rows = [{"a": a, "b": b, "ts": at(s)} for a, b, s in [(1, 1, 1), (1, 1, 1), (2, 1, 2)]]
    with TestStream(joined.write_memory(), instances=3) as stream:
        stream.add(rows[:2], splits=2)
        stream.add([*rows[2:], {"a": 7, "b": 7, "ts": at(3)}])
        stream.crash()
        stream.finish()
        stream.expect_reference()


def test_columns_of_the_result() -> None:
    other = source("other", schema={"k": pl.String(), "y": pl.Int64(), "ts": pl.Datetime("us")})
    assert list(LEFT.join(other, on="k", within="1s").schema) == ["k", "x", "ts", "y", "ts_right"]
    named = LEFT.join(other, left_on="k", right_on="k", within="1s", suffix="2")
    assert list(named.schema) == ["k", "x", "ts", "k2", "y", "ts2"]


def test_integers_of_different_width_are_keys_together() -> None:
    small = source("small", schema={"x": pl.Int16(), "ts": pl.Datetime("us")})
    shared = small.join(RIGHT, on="x", within="1m", how="full")
    apart = small.join(RIGHT, left_on="x", right_on="x", within="1m", how="full")
    assert shared.schema["x"] == pl.Int64()
    assert (apart.schema["x"], apart.schema["x_right"]) == (pl.Int16(), pl.Int64())
    query = shared.write_memory("s").also(apart.write_memory("a"))
    with TestStream(query, instances=2) as stream:
        feed(
            stream,
            {"small": [{"x": 3, "ts": at(1)}], "right": [row("a", 3, 2), row("b", 70_000, 2)]},
        )
        stream.finish()
        stream.expect_reference()
        assert sorted(r["x"] for r in stream.rows("s")) == [3, 70_000]


def test_a_pair_for_which_the_predicate_fails_is_refused() -> None:
    joined = LEFT.join(RIGHT, left_on="x", right_on="x", within="1m", where="cast(k as bigint) > 0")
    with TestStream(joined.write_memory()) as stream:
        feed(stream, {"left": [row("1", 1, 1), row("z", 1, 1)], "right": [row("b", 1, 1)]})
        stream.expect_reference()
        assert len(stream.rows()) == 1
        assert stream.counts()["refusedResults"] == 1
        (letter,) = stream.dead_letters().to_dicts()
        assert letter["operator"].startswith("join on x")
        assert '"k":"z"' in letter["row"]


def test_a_count_window_is_of_a_key_and_in_stream_order() -> None:
    joined = LEFT.join(RIGHT, on="k", within=ps.count_window(2))
    with TestStream(joined.write_memory(), instances=2) as stream:
        rights = [row("a", i, i) for i in (1, 2, 3)] + [row("b", 9, 4)]
        feed(stream, {"right": rights, "left": [row("a", 0, 5)]})
        assert seconds(stream.rows(), "x", "x_right") == []
        feed(stream, {"right": [row("b", 8, 9)], "left": [row("b", 7, 9)]})
        assert seconds(stream.rows(), "x", "x_right") == [(0, 2), (0, 3)]
        stream.finish()
        found = seconds(stream.rows(), "x", "x_right")
        assert found == [(0, 2), (0, 3), (7, 8), (7, 9)], "left comes before right at one time"
        stream.expect_reference()


@pytest.mark.parametrize("cut", [1, 3, 6])
def test_a_count_window_over_a_stream_with_itself(cut: int) -> None:
    joined = LEFT.join(LEFT, on="k", within=ps.count_window(2))
    rows = [row("ab"[x == 3], x, x // 2) for x in range(6)]
    with TestStream(joined.write_memory(), instances=2) as stream:
        stream.add(rows[:cut])
        stream.crash()
        stream.add(rows[cut:])
        stream.finish()
        pairs = [(0, 1), (0, 2), (1, 2), (1, 4), (2, 4), (2, 5), (4, 5)]
        assert seconds(stream.rows(), "x", "x_right") == sorted(
            [*pairs, *[(b, a) for a, b in pairs]]
        )
        stream.expect_reference()


@pytest.mark.parametrize("kind", ["join", "product"])
def test_rows_at_one_place_have_their_turn_by_their_columns(kind: str) -> None:
    lists = source("lists", schema={"k": pl.String(), "x": pl.List(pl.Int64), "ts": SCHEMA["ts"]})
    many, window = lists.explode("x"), ps.count_window(1)
    joined = (
        many.join(RIGHT, on="k", within=window)
        if kind == "join"
        else many.product(RIGHT, within=window, where="k = k_right")
    )
    with TestStream(joined.write_memory()) as stream:
        feed(
            stream, {"lists": [{"k": "a", "x": [5, 9, 2], "ts": at(1)}], "right": [row("a", 0, 2)]}
        )
        stream.finish()
        assert seconds(stream.rows(), "x", "x_right") == [(9, 0)]
        stream.expect_reference()


def test_compaction_keeps_the_last_rows_of_each_key_and_side() -> None:
    query = compile_query(LEFT.join(RIGHT, on="k", within=ps.count_window(2)).write_memory().sinks)
    kernel = kernel_of(query, query.stateful[0])
    deltas = []
    for port in (0, 1):
        rows = pl.DataFrame([row("ab"[x % 2], x, x) for x in range(10)], schema=SCHEMA)
        places = [(pl.col("x") * 1_000_000).alias(TIME), pl.lit(port, pl.Int32).alias("__src")]
        sent = rows.with_columns(*places, pl.lit(0, pl.Int64).alias("__pos"))
        deltas.append(kernel.delta([kernel.prepare(sent.lazy(), port).collect()]))
    kept = kernel.compact(deltas, 8_000_000)
    times = [int(t) // 1_000_000 for t in kept.filter(pl.col("__side") == 1)[TIME]]
    assert sorted(times) == [4, 5, 6, 7, 8, 9], "8 and 9 wait"
    assert kept.height == 12


def test_results_carry_no_columns_that_nobody_reads() -> None:
    joined = LEFT.join(RIGHT, on="k", within="1m").select("x")
    query = compile_query(joined.write_memory().sinks)
    kernel = kernel_of(query, query.stateful[0])
    assert isinstance(kernel, JoinKernel)
    assert set(kernel.rows.schema) == {"k", "x", TIME, "__side"}


def test_a_checkpoint_is_not_read_with_other_columns(tmp_path: Any) -> None:
    joined = LEFT.join(RIGHT, on="k", within="1m")
    with TestStream(joined.select("x").write_memory(), tmp_path) as stream:
        feed(stream, {"left": [row("a", 1, 1)]})
    with pytest.raises(CheckpointError, match="join-0 carries"):
        TestStream(joined.select("x", "x_right").write_memory(), tmp_path)


PROBLEMS: dict[str, tuple[dict[str, Any], str]] = {
    "no keys": ({}, "join: no keys given"),
    "both": ({"on": "k", "left_on": "k"}, "join: give either on or left_on and right_on"),
    "lengths": ({"left_on": ["k", "x"], "right_on": "k"}, "must be equally many"),
    "unknown": ({"on": "kk"}, "join on: unknown column 'kk'; did you mean 'k'?"),
    "types": ({"left_on": "k", "right_on": "x"}, "different types; String and Int64"),
    "twice": ({"on": ["k", "k"]}, "column 'k' is given twice"),
    "how": ({"on": "k", "how": "right"}, "how='right' is unknown; allowed: inner, left, full"),
    "suffix": ({"on": "k", "suffix": ""}, "would be called 'x', which there is already"),
    "within": ({"on": "k", "within": "0s"}, "within must be positive"),
    "no time": ({"on": "k", "within": "soon"}, "join within: "),
    "outer count": (
        {"on": "k", "within": ps.count_window(3), "how": "left"},
        "needs a time window",
    ),
    "every": ({"on": "k", "within": ps.count_window(3, every=1)}, "has no advance here"),
    "size": ({"on": "k", "within": ps.count_window(0)}, "a count window has at least one row"),
    "where type": ({"on": "k", "where": "x + 1"}, "a predicate must be true or false"),
    "where column": ({"on": "k", "where": "y > 1"}, "join where: unknown column 'y'"),
    "where sum": ({"on": "k", "where": "sum(x) > 1"}, "not row-wise"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_is_wrong_with_a_join(name: str) -> None:
    given, sentence = PROBLEMS[name]
    joined = LEFT.join(RIGHT, **({"within": "1m"} | given))
    with pytest.raises(QueryError) as caught:
        joined.write_memory()
    assert sentence in str(caught.value)


def test_lists_are_no_keys() -> None:
    lists = source("lists", schema={"x": pl.List(pl.Int64), "ts": pl.Datetime("us")})
    with pytest.raises(QueryError, match="a key must not be a list or a struct"):
        lists.join(lists, on="x", within="1m").write_memory()


def test_a_count_window_over_a_stream_with_itself_has_one_key() -> None:
    apart = LEFT.join(LEFT, left_on="k", right_on="x", within=ps.count_window(2))
    with pytest.raises(QueryError, match="needs the same keys on both sides"):
        apart.write_memory()


def test_mistakes_of_both_sides_are_reported_at_once() -> None:
    wrong = LEFT.filter("nothing > 1").join(RIGHT.filter("none > 1"), on="q", within="1m")
    with pytest.raises(QueryError) as caught:
        wrong.write_memory()
    assert len(caught.value.fields["problems"]) == 3


def kernel_on(joined: Stream) -> JoinKernel:
    node = joined._node
    assert isinstance(node, Join)
    return JoinKernel(node, 1, ordered=False, wanted=frozenset(node.schema))


def prepared(kernel: JoinKernel, keys: range, port: int, second: float) -> pl.DataFrame:
    rows = pl.DataFrame({"k": [str(k) for k in keys], "x": keys}).with_columns(
        pl.lit(int(second * 1_000_000), dtype=pl.Int64).alias(TIME),
        pl.lit(at(second), dtype=pl.Datetime("us")).alias("ts"),
    )
    return kernel.prepare(rows.lazy(), port).collect()


@pytest.mark.parametrize("how", ["inner", "full"])
def test_rows_touched_do_not_depend_on_the_rows_kept(how: str) -> None:
    touched = {}
    for kept in (1_000, 64_000):
        kernel = kernel_on(LEFT.join(RIGHT, on="k", within="1 day", how=how))
        state: JoinState = kernel.restore([], NOT_STARTED)
        first = [prepared(kernel, range(kept), port, 0) for port in (0, 1)]
        state = kernel.advance(state, first, 0).state
        heights: list[int] = []
        of, blocks = Band.of, pairs.ranges_in_blocks

        def sorted_(rows: pl.DataFrame, *given: Any, **named: Any) -> Band:
            heights.append(rows.height)  # noqa: B023
            return of(rows, *given, **named)  # noqa: B023

        def paired(low: Any, high: Any) -> Any:
            heights.append(int((high - low).sum()))  # noqa: B023
            return blocks(low, high)  # noqa: B023

        with patch.object(Band, "of", sorted_), patch.object(bands, "ranges_in_blocks", paired):
            for epoch in range(1, 64):
                keys = range(100 * (epoch % 10), 100 * (epoch % 10 + 1))
                arrived = [prepared(kernel, keys, port, epoch) for port in (0, 1)]
                state = kernel.advance(state, arrived, epoch).state
                assert all(len(side) <= 16 for side in state.sides)
        touched[kept] = sum(heights)
    assert touched[64_000] <= 1.5 * touched[1_000]


def test_rows_whose_time_is_over_are_forgotten() -> None:
    kernel = kernel_on(LEFT.join(RIGHT, on="k", within="1 minute"))
    state: JoinState = kernel.restore([], NOT_STARTED)
    for minute in range(50):
        arrived = [prepared(kernel, range(500), port, 60 * minute) for port in (0, 1)]
        state = kernel.advance(state, arrived, 60_000_000 * minute).state
        assert sum(band.height for side in state.sides for band in side) <= 6 * 500


def test_a_hot_key_is_paired_in_blocks() -> None:
    kernel = kernel_on(LEFT.join(RIGHT, on="k", within="1m", where="x = 1 and x_right = 2"))
    hot = [
        prepared(kernel, range(3_000), port, 1).with_columns(pl.lit("hot").alias("k"))
        for port in (0, 1)
    ]
    most: list[int] = []
    passing = pairs.Pairs.passing

    def watched(self: Any, left: Any, right: Any, li: Any, ri: Any, refused: Any) -> Any:
        most.append(li.size)
        return passing(self, left, right, li, ri, refused)

    with patch.object(pairs, "BLOCK", 1 << 16), patch.object(pairs.Pairs, "passing", watched):
        done = kernel.advance(kernel.restore([], NOT_STARTED), hot, 0)
    assert done.results.select("x", "x_right").rows() == [(1, 2)]
    assert sum(most) == 9_000_000
    assert max(most) <= 1 << 16


def test_explained() -> None:
    text = LEFT.join(RIGHT, on="k", within="5s", how="left", where="x > 1").write_memory().explain()
    assert "left join on k within 5s where x > 1  <- #0, #1" in text
    assert "keeps the rows of both sides in runs by key and time" in text


def test_many_results_go_on_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hot key makes 40 000 pairs; no more than two blocks of them are ever at hand."""
    monkeypatch.setattr(pairs, "BLOCK", 500)
    heights: list[int] = []

    def watched(work: Work) -> Outcome:
        heights.extend(frame.height for n, frame in work.inputs.items() if n == 2)
        return evaluate(work)

    monkeypatch.setattr(task, "evaluate", watched)
    left, right = (ps.from_rows([], schema=SCHEMA, time="ts", name=name) for name in "lr")
    both = left.join(right, on="k", within="1 hour").filter("x = 7 and x_right < 3")
    rows: list[Row] = [{"k": "a", "x": x, "ts": at(x)} for x in range(200)]
    with TestStream(both.write_memory()) as stream:
        stream.add({0: rows, 1: rows})
        assert len(stream.rows()) == 3
    assert sum(heights) == 40_000
    assert max(heights) <= 1000
