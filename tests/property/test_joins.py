"""Joins and products: cut, split, moved and crashed in any way, they give the reference's rows.

And over all rows at once they give what a database gives.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.compiler import STRATEGIES
from penstock.operators.pairs import blocks
from penstock.operators.pairs import results as pairs
from penstock.operators.stores import bands
from penstock.operators.stores.key_runs import Hashes, hash_keys
from penstock.query.stream import Sinks, Stream
from penstock.testing.compare import difference
from penstock.testing.streams import TestStream
from tests.property.queries import COLUMNS, QueryText
from tests.property.strategies import INSTANCES, Row, Scenario, arrivals, events, several

few = settings(max_examples=max(1, settings().max_examples // 3))


def mixed_up(keys: pl.DataFrame) -> Hashes:
    """Return hashes of which there are only four, so that different keys share one."""
    return hash_keys(keys) << np.uint64(62)


TIGHT: tuple[tuple[Any, str, Any], ...] = (
    (pairs, "BLOCK", 3),
    (bands, "TIME_BITS", 22),
    (bands, "hash_keys", mixed_up),
    (blocks, "ROWS", 3),
    (blocks, "FEW", 0),
)
"""Limits that only large runs would reach, set so low that small ones do."""

STREAMS = ("source", "map", "filter", "renamed", "union", "explode", "aggregate", "narrow")
KEYS: tuple[dict[str, Any], ...] = (
    {"on": "k"},
    {"on": ["k", "g"]},
    {"on": "y"},
    {"left_on": "g", "right_on": "g"},
    {"left_on": "g", "right_on": "x"},
    {"left_on": ["k", "x"], "right_on": ["s", "g"]},
)
SPANS = (timedelta(microseconds=1), "500 ms", "2 seconds", "7 seconds", "1 hour", "7000 days")
COUNTS = (1, 2, 5, 40)
JOIN_WHERE = (None, "x < x_right", "d is null", "cast(s as bigint) < x_right", pl.lit(True))
PRODUCT_WHERE = ("x < x_right", "k = k_right or x > 3", "cast(s as bigint) < x_right", "g = 1")


@dataclass(frozen=True)
class PairQuery(QueryText):
    """A join or a product of two streams, or of one with itself."""

    left: str = "source"
    right: str | None = None
    join: tuple[tuple[str, Any], ...] | None = None
    within: Any = "2 seconds"
    where: Any = None
    how: str = "inner"
    self_pairs: bool | None = None
    ordered: bool = False
    wanted: tuple[str, ...] | None = None
    then: bool = False

    def build(self, folder: Path) -> Sinks:
        """Return the query."""
        sources = [
            ps.from_rows([], schema=COLUMNS, time="ts", name=f"s{n}", delay=timedelta(seconds=d))
            for n, d in enumerate(self.delays)
        ]
        left = stream_of(self.left, sources[0], sources[-1])
        right = left if self.right is None else stream_of(self.right, sources[-1], sources[0])
        if self.join is None:
            result = left.product(right, where=self.where, within=self.within,
                                  self_pairs=self.self_pairs)  # fmt: skip
        else:
            result = left.join(right, where=self.where, within=self.within, how=self.how,
                               self_pairs=self.self_pairs, **dict(self.join))  # fmt: skip
        if self.wanted:
            result = result.select(*[name for name in self.wanted if name in result.schema], n="1")
        made = result.write_memory("pairs", ordered=self.ordered)
        if not self.then:
            return made
        counted = result.aggregate(window=ps.tumbling("3 seconds"), n="count(*)")
        return made.also(counted.write_memory("counted"))


def stream_of(form: str, mine: Stream, other: Stream) -> Stream:
    """Return a stream with the columns of `COLUMNS` (or fewer) in some form."""
    match form:
        case "map":
            return mine.map(x="x + 1", g=pl.col("g") % 2)
        case "filter":
            return mine.filter("x < 60 or x is null")
        case "renamed":
            return mine.select("ts", "s", "d", "x", "y", "g", "k")
        case "union":
            return mine.union(other)
        case "explode":
            return mine.map(x=pl.concat_list("x", "g")).explode("x")
        case "aggregate":
            made = mine.aggregate(by="k", window=ps.sliding("4s", every="2s"), x="max(x)",
                                  g="min(g)", y="max(y)", s="max(s)", d="min(d)")  # fmt: skip
            return made.select("k", "g", "x", "y", "s", "d", ts="window_end")
        case "narrow":
            return mine.map(g=pl.col("g").cast(pl.Int16), x=pl.col("x").cast(pl.Int8))
    return mine


@st.composite
def pair_queries(draw: st.DrawFn) -> PairQuery:
    """Draw a join or a product."""
    is_join = draw(st.booleans())
    itself = draw(st.sampled_from([False, False, True]))
    left = draw(st.sampled_from(STREAMS))
    right = None if itself else draw(st.sampled_from(STREAMS))
    keys = draw(st.sampled_from(KEYS)) if is_join else None
    apart = itself and keys is not None and keys.get("left_on") != keys.get("right_on")
    by_count = draw(st.booleans()) and not apart
    within = draw(
        st.sampled_from(COUNTS).map(ps.count_window) if by_count else st.sampled_from(SPANS)
    )
    names = ("k", "x", "ts_right", "g_right", "d")
    return PairQuery(
        delays=draw(st.sampled_from([(0, 0), (2, 5), (20, 2), (5,)])),
        left=left,
        right=right,
        join=tuple(keys.items()) if keys is not None else None,
        within=within,
        where=draw(st.sampled_from(JOIN_WHERE if is_join else PRODUCT_WHERE)),
        how=draw(st.sampled_from(["inner", "left", "full"])) if not by_count else "inner",
        self_pairs=None if by_count else draw(st.sampled_from([None, True])),
        ordered=draw(st.booleans()),
        wanted=draw(st.none() | st.just(names)),
        then=draw(st.booleans()),
    )


@st.composite
def pair_scenarios(draw: st.DrawFn) -> Scenario:
    """Draw a join or a product, rows for its sources, and a run."""
    query = draw(pair_queries())
    return Scenario(
        query=query,
        rows=tuple(draw(arrivals(max_size=24)) for _ in query.delays),
        events=draw(several(events, 7)),
        finish=draw(st.sampled_from([False, True, True])),
        instances=draw(INSTANCES),
        strategy=draw(st.sampled_from(STRATEGIES)),
        buckets=draw(st.sampled_from([1024, 7, 9])),
        tight=draw(st.booleans()),
        workers=draw(st.integers(1, 3)),
    )


@given(scenario=pair_scenarios(), tight=st.booleans())
def test_pairs_agree_with_the_reference(scenario: Scenario, tight: bool) -> None:
    with ExitStack() as stack:
        for module, name, value in TIGHT if tight else ():
            stack.enter_context(patch.object(module, name, value))
        scenario.check()


SQL = """
    select l.k, l.x, l.ts, r.k as k_right, r.x as x_right, r.ts as ts_right
    from l {how} join r on {on} and abs(epoch_us(l.ts) - epoch_us(r.ts)) < 5000000
