"""Processes: however a run is cut, split, moved and crashed, a user's class sees one story."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.compiler import STRATEGIES
from penstock.operators.stores import keyed_rows
from penstock.query.stream import Sinks, Stream
from tests.property.queries import COLUMNS, MAPS
from tests.property.strategies import (
    INSTANCES,
    Scenario,
    arrivals,
    events,
    several,
)

Row = dict[str, Any]
OUTPUT = {"n": pl.Int64, "at": pl.Datetime("us"), "what": pl.String}
NUMBER = {"n": pl.Int64}
SMALL = {"n": pl.Int8, "f": pl.Float64}
DEEP = {"texts": pl.List(pl.String), "best": pl.Struct({"x": pl.Int32, "d": pl.Duration("ms")})}


def result(n: int | None, context: ps.Context, what: str = "") -> Row:
    return {"n": n, "at": context.time, "what": what}


class Total(ps.Process):
    """Adds up; forgets where x is null; a state that is changed in place."""

    state = NUMBER
    output = OUTPUT

    def on_row(self, row: Row, context: ps.Context) -> Iterator[Row]:
        if row["x"] is None:
            context.state = None
        elif context.state is None:
            context.state = {"n": row["x"]}
        else:
            context.state["n"] = 3 * context.state["n"] % 1009 + row["x"]
        yield result(context.state["n"] if context.state else None, context)


class Last(ps.Process):
    """Keeps the last texts; a state with a list and a struct."""

    state = DEEP
    output = OUTPUT

    def on_row(self, row: Row, context: ps.Context) -> list[Row]:
        state = context.state or {"texts": [], "best": {"x": 0, "d": None}}
        state["texts"] = [*state["texts"], row["s"]][-3:]
        if (row["x"] or 0) > state["best"]["x"]:
            state["best"] = {"x": row["x"], "d": row["d"]}
        context.state = state
        return [result(state["best"]["x"], context, "".join(map(str, state["texts"])))]


class Sessions(ps.Process):
    """Counts rows that follow one another within four seconds."""

    state = NUMBER
    output = OUTPUT

    def on_row(self, row: Row, context: ps.Context) -> None:
        context.state = {"n": (context.state["n"] if context.state else 0) + 1}
        context.clear_timers()
        context.set_timer(context.time + timedelta(seconds=4))

    def on_timer(self, time: datetime, context: ps.Context) -> Iterator[Row]:
        assert time == context.time
        assert context.state is not None
        yield result(context.state["n"], context, "session")
        context.state = None


class Ticks(ps.Process):
    """Says every three seconds, for a while, how often it was called; timers set timers."""

    state = NUMBER
    output = OUTPUT

    def on_row(self, row: Row, context: ps.Context) -> list[Row]:
        context.state = {"n": (context.state["n"] if context.state else 0) + 1}
        for seconds in (row["x"] or 0, 3):  # some have passed, some are now, some are far
            context.set_timer(context.time + timedelta(seconds=seconds))
        return [result(context.state["n"], context, f"{len(context.timers)} timers")]

    def on_timer(self, time: datetime, context: ps.Context) -> list[Row]:
        n = (context.state["n"] if context.state else 0) + 1
        if n % 7:
            context.set_timer(time + timedelta(seconds=3))
            if n % 11 == 0:  # less often than they end
                context.set_timer(time + timedelta(seconds=1))
        context.state = {"n": n}
        return [result(n, context, "tick")]


class Fails(ps.Process):
    """Fails in every way that a call can."""

    state = SMALL
    output = OUTPUT

    def on_row(self, row: Row, context: ps.Context) -> Any:
        n = context.state["n"] if context.state else 0
        context.set_timer(context.time + timedelta(seconds=row["g"] or 0))
        context.state = {"n": n + (row["x"] or 0), "f": n}  # too large for an Int8, now and then
        if row["s"] == "z":
            raise ValueError("z")
        if row["x"] == 4:
            return [result(n, context), {"n": 1}]
        if row["x"] == -7:
            return {"n": 1}
        if row["s"] == "-3":
            context.state = {"n": 1}
        return [result(n, context, str(context.state.get("f")))]

    def on_timer(self, time: datetime, context: ps.Context) -> Any:
        n = context.state["n"] if context.state else 0
        context.set_timer(time + timedelta(seconds=5 if n % 2 else 0))
        if n % 3 == 0:
            raise KeyError(n)
        context.clear_timers()
        return [result(n, context, "timer")]


class Sums(ps.BatchProcess):
    """Running totals of all keys at once, since x was last null."""

    state = NUMBER
    output = NUMBER

    def __init__(self, *by: str) -> None:
        self.by = list(by)

    def on_rows(self, rows: pl.DataFrame, state: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        if "z" in rows["s"]:
            raise ValueError("z")
        by: list[Any] = self.by or [pl.lit(0).alias("one")]
        known = (
            rows.join(state, on=self.by, how="left", nulls_equal=True, maintain_order="left")
            if self.by
            else rows.with_columns(pl.lit(state["n"].first(), dtype=pl.Int64).alias("n"))
        )
        part = known.with_columns(pl.col("x").is_null().cum_sum().over(by).alias("part"))
        before = pl.when(pl.col("part") == 0).then(pl.col("n").fill_null(0)).otherwise(0)
        sums = pl.col("x").fill_null(0).cum_sum().over([*by, pl.col("part")])
        results = part.with_columns((before + sums).alias("n"))
        last = results.group_by(by, maintain_order=True).agg(pl.col("n", "x").last())
        kept = last.filter(pl.col("x").is_not_null()).select(*self.by, "n")
        return results.select(*self.by, "n", "__row"), kept


class Strange(Sums):
    """Returns what does not fit, for some rows."""

    def on_rows(self, rows: pl.DataFrame, state: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        results, after = super().on_rows(rows, state)
        if 4 in rows["x"]:
            results = results.with_columns(pl.col("__row") + rows.height)
        if 60 in rows["x"]:
            after = pl.concat([after, after, after.clear(1)])
        if -7 in rows["x"]:
            after = after.drop("n")
        return results, after


ROWS: dict[str, type[ps.Process]] = {
    "total": Total, "last": Last, "sessions": Sessions, "ticks": Ticks, "fails": Fails,
}  # fmt: skip
BATCHES: dict[str, type[Sums]] = {"sums": Sums, "strange": Strange}
KEYS = st.sampled_from([("k",), ("g",), ("k", "g"), (), ("y",), ("ts",)])


@dataclass(frozen=True)
class Text:
    """A query: what comes in, a process on it, perhaps another on its results."""

    process: str
    by: tuple[str, ...] = ("k",)
    input: str = "plain"
    then: str = ""
    delays: tuple[int, int] = (2, 0)
    ordered: bool = False

    def build(self, folder: Path) -> Sinks:
        left, right = (
            ps.from_rows([], schema=COLUMNS, time="ts", name=f"s{i}", delay=timedelta(seconds=d))
            for i, d in enumerate(self.delays)
        )
        stream = self._input(left, right)
        made = stream.process(processor(self.process, self.by), by=self.by)
        return self._then(made).write_memory(ordered=self.ordered)

    def _input(self, left: Stream, right: Stream) -> Stream:
        if self.input == "union":
            return left.union(right.map(**MAPS["plus"]))
        if self.input == "strict":
            return left.map(**MAPS["strict"])
        if self.input == "results":
            return results_of(left)
        return left

    def _then(self, made: Stream) -> Stream:
        if self.then == "count":
            return made.aggregate(window=ps.tumbling("3s"), n="sum(n)", rows="count(*)")
        if self.then == "again":
            columns = {name: dtype for name, dtype in COLUMNS.items() if name not in self.by}
            empty = {name: pl.lit(None, dtype=dtype) for name, dtype in columns.items()}
            rows = made.select(*self.by, **(empty | {"x": "n"}))
            return rows.process(Total(), by=self.by[:1])
        return made


def processor(name: str, by: tuple[str, ...]) -> ps.Process | ps.BatchProcess:
    return BATCHES[name](*by) if name in BATCHES else ROWS[name]()


texts = st.builds(
    Text,
    process=st.sampled_from([*ROWS, *BATCHES]),
    by=KEYS,
    input=st.sampled_from(["plain", "plain", "union", "strict", "results"]),
    then=st.sampled_from(["", "", "count", "again"]),
    delays=st.tuples(st.sampled_from([0, 2, 5, 20]), st.sampled_from([0, 5])),
    ordered=st.booleans(),
)


@dataclass(frozen=True)
class Lookups:
    """A query: what comes in, a dedup or an enrich on it, perhaps an aggregate on its results."""

    process: str
    by: tuple[str, ...] = ("k",)
    input: str = "plain"
    within: int | None = None
    how: str = "left"
    then: str = ""
    delays: tuple[int, int] = (2, 0)
    ordered: bool = False

    def build(self, folder: Path) -> Sinks:
        left, right = (
            ps.from_rows([], schema=COLUMNS, time="ts", name=f"s{i}", delay=timedelta(seconds=d))
            for i, d in enumerate(self.delays)
        )
        stream = results_of(left) if self.input == "results" else left
        made = self._made(stream, right)
        if self.then == "count":
            made = made.aggregate(by="k", window=ps.tumbling("3s"), n="sum(x)", rows="count(*)")
        return made.write_memory(ordered=self.ordered)

    def _made(self, left: Stream, right: Stream) -> Stream:
        if self.process == "dedup":
            within = None if self.within is None else timedelta(seconds=self.within)
            return left.dedup(by=self.by, within=within)
        if self.process == "table":
            table = pl.DataFrame(TABLE).unique(self.by, maintain_order=True)
            return left.enrich(table, on=self.by, how=self.how)
        others = {"stream": right, "results": results_of(right), "itself": left}
        return left.enrich(others[self.process], on=self.by, how=self.how)


TABLE = {
    "k": ["a", "b", None, "d"],
    "g": [0, 1, 2, None],
    "y": [0.0, 2.5, -0.75, 1.0],
    "x": [7, None, 9, 11],
    "city": ["Oslo", "Rome", None, "Lima"],
}


def results_of(left: Stream) -> Stream:
    """Return a stream with many rows at one time, told apart by their columns alone."""
    grouped = left.aggregate(by=("k", "x", "s"), window=ps.tumbling("2s"), g="count(*)")
    return grouped.select(
        "k", "g", "x", "s", y=pl.col("x").cast(pl.Float64), ts="window_end",
        d=pl.lit(None, dtype=pl.Duration("us")),
    )  # fmt: skip


lookups = st.builds(
    Lookups,
    process=st.sampled_from(["dedup", "dedup", "table", "stream", "results", "itself"]),
    by=st.sampled_from([("k",), ("g",), ("k", "g"), ("y",)]),
    input=st.sampled_from(["plain", "plain", "results"]),
    within=st.sampled_from([None, 1, 3, 60]),
    how=st.sampled_from(["left", "inner"]),
    then=st.sampled_from(["", "", "count"]),
    delays=st.tuples(st.sampled_from([0, 2, 5, 20]), st.sampled_from([0, 5])),
    ordered=st.booleans(),
)


@st.composite
def lookup_scenarios(draw: st.DrawFn) -> Scenario:
    return Scenario(
        query=draw(lookups),  # type: ignore[arg-type]  # it builds as well as a QueryText does
        rows=(draw(arrivals()), draw(arrivals())),
        events=draw(several(events, 7)),
        finish=draw(st.booleans()),
        instances=draw(INSTANCES),
        strategy=draw(st.sampled_from(STRATEGIES)),
        buckets=draw(st.sampled_from([1024, 7])),
        tight=draw(st.booleans()),
        workers=draw(st.integers(1, 3)),
    )


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    return Scenario(
        query=draw(texts),  # type: ignore[arg-type]  # it builds as well as a QueryText does
        rows=(near(draw(arrivals())), near(draw(arrivals()))),
        events=draw(several(events, 7)),
        finish=draw(st.booleans()),
        instances=draw(INSTANCES),
        strategy=draw(st.sampled_from(STRATEGIES)),
        buckets=draw(st.sampled_from([1024, 7])),
        tight=draw(st.booleans()),
        workers=draw(st.integers(1, 3)),
    )


def near(rows: list[Row]) -> list[Row]:
    """Return rows without gaps of years, in which a timer of three seconds would never end."""
    shift, last, found = timedelta(), None, []
    for row in rows:
        ts = row["ts"]
        if ts is not None:
            if last is not None and ts - last > timedelta(hours=1):
                shift += ts - last - timedelta(minutes=1)
            last = ts if last is None else max(last, ts)
        found.append(row | {"ts": ts and ts - shift})
    return found


def check(scenario: Scenario) -> None:
    hidden = 0 if scenario.tight else keyed_rows._FEW
    with patch.object(keyed_rows, "_FEW", hidden):
        scenario.check()


@given(scenario=scenarios())
def test_processes_agree_with_the_reference(scenario: Scenario) -> None:
    check(scenario)


@given(scenario=lookup_scenarios())
def test_dedup_and_enrich_agree_with_the_reference(scenario: Scenario) -> None:
    check(scenario)
