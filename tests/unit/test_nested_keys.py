"""Structs and lists as keys: groups of equal values, NULL, NaN and zeros of both signs included."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import duckdb
import polars as pl
import pytest

import penstock as ps
from penstock.base.hashing import bucket_of, key_columns
from penstock.query.stream import Stream
from penstock.testing.streams import TestStream

NAN = float("nan")
SCHEMA: dict[str, pl.DataType] = {
    "s": pl.Struct({"a": pl.Int64(), "b": pl.Float64(), "c": pl.List(pl.String())}),
    "l": pl.List(pl.Float64()),
    "n": pl.List(pl.Struct({"t": pl.Datetime("us"), "d": pl.Duration("us")})),
    "x": pl.Int64(),
    "ts": pl.Datetime("us"),
}
AT = ps.at("2024-01-01")
STRUCTS: list[Any] = [
    {"a": 1, "b": 0.0, "c": ["x"]}, {"a": 1, "b": -0.0, "c": ["x"]}, {"a": 1, "b": NAN, "c": []},
    {"a": 1, "b": NAN, "c": []}, {"a": None, "b": None, "c": None}, None,
    {"a": 1, "b": NAN, "c": None}, {"a": None, "b": None, "c": None},
    {"a": 1, "b": 2.0, "c": [None]}, None,
]  # fmt: skip
LISTS: list[Any] = [[0.0], [-0.0], [], None, [NAN, None], [NAN, None], [None], [1.0], [], None]
DEEP: list[Any] = [[{"t": AT, "d": timedelta(i % 2)}] * (i % 3) for i in range(10)]
ROWS = [
    {"s": s, "l": item, "n": deep, "x": i, "ts": AT + timedelta(seconds=i)}
    for i, (s, item, deep) in enumerate(zip(STRUCTS, LISTS, DEEP, strict=True))
]


class Count(ps.Process):
    """Numbers the rows of a key."""

    state: Mapping[str, Any] = {"seen": pl.Int64}
    output: Mapping[str, Any] = {"number": pl.Int64}

    def on_row(self, row: Mapping[str, Any], context: ps.Context) -> list[dict[str, Any]]:
        """Add one."""
        number = (context.state or {"seen": 0})["seen"] + 1
        context.state = {"seen": number}
        context.set_timer(context.time + timedelta(milliseconds=500))
        return [{"number": number}]

    def on_timer(self, time: datetime, context: ps.Context) -> list[dict[str, Any]]:
        """Tell the number again, as a negative one."""
        assert context.state is not None
        return [{"number": -context.state["seen"]}]


class Tally(ps.BatchProcess):
    """Numbers the rows of many keys."""

    state: Mapping[str, Any] = {"seen": pl.Int64}
    output: Mapping[str, Any] = {"number": pl.Int64}

    def on_rows(self, rows: pl.DataFrame, state: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Add one for each row."""
        key = next(name for name in state.columns if name != "seen")
        before = rows.join(state, on=key, how="left", nulls_equal=True, maintain_order="left")
        number = pl.col("seen").fill_null(0) + pl.int_range(1, pl.len() + 1).over(key)
        done = before.select("__row", key, number=number)
        return done, done.group_by(key).agg(seen=pl.col("number").last())


def run(query: Stream) -> list[dict[str, Any]]:
    """Return the results of a run in several parts, with a restart; the reference has the same."""
    with TestStream(query.write_memory(), instances=3) as stream:
        for start in range(0, len(ROWS), 3):
            stream.add(ROWS[start : start + 3], splits=2)
            stream.crash()
        stream.rescale(1, 2)
        stream.finish()
        stream.expect_reference()
        assert stream.counts()["refused"] == 0
        return stream.rows()


@pytest.mark.slow
@pytest.mark.parametrize("by", ["s", "l", "n", ("s", "l")], ids=str)
@pytest.mark.parametrize(
    "window",
    [ps.tumbling("1h"), ps.sliding("6s", every="2s"), ps.count_window(2), ps.session("1m")],
    ids=str,
)
@pytest.mark.parametrize("value", ["sum(x)", "median(x)"])
def test_groups(by: Any, window: ps.query.windows.Window, value: str) -> None:
    found = run(source().aggregate(by=by, window=window, v=value, rows="count(*)"))
    assert found


def source() -> Stream:
    return ps.from_rows([], schema=SCHEMA, time="ts", name="t")


@pytest.mark.parametrize("by", ["s", "l"])
def test_groups_are_those_of_duckdb(by: str) -> None:
    query = ps.sql(f"SELECT {by}, count(*) AS n FROM t GROUP BY {by}, TUMBLE(ts, '1h')", t=source())
    found = sorted(row["n"] for row in run(query))
    asked = duckdb.connect()
    asked.register("t", pl.DataFrame(ROWS, schema=SCHEMA).to_arrow())
    counts = asked.execute(f"SELECT count(*) FROM t GROUP BY {by}").fetchall()
    assert found == sorted(n for (n,) in counts)


@pytest.mark.parametrize("by", ["s", "l", "n"])
def test_other_operators(by: str) -> None:
    kept = run(source().dedup(by=by))
    firsts = run(source().top(1, "x", by=by, descending=False, window=ps.tumbling("1h")))
    assert sorted(row["x"] for row in kept) == sorted(row["x"] for row in firsts)
    done = run(source().process(Count(), by=by))
    assert sum(row["number"] == 1 for row in done) == len(kept)
    assert sum(row["number"] < 0 for row in done) == len(ROWS)
    tallied = run(source().process(Tally(), by=by))
    assert sorted(row["number"] for row in tallied) == sorted(
        row["number"] for row in done if row["number"] > 0
    )


@pytest.mark.parametrize("by", ["s", "l", "n"])
def test_equal_keys_have_one_bucket(by: str) -> None:
    frame = pl.DataFrame(ROWS, schema=SCHEMA).select(key_columns([by], SCHEMA))
    placed = frame.with_columns(bucket_of([by], 1024, SCHEMA).alias("b"))
    assert placed.group_by(by).agg(pl.col("b").n_unique())["b"].to_list() == [1] * (
        frame.unique().height
    )
    assert placed["b"].n_unique() > 1


def test_buckets_of_nested_keys_stay_what_they_are() -> None:
    frame = pl.DataFrame(ROWS, schema=SCHEMA)
    assert frame.select(bucket_of(["s"], 1024, SCHEMA)).to_series().to_list()[4:6] == [648, 880]


def test_where_keys_have_to_be_plain() -> None:
    other = ps.from_rows([], schema=SCHEMA, time="ts", name="u")
    with pytest.raises(ps.QueryError, match="must not be a list or a struct"):
        source().join(other, on="s", within="5s").write_memory()
    with pytest.raises(ps.QueryError, match="neither a list nor a struct"):
        source().enrich(other, on="l").write_memory()


@pytest.mark.parametrize("by", ["s", "l", "n"])
def test_an_ordered_sink_tells_results_apart_by_nested_keys(by: str) -> None:
    counts = source().aggregate(by=by, window=ps.tumbling("1h"), rows="min(1)")
    orders = []
    for instances in (1, 4):
        with TestStream(counts.write_memory(ordered=True), instances=instances) as stream:
            stream.add(ROWS[instances:], splits=instances)
            stream.add(ROWS[:0])
            stream.finish()
            stream.expect_reference()
            orders.append([repr(row[by]) for row in stream.rows()])
    assert [key for key in orders[0] if key in orders[1]] == orders[1]