"""
small = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 3), st.integers(0, 40)), max_size=25
)


def frame_of(rows: list[tuple[str | None, int, int]]) -> pl.DataFrame:
    schema = {"k": pl.String(), "x": pl.Int64(), "ts": pl.Datetime("us")}
    start = ps.at("2024-01-01")
    timed = [(k, x, start + timedelta(seconds=t)) for k, x, t in sorted(rows, key=lambda r: r[2])]
    return pl.DataFrame(timed, schema=schema, orient="row")


@few
@given(
    left=small, right=small, how=st.sampled_from(["inner", "left", "full"]), cut=st.integers(0, 25)
)
@pytest.mark.parametrize("where", [None, "x < x_right"])
def test_joins_of_everything_are_those_of_a_database(
    left: list[Any], right: list[Any], how: str, cut: int, where: str | None
) -> None:
    one, two = frame_of(left), frame_of(right)
    a, b = (
        ps.from_rows([], schema=dict(f.schema), time="ts", name=n, delay="1h")
        for n, f in (("a", one), ("b", two))
    )
    query = a.join(b, left_on="k", right_on="k", within="5 seconds", how=how, where=where)
    on = "l.k = r.k" + (" and l.x < r.x" if where else "")
    expected = from_database(one, two, how="full outer" if how == "full" else how, on=on)
    found = run(query, {"a": one.to_dicts(), "b": two.to_dicts()}, cut)
    assert not difference(found, expected)


@few
@given(left=small, right=small, cut=st.integers(0, 25))
def test_products_of_everything_are_those_of_a_database(
    left: list[Any], right: list[Any], cut: int
) -> None:
    one, two = frame_of(left), frame_of(right)
    a, b = (
        ps.from_rows([], schema=dict(f.schema), time="ts", name=n, delay="1h")
        for n, f in (("a", one), ("b", two))
    )
    query = a.product(b, within="5 seconds", where="x = x_right + 1 or k < k_right")
    on = "(l.x = r.x + 1 or l.k < r.k)"
    expected = from_database(one, two, how="inner", on=on)
    found = run(query, {"a": one.to_dicts(), "b": two.to_dicts()}, cut)
    assert not difference(found, expected)


def from_database(one: pl.DataFrame, two: pl.DataFrame, *, how: str, on: str) -> list[Row]:
    with duckdb.connect() as database:
        database.register("l", one)
        database.register("r", two)
        found: list[Row] = database.sql(SQL.format(how=how, on=on)).pl().to_dicts()
        return found


def run(query: Stream, rows: dict[int | str, list[Row]], cut: int) -> list[dict[str, Any]]:
    with TestStream(query.write_memory(), instances=2) as stream:
        for part in (slice(cut), slice(cut, None)):
            stream.add({name: found[part] for name, found in rows.items()})
        stream.finish()
        return stream.rows()
