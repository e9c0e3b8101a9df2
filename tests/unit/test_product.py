"""Products: which pairs are compared, where, and in blocks of what size."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest

import penstock as ps
from penstock.base.errors import QueryError
from penstock.base.times import NOT_STARTED
from penstock.compiler import compile_query
from penstock.operators.kernel import HIDDEN
from penstock.operators.kernels import kernel_of
from penstock.operators.pairs import blocks, count_product, product
from penstock.operators.pairs.blocks import Ranges
from penstock.query.stream import Stream
from penstock.testing.streams import TestStream

SCHEMA = {"k": pl.String(), "x": pl.Int64(), "ts": pl.Datetime("us")}
Row = dict[str, Any]


def at(second: float) -> datetime:
    return ps.at("2024-01-01") + timedelta(seconds=second)


def row(x: int, second: float, k: str = "a") -> Row:
    return {"k": k, "x": x, "ts": at(second)}


LEFT, RIGHT = (ps.from_rows([], schema=SCHEMA, time="ts", name=n) for n in ("left", "right"))


def feed(stream: TestStream, left: Sequence[Row] = (), right: Sequence[Row] = ()) -> None:
    given: dict[int | str, Sequence[Row]] = {"left": left, "right": right}
    stream.add(given)


def pairs_of(stream: TestStream) -> list[tuple[int, int]]:
    return sorted((found["x"], found["x_right"]) for found in stream.rows())


@pytest.mark.parametrize("instances", [1, 2, 4, 6])
def test_any_predicate_over_pairs_that_are_close(instances: int) -> None:
    made = LEFT.product(RIGHT, within="5 seconds", where="x + x_right > 10 or k > k_right")
    with TestStream(made.write_memory(), instances=instances) as stream:
        feed(stream, [row(1, 1), row(9, 2)], [row(2, 3), row(9, 6), row(90, 7)])
        feed(stream, [row(3, 8, "b")])
        assert pairs_of(stream) == [(3, 9), (3, 90), (9, 2), (9, 9)]
        stream.expect_reference()


@pytest.mark.parametrize("instances", [1, 2, 4, 6])
def test_a_stream_with_itself_compares_no_row_with_itself(instances: int) -> None:
    made = LEFT.product(LEFT, within="5 seconds", where=pl.lit(True))
    with TestStream(made.write_memory(), instances=instances) as stream:
        stream.add([row(1, 1), row(1, 1)])
        stream.add([row(2, 3)])
        stream.crash()
        stream.add([row(3, 7)])
        assert pairs_of(stream) == [(1, 1)] * 2 + [(1, 2)] * 2 + [(2, 1)] * 2 + [(2, 3), (3, 2)]
        stream.expect_reference()


def test_the_window_is_open_at_its_ends() -> None:
    made = LEFT.product(RIGHT, within="5 seconds", where="x > 0")
    with TestStream(made.write_memory()) as stream:
        feed(stream, [row(1, 10)], [row(s, s) for s in (5, 6, 14, 15)])
        assert pairs_of(stream) == [(1, 6), (1, 14)]


@pytest.mark.parametrize("restart", [False, True])
def test_a_row_waits_to_the_last_microsecond(restart: bool) -> None:
    made = LEFT.product(RIGHT, within="5 seconds", where="k = k_right")
    last = 14.999999
    with TestStream(made.write_memory(), instances=2) as stream:
        feed(stream, [row(1, 10)], [row(2, 10, "z")])
        feed(stream, [row(0, last, "x")], [row(0, last, "y")])
        if restart:
            stream.crash()
        feed(stream, [row(4, last, "z")], [row(3, last)])
        assert pairs_of(stream) == [(1, 3), (4, 2)]


@pytest.mark.parametrize("instances", [1, 2, 4, 6])
def test_a_count_window_is_of_the_whole_stream(instances: int) -> None:
    made = LEFT.product(RIGHT, within=ps.count_window(2), where="k = k_right")
    with TestStream(made.write_memory(), instances=instances) as stream:
        feed(stream, [row(1, 5)], [row(2, 1), row(3, 2, "b"), row(4, 3)])
        assert pairs_of(stream) == [], "not yet final"
        feed(stream, [row(5, 6)], [row(6, 6)])
        assert pairs_of(stream) == [(1, 4)], "(1, 3) has another k, (1, 2) is too far back"
        stream.crash()
        stream.finish()
        assert pairs_of(stream) == [(1, 4), (1, 6), (5, 4), (5, 6)]
        stream.expect_reference()


@pytest.mark.parametrize("cut", [1, 3, 6])
@pytest.mark.parametrize("instances", [1, 4])
def test_a_count_window_over_a_stream_with_itself(cut: int, instances: int) -> None:
    made = LEFT.product(LEFT, within=ps.count_window(2), where="x >= 0")
    rows = [row(x, x // 2) for x in range(6)]
    with TestStream(made.write_memory(), instances=instances) as stream:
        for part in (rows[:cut], rows[cut:], [row(6, 3)]):
            stream.add(part)
        stream.finish()
        found = [(a, b) for a in range(7) for b in range(7) if 0 < abs(a - b) <= 2]
        assert pairs_of(stream) == found
        stream.expect_reference()


@pytest.mark.parametrize("few", [0, 512])
def test_a_pair_for_which_the_predicate_fails_is_refused(few: int) -> None:
    made = LEFT.product(RIGHT, within="1 second", where="cast(k as bigint) = x_right")
    with (
        patch.object(blocks, "FEW", few),
        TestStream(made.write_memory(), instances=4) as stream,
    ):
        feed(stream, [row(1, 1, "7"), row(2, 1, "z"), row(3, 50, "z")], [row(7, 1)])
        assert pairs_of(stream) == [(1, 7)]
        assert stream.counts()["refusedResults"] == 1, "a pair that is not close is not looked at"
        stream.expect_reference()


PROBLEMS: dict[str, tuple[dict[str, Any], str]] = {
    "type": ({"where": "x"}, "product where: a predicate must be true or false"),
    "column": ({"where": "z = 1"}, "product where: unknown column 'z'"),
    "suffix": ({"suffix": ""}, "product: column 'k' of the right side would be called 'k'"),
    "within": ({"within": "-1s"}, "product"),
    "size": ({"within": ps.count_window(-1)}, "a count window has at least one row"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_is_wrong_with_a_product(name: str) -> None:
    given, sentence = PROBLEMS[name]
    made = LEFT.product(RIGHT, **({"within": "1m", "where": "x > 1"} | given))
    with pytest.raises(QueryError) as caught:
        made.write_memory()
    assert sentence in str(caught.value)


def advanced(made: Stream, rows: int) -> tuple[list[Ranges], list[int], pl.DataFrame]:
    """Return what a kernel compares of rows at one place, the blocks it makes, and its results."""
    query = compile_query(made.write_memory().sinks)
    kernel = kernel_of(query, query.stateful[0])
    numbers = pl.DataFrame({"x": range(rows)}).with_columns(
        pl.lit("a").alias("k"),
        pl.lit(at(1), dtype=pl.Datetime("us")).alias("ts"),
        *[pl.lit(1, dtype=dtype).alias(name) for name, dtype in HIDDEN.items()],
    )
    arrived = [kernel.prepare(numbers.lazy(), port).collect() for port in (0, 1)]
    ranges: list[Ranges] = []
    heights: list[int] = []
    compare, collect = blocks.compare, pl.LazyFrame.join

    def seen(pairs: Any, found: Any, left: Any, right: Any, given: Ranges) -> None:
        ranges.append(given)
        compare(pairs, found, left, right, given)

    def crossed(self: pl.LazyFrame, other: pl.LazyFrame, **named: Any) -> pl.LazyFrame:
        sizes = [frame.select(pl.len()).collect().item() for frame in (self, other)]
        heights.append(sizes[0] * sizes[1])
        return collect(self, other, **named)

    with (
        patch.object(product, "compare", seen),
        patch.object(count_product, "compare", seen),
        patch.object(pl.LazyFrame, "join", crossed),
        patch.object(blocks, "ROWS", 256),
    ):
        done = kernel.advance(kernel.restore([], NOT_STARTED), arrived, 1_000)
    return ranges, heights, done.results


@pytest.mark.parametrize("within", ["1 second", ps.count_window(2_000)], ids=str)
def test_pairs_are_made_in_blocks(within: Any) -> None:
    made = LEFT.product(RIGHT, within=within, where="x = 3 and x_right = 5")
    ranges, heights, results = advanced(made, 2_000)
    assert results.select("x", "x_right").rows() == [(3, 5)]
    assert sum(found.pairs for found in ranges) == 2_000 * 2_000
    assert max(heights) <= 256 * 256
    assert sum(heights) <= 1.5 * 2_000 * 2_000, "few pairs are compared in vain"


@pytest.mark.parametrize("rows", [1, 3, 100])
@pytest.mark.parametrize(
    ("itself", "self_pairs"), [(False, None), (True, None), (True, False), (True, True)]
)
def test_blocks_have_no_pairs_outside_the_window(
    itself: bool, self_pairs: bool | None, rows: int
) -> None:
    made = LEFT.product(
        LEFT if itself else RIGHT, within="9 seconds", where="x >= 0", self_pairs=self_pairs
    )
    numbers = [row(x, x) for x in range(40)]
    with (
        patch.object(blocks, "FEW", 0),
        patch.object(blocks, "ROWS", rows),
        TestStream(made.write_memory()) as stream,
    ):
        for part in (slice(25), slice(25, None)):
            if itself:
                stream.add(numbers[part])
            else:
                feed(stream, numbers[part], numbers[part])
        near = [(a, b) for a in range(40) for b in range(40) if abs(a - b) < 9]
        assert pairs_of(stream) == [(a, b) for a, b in near if a != b or not itself or self_pairs]


def test_explained() -> None:
    text = LEFT.product(RIGHT, where="x > x_right", within="5s").write_memory().explain(instances=4)
    assert "product within 5s where x > x_right  <- #0, #1" in text
    assert "to the cells of their row" in text
    assert "to the cells of their column" in text
