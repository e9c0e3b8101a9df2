"""Processes: a user's class, its state, its timers, its mistakes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest

import penstock as ps
from penstock.base.columns import POSITION, SOURCE, TIME
from penstock.base.errors import CheckpointError, QueryError
from penstock.base.times import NOT_STARTED
from penstock.driver.inspect import operators, read_state
from penstock.files.place import place_of
from penstock.operators.keyed.process import RowProcessKernel
from penstock.operators.keyed.process_state import Made, ProcessKernel, Turn
from penstock.operators.stores.keyed_rows import KeyedRows
from penstock.query.process import Process
from penstock.query.stream import Stream
from penstock.testing import TestStream

Row = dict[str, Any]
SCHEMA = {"k": pl.String, "x": pl.Int64, "ts": pl.Datetime("us")}
FIRST = datetime(2024, 1, 1)
POINT = {"lat": pl.Float64, "lon": pl.Float64, "at": pl.Datetime("us")}
SPEED = {"kmh": pl.Float64}
NUMBER = {"n": pl.Int64}
TEXT = {"text": pl.String}
SESSION = {"rows": pl.Int64, "total": pl.Int64}
BOOK = {"bids": pl.List(pl.Struct({"price": pl.Int64, "size": pl.Int64}))}
BEST = {"price": pl.Int64, "size": pl.Int64}


def at(second: float) -> datetime:
    return FIRST + timedelta(seconds=second)


def rows(*given: tuple[str | None, int | None, float]) -> list[Row]:
    return [{"k": k, "x": x, "ts": at(second)} for k, x, second in given]


def source(**options: Any) -> Stream:
    return ps.from_rows([], schema=options.pop("schema", SCHEMA), time="ts", **options)


class Speed(ps.Process):
    """How fast a phone moves from one call to the next."""

    state = POINT
    output = SPEED

    def on_row(self, row: Row, context: ps.Context) -> Iterator[Row]:
        last = context.state
        if last is not None and context.time > last["at"]:
            way = 111.2 * math.hypot(row["lat"] - last["lat"], row["lon"] - last["lon"])
            yield {"kmh": way / ((context.time - last["at"]) / timedelta(hours=1))}
        context.state = {"lat": row["lat"], "lon": row["lon"], "at": context.time}


def test_a_speed_detector() -> None:
    schema = {"phone": pl.Int64, "lat": pl.Float64, "lon": pl.Float64, "ts": pl.Datetime("us")}
    calls = [
        {"phone": 1, "lat": 0.0, "lon": 0.0, "ts": at(0)},
        {"phone": 2, "lat": 5.0, "lon": 0.0, "ts": at(1)},
        {"phone": 1, "lat": 1.0, "lon": 0.0, "ts": at(3600)},
        {"phone": 1, "lat": 1.5, "lon": 0.0, "ts": at(1800)},  # out of order
    ]
    fast = source(schema=schema, delay="1 hour").process(Speed(), by="phone").filter("kmh > 130")
    with TestStream(fast.write_memory(ordered=True), instances=3) as stream:
        stream.add(calls[:2])
        stream.crash()
        stream.add(calls[2:])
        assert stream.rows() == [], "a row in between may still come"
        stream.finish()
        (row,) = stream.rows()
        assert row["kmh"] == pytest.approx(333.6)
        stream.expect_reference()


class Sessions(ps.Process):
    """Rows that follow one another in less than ten seconds."""

    state = SESSION
    output = SESSION

    def on_row(self, row: Row, context: ps.Context) -> None:
        old = context.state or {"rows": 0, "total": 0}
        context.state = {"rows": old["rows"] + 1, "total": old["total"] + row["x"]}
        context.clear_timers()
        context.set_timer(context.time + timedelta(seconds=10))

    def on_timer(self, time: datetime, context: ps.Context) -> list[Row]:
        assert context.state is not None
        done = context.state
        context.state = None
        return [done]


def test_a_sessioniser_with_timers() -> None:
    """A timer fires once the watermark reaches it, before rows at its time."""
    made = source(delay="2 seconds").process(Sessions(), by="k")
    with TestStream(made.write_memory(), instances=2) as stream:
        stream.add(rows(("a", 1, 0), ("b", 5, 1), ("a", 2, 4)))
        stream.add(rows(("b", 5, 10.5), ("a", 3, 14), ("b", 9, 13.5)))
        assert stream.rows() == []
        stream.add(rows(("c", 0, 16)))
        assert stream.rows() == [{"k": "a", "rows": 2, "total": 3}]
        stream.crash()
        stream.finish()
        stream.expect_reference()
        assert sorted(stream.rows()[1:], key=str) == [
            {"k": "a", "rows": 1, "total": 3},
            {"k": "b", "rows": 3, "total": 19},
            {"k": "c", "rows": 1, "total": 0},
        ]


class Alarm(ps.Process):
    """Sets timers that have passed, for now, twice, and for later; says when they come."""

    state = NUMBER
    output = {**NUMBER, "at": pl.Datetime("us")}  # noqa: RUF012  # read only

    def on_row(self, row: Row, context: ps.Context) -> Iterator[Row]:
        yield {"n": row["x"], "at": context.time}
        for seconds in (-5, 0, 0, 3, 3):
            context.set_timer(context.time + timedelta(seconds=seconds))

    def on_timer(self, time: datetime, context: ps.Context) -> Iterator[Row]:
        count = (context.state["n"] if context.state else 0) + 1
        context.state = {"n": count}
        yield {"n": 100 + count, "at": time}


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_timer_that_has_passed_fires_after_its_row_and_before_the_next(cut: int) -> None:
    given = rows(("a", 1, 0), ("a", 2, 0), ("a", 3, 3), ("z", 0, 4))
    with TestStream(source().process(Alarm(), by="k").write_memory(ordered=True)) as stream:
        stream.add(given[:cut])
        stream.add(given[cut:])
        stream.finish()
        stream.expect_reference()
        calls = [(row["n"], row["at"]) for row in stream.rows() if row["k"] == "a"]
    # One at 0 after each row at 0, that of both at 3 before the row at 3, one after it, one at 6.
    assert sorted(calls) == [
        (1, at(0)), (2, at(0)), (3, at(3)), (101, at(0)), (102, at(0)), (103, at(3)), (104, at(3)),
        (105, at(6)),
    ]  # fmt: skip


class Clock(ps.Process):
    """Ticks for ever."""

    state = NUMBER
    output = NUMBER

    def on_row(self, row: Row, context: ps.Context) -> None:
        context.set_timer(context.time + timedelta(seconds=1))

    def on_timer(self, time: datetime, context: ps.Context) -> list[Row]:
        context.set_timer(time + timedelta(seconds=1))
        return [{"n": int((time - FIRST) / timedelta(seconds=1))}]


def test_a_timer_that_sets_itself_ends_with_the_input() -> None:
    made = source().process(Clock(), by="k").write_memory()
    with TestStream(made) as stream:
        stream.add(rows(("a", 1, 0), ("b", 1, 5)))
        assert [row["n"] for row in stream.rows() if row["k"] == "a"] == [1, 2, 3, 4, 5]
        stream.finish()
        stream.expect_reference()
        assert [row["n"] for row in stream.rows() if row["k"] == "a"] == [1, 2, 3, 4, 5, 6]
        assert [row["n"] for row in stream.rows() if row["k"] == "b"] == [6]


class Book(ps.BatchProcess):
    """The bids of an instrument: x is a size that is added at the price of the second."""

    state = BOOK
    output = BEST

    def on_rows(self, rows: pl.DataFrame, state: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        if rows["x"].null_count():
            raise ValueError("a bid without a size")
        old = state.explode("bids").select(
            "k", pl.col("bids").struct.unnest(), pl.lit(-1, dtype=pl.Int64).alias("__row")
        )
        new = rows.select(
            "k", pl.col("ts").dt.second().cast(pl.Int64).alias("price"),
            pl.col("x").alias("size"), pl.col("__row").cast(pl.Int64),
        )  # fmt: skip
        bids = pl.concat([old, new]).with_columns(
            pl.col("price").cum_max().over("k").alias("best"),
            pl.col("size").cum_sum().over("k", "price").alias("sum"),
        )
        deep = bids.group_by("k", "price", maintain_order=True).agg(pl.col("size").sum())
        books = deep.group_by("k", maintain_order=True).agg(
            pl.struct("price", "size").sort_by("price").alias("bids")
        )
        results = bids.filter((pl.col("__row") >= 0) & (pl.col("price") == pl.col("best")))
        return results.select("k", "price", pl.col("sum").alias("size"), "__row"), books


def test_an_order_book_in_batches() -> None:
    given = rows(
        ("a", 5, 10), ("b", 1, 11), ("a", 7, 12), ("a", None, 12.5), ("a", 2, 12.5), ("a", 9, 11),
        ("b", 4, 11.5), ("a", 1, 13), ("c", 0, 30),
    )  # fmt: skip
    made = source(delay="2 seconds").process(Book(), by="k")
    with TestStream(made.write_memory(ordered=True), instances=2) as stream:
        for i in range(0, 9, 4):
            stream.add(given[i : i + 4])
            stream.crash()
        stream.finish()
        stream.expect_reference()
        assert [row["size"] for row in stream.rows() if row["k"] == "a"] == [5, 9, 7, 9, 1]
        (letter,) = stream.dead_letters().to_dicts()
        assert letter["operator"] == "process Book by k"
        assert letter["reason"] == "on_rows: ValueError: a bid without a size; key: k='a'"
        assert '"x":null' in letter["row"]
        assert stream.counts()["refusedResults"] == 1


class Count(ps.Process):
    state = NUMBER
    output = NUMBER

    def __init__(self, limit: int = 1) -> None:
        self.limit = limit

    def on_row(self, row: Row, context: ps.Context) -> list[Row]:
        context.state = {"n": (context.state["n"] if context.state else 0) + self.limit}
        return [context.state]


def test_without_keys_there_is_one_group() -> None:
    with TestStream(source().process(Count(), by=()).write_memory(ordered=True)) as stream:
        stream.add(rows(("a", 1, 0), ("b", 1, 1)))
        stream.crash()
        stream.add(rows((None, 1, 2)))
        stream.finish()
        stream.expect([{"n": 1}, {"n": 2}, {"n": 3}], ordered=True)
        stream.expect_reference()


DEEDS: dict[int, Any] = {
    1: lambda context: 1 / 0,
    2: lambda context: [{}],
    3: lambda context: [{"n": 1, "m": 2}],
    4: lambda context: [{"n": "1"}],
    5: lambda context: {"n": 1},
    6: lambda context: [1],
    7: lambda context: setattr(context, "state", {"n": 1 << 63}),
    8: lambda context: setattr(context, "state", {}),
    9: lambda context: setattr(context, "state", [1]),
    10: lambda context: context.set_timer(5),
    11: lambda context: [{"n": 1}, {"n": True}],
    12: lambda context: [{"n": 1.5}],
}


class Order(ps.Process):
    """Joins what it has seen."""

    state = TEXT
    output = TEXT

    def on_row(self, row: Row, context: ps.Context) -> list[Row]:
        context.state = {"text": (context.state["text"] if context.state else "") + str(row["x"])}
        return [context.state]


def test_rows_at_the_same_place_come_by_their_columns() -> None:
    counted = source(delay="10s").aggregate(by=("x", "k"), window=ps.tumbling("10s"), n="count(*)")
    made = counted.process(Order(), by="k").write_memory(ordered=True)
    for instances in (1, 3):
        with TestStream(made, instances=instances) as stream:
            stream.add(rows(*[("ab"[x % 2], x, x % 4) for x in (7, 3, 5, 9, 1, 2, 8)]))
            stream.finish()
            stream.expect_reference()
            last = {row["k"]: row["text"] for row in stream.rows()}
        assert last == {"a": "28", "b": "13579"}


class Undo(Clock):
    def on_row(self, row: Row, context: ps.Context) -> None:
        super().on_row(row, context)
        if row["x"] == 1:
            context.clear_timers()
            raise ValueError("one")

    def on_timer(self, time: datetime, context: ps.Context) -> list[Row]:
        return [{"n": len(context.timers)}]


def test_timers_of_a_call_that_fails_are_undone_too() -> None:
    made = source().process(Undo(), by="k").write_memory()
    with TestStream(made) as stream:
        stream.add(rows(("a", 0, 0), ("a", 1, 0.5), ("b", 1, 0.5)))
        stream.finish()
        stream.expect_reference()
        stream.expect([{"k": "a", "n": 0}])


class Wrong(ps.Process):
    """Does what its row says."""

    state = NUMBER
    output = NUMBER

    def on_row(self, row: Row, context: ps.Context) -> Any:
        count = (context.state["n"] if context.state else 0) + 1
        context.state = {"n": count}
        return DEEDS[row["x"]](context) if row["x"] else [{"n": count}]


REASONS = {
    1: "ZeroDivisionError: division by zero",
    2: "TypeError: a result lacks 'n'; declared: n",
    3: "TypeError: a result has 'm', which is not declared; declared: n",
    4: "TypeError: a result has 'n' = '1', which is no Int64",
    5: "TypeError: results must be a list of dicts or yielded one by one; got one dict",
    6: "TypeError: a result must be a dict; it is int",
    7: "TypeError: the state has 'n' = 9223372036854775808, which is no Int64",
    8: "TypeError: the state lacks 'n'; declared: n",
    9: "TypeError: the state must be a dict; it is list",
    10: "AttributeError: 'int' object has no attribute 'tzinfo'",
    11: "TypeError: a result has 'n' = True, which is no Int64",
    12: "TypeError: a result has 'n' = 1.5, which is no Int64",
}


@pytest.mark.parametrize("deed", list(REASONS))
def test_what_a_call_cannot_do_is_undone_and_refused(deed: int) -> None:
    with TestStream(source().process(Wrong(), by="k").write_memory(ordered=True)) as stream:
        stream.add(rows(("a", 0, 0), ("a", deed, 1), ("a", 0, 2)))
        stream.finish()
        stream.expect([{"k": "a", "n": 1}, {"k": "a", "n": 2}], ordered=True)
        (letter,) = stream.dead_letters().to_dicts()
        assert letter["operator"] == "process Wrong by k"
        assert letter["reason"] == f"on_row: {REASONS[deed]}; key: k='a'"
        assert f'"x":{deed}' in letter["row"]
        stream.expect_reference()


class Late(Clock):
    def on_timer(self, time: datetime, context: ps.Context) -> list[Row]:
        context.set_timer(time)
        return []


def test_a_timer_is_refused_without_keys_too() -> None:
    with TestStream(source().process(Late(), by=()).write_memory()) as stream:
        stream.add(rows(("a", 0, 0)))
        stream.finish()
        (letter,) = stream.dead_letters().to_dicts()
        assert letter["reason"].endswith("key: none")
        assert letter["row"] == '{"timer":"2024-01-01 00:00:01"}'
        stream.expect_reference()


def test_a_timer_that_would_never_end_is_refused() -> None:
    with TestStream(source().process(Late(), by="k").write_memory()) as stream:
        stream.add(rows(("a", 0, 0)))
        stream.finish()
        (letter,) = stream.dead_letters().to_dicts()
        assert "on_timer: ValueError: on_timer must set a later timer" in letter["reason"]
        assert letter["reason"].endswith("key: k='a'")
        assert letter["row"] == '{"k":"a","timer":"2024-01-01 00:00:01"}'
        stream.expect_reference()


class Bad(ps.BatchProcess):
    state = NUMBER
    output = NUMBER

    def __init__(self, deed: str) -> None:
        self.deed = deed

    def on_rows(self, rows: pl.DataFrame, state: pl.DataFrame) -> Any:
        old = rows.join(state, on="k", how="left", nulls_equal=True, maintain_order="left")
        count = pl.int_range(pl.len()).over("k") + 1 + pl.col("n").fill_null(0)
        made = old.select("k", count.alias("n"), "__row")
        after = made.group_by("k").agg(pl.col("n").max())
        if 13 not in rows["x"]:
            return made, after
        deeds: dict[str, Any] = {
            "nothing": lambda: None,
            "no frame": lambda: (made, 1),
            "columns": lambda: (made.drop("n"), after),
            "type": lambda: (made.with_columns(pl.lit("x").alias("n")), after),
            "row": lambda: (made.with_columns(pl.col("__row") + 99), after),
            "other key": lambda: (made.with_columns(pl.lit("other").alias("k")), after),
            "strange key": lambda: (made, after.with_columns(pl.lit("other").alias("k"))),
            "key twice": lambda: (made, pl.concat([after, after])),
        }
        return deeds[self.deed]()


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        ("nothing", "TypeError: on_rows must return results and states; got NoneType"),
        ("no frame", "TypeError: the states must be a Polars DataFrame; they are int"),
        ("columns", "ValueError: the results must have the columns"),
        ("type", "InvalidOperationError: conversion from `str` to `i64` failed"),
        ("row", "ValueError: the results have a '__row' that is not that of a row"),
        ("other key", "ValueError: a result has another key than its row"),
        ("strange key", "ValueError: the states have a key that no row has"),
        ("key twice", "ValueError: the states have a key twice"),
    ],
)
def test_a_batch_that_does_not_fit_is_cut_down_to_the_row_to_blame(deed: str, reason: str) -> None:
    given = rows(*[("abc"[i % 3], 13 if i == 31 else i % 10, i) for i in range(60)])
    with TestStream(source().process(Bad(deed), by="k").write_memory()) as stream:
        stream.add(given)
        stream.finish()
        stream.expect_reference()
        (letter,) = stream.dead_letters().to_dicts()
        assert letter["reason"].startswith(f"on_rows: {reason}")
        assert letter["reason"].endswith("; key: k='b'")
        assert '"x":13' in letter["row"]
        assert len(stream.rows()) == 59


class NoRow(ps.Process):
    state = NUMBER
    output = NUMBER


class NoTypes(ps.Process):
    def on_row(self, row: Row, context: ps.Context) -> Iterable[Row] | None:
        return None


class Odd(NoTypes):
    state = {"k": pl.Int64, "__s": pl.Int64, "o": pl.Object, "i": 5}  # noqa: RUF012
    output = {"k": pl.Int64, "l": pl.List(pl.Object)}  # noqa: RUF012


@pytest.mark.parametrize(
    ("processor", "by", "problems"),
    [
        (Count, "k", ["process: Count is a class; give an object of it: Count()"]),
        (5, "k", ["process: an object of a class that derives from ps.Process or ps.BatchProcess"
                  " is needed; got int"]),
        (Count(), "q", ["process Count by: unknown column 'q'; columns: k, x, ts"]),
        (Count(), ["k", "k"], ["process Count by: column 'k' is given twice"]),
        (NoRow(), "k", ["process NoRow: on_row is not defined"]),
        (NoTypes(), "k", [
            "process NoTypes: declare 'state' as a dict of names and Polars types",
            "process NoTypes: declare 'output' as a dict of names and Polars types",
        ]),
        (Odd(), "k", [
            "process Odd: state column 'k' clashes with a key column",
            "process Odd: state column '__s' has no name of its own; names that begin with '__' "
            "are reserved",
            "process Odd: state column 'o' has no Arrow type; it is Object",
            "process Odd: state column 'i' has no Arrow type; it is 5",
            "process Odd: output column 'k' clashes with a key column",
            "process Odd: output column 'l' has no Arrow type; it is List(Object)",
        ]),
    ],
)  # fmt: skip
def test_mistakes_are_found_when_the_query_is_built(
    processor: Any, by: Any, problems: list[str]
) -> None:
    with pytest.raises(QueryError) as caught:
        source().process(processor, by=by).write_memory()
    assert list(caught.value.problems) == problems


def test_an_array_is_no_key() -> None:
    stream = source(schema={"k": pl.Array(pl.Int64, 2), "ts": pl.Datetime("us")})
    with pytest.raises(QueryError, match="a key has no arrays in it"):
        stream.process(Count(), by="k").write_memory()


def named(kind: type, name: str) -> Any:
    kind.__name__ = kind.__qualname__ = name
    return kind


class Other(Count):
    def on_row(self, row: Row, context: ps.Context) -> list[Row]:
        return [{"n": 7}]


class Wider(Count):
    state = {"n": pl.Int64, "m": pl.Int64}  # noqa: RUF012  # read only


@pytest.mark.parametrize(
    ("processor", "fact"),
    [
        (Count(2), r"process-0 settings was \{'limit': '1'\} and is now \{'limit': '2'\}"),
        (named(Other, "Count")(), "process-0 code was"),
        (named(Wider, "Count")(), r"process-0 state was \{'n': 'Int64'\} and is now"),
        (Speed(), "process-0 class was 'Count' and is now 'Speed'"),
    ],
)
def test_a_changed_class_is_refused_by_name(tmp_path: Path, processor: Any, fact: str) -> None:
    with TestStream(source().process(Count(), by="k").write_memory(), tmp_path) as stream:
        stream.add(rows(("a", 1, 0)))
    with TestStream(source().process(Count(), by="k").write_memory(), tmp_path) as stream:
        stream.add(rows(("a", 1, 1)))
    with pytest.raises(CheckpointError, match=fact):
        TestStream(source().process(processor, by="k").write_memory(), tmp_path)


def test_state_is_open(tmp_path: Path) -> None:
    made = source(delay="5 seconds").process(Sessions(), by="k").write_memory()
    with TestStream(made, tmp_path, instances=2) as stream:
        for second in range(9):
            stream.add(rows(("a", 1, second), ("b", 2, second)))
        stream.add(rows(("c", 3, 9)))
        root = place_of(tmp_path) / "penstock"
        assert operators(root)["process-0"].by == ("k",)
        assert read_state(root).to_dicts() == [
            {"k": "a", "rows": 4, "total": 4, "__timers": [at(13)], "__waiting": 5},
            {"k": "b", "rows": 4, "total": 8, "__timers": [at(13)], "__waiting": 5},
            {"k": "c", "rows": None, "total": None, "__timers": [], "__waiting": 1},
        ]
        assert read_state(root, key="b")["total"].to_list() == [8]
        stream.finish()
        assert read_state(root).height == 0


class Keeps(ps.Process):
    """Leaves something behind for every key, and a timer that is moved by each row."""

    state = NUMBER
    output = NUMBER

    def on_row(self, row: Row, context: ps.Context) -> None:
        context.state = {"n": row["x"]}
        context.clear_timers()
        context.set_timer(context.time + timedelta(hours=1))

    def on_timer(self, time: datetime, context: ps.Context) -> None:
        context.state = None


def arriving(kernel: ProcessKernel, keys: range, second: int) -> pl.DataFrame:
    frame = pl.DataFrame({"k": keys, "x": keys}).select(
        pl.col("k").cast(pl.String), "x", pl.lit(at(second)).alias("ts")
    )
    place = [
        pl.lit(second * 1_000_000, dtype=pl.Int64).alias(TIME),
        pl.lit(0, dtype=pl.Int32).alias(SOURCE),
    ]
    rows = frame.with_columns(*place, pl.int_range(pl.len(), dtype=pl.Int64).alias(POSITION))
    return kernel.prepare(rows.lazy()).collect()


def test_an_epoch_looks_only_at_the_keys_that_have_something_to_do() -> None:
    node = source().process(Keeps(), by="k")._node
    assert isinstance(node, Process)
    looked: dict[int, int] = {}
    for kept in (1_000, 50_000):
        kernel = RowProcessKernel(node, 1, ordered=False)
        state = kernel.restore([], NOT_STARTED)
        state = kernel.advance(state, [arriving(kernel, range(kept), 0)], 1).state
        heights: list[int] = []
        work, find = RowProcessKernel.work, KeyedRows.find

        def working(self: RowProcessKernel, turn: Turn) -> Made:
            heights.append(turn.keys.height + turn.rows.height)  # noqa: B023
            return work(self, turn)  # noqa: B023

        def finding(self: KeyedRows, keys: pl.DataFrame) -> pl.DataFrame:
            heights.append(keys.height)  # noqa: B023
            return find(self, keys)  # noqa: B023

        with (
            patch.object(RowProcessKernel, "work", working),
            patch.object(KeyedRows, "find", finding),
        ):
            for epoch in range(1, 40):
                keys = range(100 * (epoch % 10), 100 * (epoch % 10 + 1))
                done = kernel.advance(state, [arriving(kernel, keys, epoch)], epoch * 1_000_000 + 1)
                assert done.kept.height == 100
                state = done.state
                assert len(state.states.blocks) + len(state.timers) <= 20
        assert state.states.live == kept
        looked[kept] = sum(heights)
    assert looked[50_000] == looked[1_000] <= 300 * 40


def test_keys_that_are_gone_leave_nothing_behind() -> None:
    node = source().process(Keeps(), by="k")._node
    assert isinstance(node, Process)
    kernel = RowProcessKernel(node, 1, ordered=False)
    state, kept = kernel.restore([], NOT_STARTED), []
    for hour in range(5):
        second = 7200 * hour
        fresh = arriving(kernel, range(1_000 * hour, 1_000 * (hour + 1)), second)
        done = kernel.advance(state, [fresh], second * 1_000_000 + 1)
        state = done.state
        kept.append(done.kept)
    assert state.states.live == 1_000
    assert sum(run.rows.height for run in state.timers) == 1_000
    mark = state.watermark
    assert kernel.compact(kept, mark, whole=True).height == 1_000
    assert kernel.compact(kept, mark).height == 5_000, "an older delta may know of the others"
    assert kernel.compact(kept[1:], mark).height == 5_000
    again = kernel.restore([kernel.compact(kept, mark)], mark)
    assert again.states.everything().sort("k").equals(state.states.everything().sort("k"))
