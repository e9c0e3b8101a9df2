"""Counterexamples that were real: each once broke transparency, and must not again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.query.stream import Sinks, Stream
from penstock.testing.streams import TestStream

START = datetime(2024, 1, 1)
SCHEMA: dict[str, Any] = {
    "k": pl.String, "x": pl.Int64, "y": pl.Float64, "s": pl.String, "ts": pl.Datetime("us"),
}  # fmt: skip
FIVE = ps.tumbling("5 seconds")
STRICT = "cast(s as bigint)"


def stream(**schema: Any) -> Stream:
    return ps.from_rows([], schema=SCHEMA | schema, time="ts", delay="2 seconds")


def row(second: float, k: Any = "a", x: int | None = 1, y: float | None = 1.0, s: str = "1") -> Any:
    return {"k": k, "x": x, "y": y, "s": s, "ts": START + timedelta(seconds=second)}


def agree(sinks: Sinks, *epochs: list[Any], **options: Any) -> dict[str, int]:
    """Run a query and compare it with the reference; return its counts."""
    with TestStream(sinks, **options) as run:
        for rows in epochs:
            run.add(rows)
        run.finish()
        run.expect_reference()
        return run.counts()


BAD = [row(0, "a", s="z"), row(1, "b"), row(2, "b", s="z"), row(3, "c")]
"""Two rows for which a strict cast fails."""


@pytest.mark.parametrize(
    "made",
    [
        stream().map(n=STRICT).filter("k = 'b'"),
        stream().map(n=STRICT).select("k"),
        stream().map(n=STRICT).map(n="x"),
        stream().map(n=STRICT).aggregate(window=FIVE, v="count(*)"),
        stream().route(f"{STRICT} > 1", "x > 3")[1],
        stream().map(n=STRICT).filter(pl.lit(False)),
    ],
    ids=["filtered", "not read", "replaced", "not aggregated", "routed", "filtered out"],
)
@pytest.mark.parametrize("cut", [1, 2, 4])
def test_the_optimiser_hid_rows_that_fail(made: Stream, cut: int) -> None:
    counts = agree(made.write_memory(), BAD[:cut], BAD[cut:])
    assert counts["refused"] == 2


@pytest.mark.parametrize("value", ["sum(1)", "sum(1) + count(*)", pl.lit(2).sum() * pl.len()])
def test_a_literal_was_summed_once_per_row_or_once_per_part(value: Any) -> None:
    rows = [row(i / 2) for i in range(12)]
    out = stream().aggregate(by="k", window=FIVE, v=value)
    agree(out.write_memory(), rows[:5], rows[5:7], rows[7:], instances=2)


@pytest.mark.parametrize(
    ("value", "refused"),
    [(pl.col("x").sum().cast(pl.Int8), 1), (pl.col("s").cast(pl.Int64).median(), 2)],
    ids=["outer", "kept rows"],
)
def test_a_result_that_fails_stopped_the_query_for_good(value: pl.Expr, refused: int) -> None:
    out = stream().aggregate(by="k", window=FIVE, v=value)
    rows = [*BAD, row(4, "c", x=200), row(6, "c")]
    counts = agree(out.write_memory(ordered=True), rows[:2], rows[2:], instances=2)
    assert counts["refusedResults"] == refused


@pytest.mark.parametrize("turn", [False, True])
def test_kept_rows_at_one_place_had_no_order(turn: bool) -> None:
    source = stream()
    left, right = source.map(k="k || '2'"), source.map(k="k || '1'")
    both = right.union(left) if turn else left.union(right)
    out = both.aggregate(window=FIVE, v=pl.col("k").str.join("-"))
    agree(out.write_memory(), [row(0, k) for k in "cab"], [row(1), row(9)], instances=3)


@pytest.mark.parametrize("strategy", ["operator-set-cloud", "operator-cloud", "query-cloud"])
def test_a_group_came_out_twice_when_a_row_of_its_pane_was_refused(strategy: str) -> None:
    out = stream().aggregate(by="k", window=FIVE, v=f"sum({STRICT})")
    rows = [row(i / 4, "ab"[i % 2], s="z" if i == 5 else "1") for i in range(12)]
    counts = agree(out.write_memory(), rows, strategy=strategy)
    assert counts["refused"] == 1


def fails_on_z(frame: pl.DataFrame) -> pl.DataFrame:
    if "z" in frame["s"]:
        raise ValueError("z")
    return frame


@pytest.mark.parametrize("strategy", ["operator-set-cloud", "operator-cloud", "query-cloud"])
def test_a_refused_row_counted_as_a_result_behind_a_union_with_results(strategy: str) -> None:
    source = stream()
    results = source.aggregate(by=["k", "x", "y"], window=FIVE, s="max(s)")
    both = source.union(results.select("k", "x", "y", "s", ts="window_end"))
    out = both.apply(fails_on_z, schema=SCHEMA)
    counts = agree(out.write_memory(), BAD, [row(6)], strategy=strategy)
    assert counts["refused"] == 2


@pytest.mark.parametrize("value", ["variance(y)", "stddev(y)", pl.col("y").var(ddof=0)])
def test_a_variance_was_nan_when_parts_of_it_were_all_null(value: Any) -> None:
    out = stream().aggregate(window=ps.sliding("8s", every="1s"), v=value)
    agree(out.write_memory(), [row(0, y=None)], [row(0, y=None)], [row(1), row(2, y=4.0)], [row(9)])


@pytest.mark.parametrize("window", [FIVE, ps.sliding("8s", every="2s")])
def test_polars_took_the_variance_of_one_null_for_zero(window: ps.TimeWindow) -> None:
    value = pl.col("y").var(ddof=0) + pl.col("x").median()
    out = stream().aggregate(window=window, v=value, w=pl.col("y").std(ddof=0))
    agree(out.write_memory(), [row(0, y=None)], [row(6), row(7, y=3.0)], [row(30, y=None)])


@pytest.mark.parametrize("dtype", [pl.Float64, pl.Float32])
@pytest.mark.parametrize("value", ["count(*)", "median(x)"])
def test_zero_and_minus_zero_were_two_groups(dtype: Any, value: str) -> None:
    out = stream(y=dtype).aggregate(by=["k", "y"], window=FIVE, v=value)
    epochs = [[row(0, y=y)] for y in (0.0, -0.0, float("nan"), None, 1.5, -0.0, float("nan"))]
    agree(out.write_memory(), *epochs, instances=5)


@pytest.mark.parametrize(
    ("dtype", "keys"),
    [
        (pl.Duration("us"), [timedelta(seconds=1), timedelta(days=-1), None]),
        (pl.Binary, [b"a", b"\xff", None]),
    ],
    ids=["duration", "binary"],
)
def test_keys_without_a_text_of_their_own_stopped_the_query(dtype: Any, keys: list[Any]) -> None:
    out = stream(k=dtype).aggregate(by="k", window=FIVE, v="count(*)")
    agree(out.write_memory(), *[[row(i, k) for k in keys] for i in range(4)], instances=3)


def test_a_quantile_sketch_stopped_the_query_at_nan() -> None:
    out = stream().aggregate(window=FIVE, v="approx_quantile(y, 0.5)", n="count(*)")
    with TestStream(out.select("v", "n").write_memory(ordered=True)) as run:
        run.add([row(0, y=float("nan")), row(1, y=8.0), row(2, y=None), row(6, y=float("nan"))])
        run.finish()
        run.expect([{"v": run.rows()[0]["v"], "n": 3}, {"v": None, "n": 1}])
        assert run.rows()[0]["v"] == pytest.approx(8.0, rel=0.01)


def test_narrow_panes_and_times_far_apart_overflowed() -> None:
    patient = ps.from_rows([], schema=SCHEMA, time="ts", delay="500000 weeks")
    out = patient.aggregate(by="k", window=ps.tumbling("1 us"), v="count(*)")
    far = 250_000_000_000  # nearly 8000 years
    rows = [row(0 if i % 2 else far, k=f"k{i}") for i in range(80)]
    agree(out.write_memory(), rows[:50], rows[50:], rows[:5])


def test_an_epoch_that_was_committed_and_not_published_was_lost_to_the_local_runner() -> None:
    with TestStream(stream().write_memory(ordered=True), instances=2) as run:
        run.add([row(0)])
        run.crash([row(3), row(9)], committed=True)
        run.add([row(20)])
        run.expect_reference()
