"""Routes: every row goes to every instance that needs it, once, by whatever route."""

from __future__ import annotations

import pickle
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.base.config import Config
from penstock.base.hashing import BUCKET, bucket_of
from penstock.compiler import compile_query
from penstock.driver.epoch import make_plan
from penstock.exchange.routes import ByKey, ByLineage, OnGrid, Spread, choose_routes
from penstock.operators.pairs.cells import Cells
from penstock.operators.stores.chunks import PANE
from penstock.operators.windows.panes import Panes
from penstock.plan.buckets import BucketMap, BucketSet
from penstock.plan.grid import Grid
from penstock.plan.route import Route
from penstock.plan.tails import Lineage, Tail, held_by, lineages_of
from penstock.query.stream import Stream

BUCKETS = 9
GRID = Grid(rows=3, columns=3)
PANES = Panes(width_us=1, per_window=4, step=2)
SCHEMA: dict[str, Any] = {"k": pl.String, "x": pl.Int64, "ts": pl.Datetime("us")}
WAYS = [("row", "column"), ("cross",), ("all", "all")]

maps = st.integers(1, 5).flatmap(
    lambda instances: st.lists(
        st.integers(0, instances - 1), min_size=BUCKETS, max_size=BUCKETS
    ).map(lambda owners: BucketMap(owners=tuple(owners), instances=instances))
)
names = st.lists(st.sampled_from(["a", "b", None, "", "ü", "c", "d"]), max_size=30)
keys = st.sampled_from([("k",), (), ("k", PANE)])


def frame(found: list[str | None]) -> pl.DataFrame:
    """Return rows with a key, a pane and a number."""
    count = len(found)
    columns = {"k": found, PANE: [i * 7 % 30 for i in range(count)], "n": range(count)}
    return pl.DataFrame(columns, schema={"k": pl.String, PANE: pl.Int64, "n": pl.Int64})


def bucket_list(rows: pl.DataFrame, by: tuple[str, ...]) -> list[int]:
    if not by:
        return [0] * rows.height
    return rows.select(bucket_of(by, BUCKETS, rows.schema))[BUCKET].to_list()


@given(found=names, by=keys, owners=maps)
def test_a_row_goes_to_the_owner_of_its_key(
    found: list[str | None], by: tuple[str, ...], owners: BucketMap
) -> None:
    rows, route = frame(found), ByKey(keys=by, owners=owners)
    parts = route.split(rows)
    assert len(parts) == owners.instances
    assert sorted(n for part in parts for n in part["n"]) == list(range(rows.height))
    for instance, part in enumerate(parts):
        assert part.columns == rows.columns
        assert part["n"].is_sorted()
        assert all(owners.owners[bucket] == instance for bucket in bucket_list(part, by))


@given(found=names, by=keys, owners=maps, cut=st.sets(st.integers(0, BUCKETS - 1)))
def test_shares_of_an_instance_divide_its_rows(
    found: list[str | None], by: tuple[str, ...], owners: BucketMap, cut: set[int]
) -> None:
    rows, route = frame(found), ByKey(keys=by, owners=owners)
    (main,) = lineages_of("a", owners, ())
    mine = BucketSet.of(cut)
    for instance, part in enumerate(route.split(rows)):
        own = owners.owned_by(instance)
        both = [route.rows_for(part, main, buckets) for buckets in (own & mine, own - mine)]
        assert sorted(n for some in both for n in some["n"]) == part["n"].to_list()
        assert all(bucket in mine for bucket in bucket_list(both[0], by))


@given(owners=maps, way=st.sampled_from(WAYS))
def test_two_rows_meet_at_the_owner_of_one_cell(owners: BucketMap, way: tuple[str, ...]) -> None:
    rows, by = pl.DataFrame({"n": range(12)}), ("n",)
    sent = [OnGrid(keys=by, way=port, grid=GRID, owners=owners).split(rows) for port in way]
    met: list[tuple[int, int]] = []
    for instance in range(owners.instances):
        cells = Cells(GRID, owners.owned_by(instance), [by, by])
        left = cells.placed(sent[0][instance], (0, 1))
        right = cells.placed(sent[-1][instance], (0, 1))
        for i, j in cells.parts(left, right):
            met += [(a, b) for a in left["n"].gather(i) for b in right["n"].gather(j)]
    assert sorted(met) == [(a, b) for a in range(12) for b in range(12)]


@given(owners=maps, way=st.sampled_from(["row", "column", "cross", "all"]))
def test_a_grid_sends_a_row_to_an_instance_once(owners: BucketMap, way: str) -> None:
    rows = pl.DataFrame({"n": range(12)})
    parts = OnGrid(keys=("n",), way=way, grid=GRID, owners=owners).split(rows)
    assert len(parts) == owners.instances
    assert all(part["n"].is_unique().all() and part["n"].is_sorted() for part in parts)
    assert {n for part in parts for n in part["n"]} == set(range(12))


weights = st.lists(
    st.one_of(st.integers(0, 5), st.floats(0, 1e6, allow_nan=False)), min_size=1, max_size=9
).filter(lambda found: sum(found) > 0)


@given(height=st.integers(0, 300), given_weights=weights)
def test_spread_keeps_order_and_follows_weights(height: int, given_weights: list[float]) -> None:
    rows = pl.DataFrame({"n": range(height)}, schema={"n": pl.Int64})
    parts = Spread(weights=tuple(given_weights)).split(rows)
    assert [n for part in parts for n in part["n"]] == list(range(height))
    whole = sum(map(Fraction, given_weights))
    for weight, part in zip(given_weights, parts, strict=True):
        assert abs(part.height - height * Fraction(weight) / whole) <= 1 + Fraction(1, 10**6)
        assert weight > 0 or part.is_empty()


@given(height=st.integers(0, 300), instances=st.integers(1, 9))
def test_equal_weights_give_equal_parts(height: int, instances: int) -> None:
    rows = pl.DataFrame({"n": range(height)}, schema={"n": pl.Int64})
    heights = [part.height for part in Spread(weights=(1.0,) * instances).split(rows)]
    assert max(heights) - min(heights) <= 1


@pytest.mark.parametrize("wrong", [(), (0.0, 0.0), (1.0, -1.0), (float("nan"),), (float("inf"),)])
def test_weights_that_say_nothing_are_refused(wrong: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="weights are 0 or more"):
        Spread(weights=wrong)


@st.composite
def some_tails(draw: st.DrawFn) -> tuple[BucketMap, list[Tail]]:
    """Draw a bucket map and tails of buckets that have moved, one after the other."""
    owners = draw(maps)
    tails, switch = [], 0
    for epoch in range(draw(st.integers(1, 3))):
        switch += 2 * draw(st.integers(1, 5))
        who = st.integers(0, owners.instances - 1)
        held = draw(st.dictionaries(st.integers(0, BUCKETS - 1), who, min_size=1))
        tails.append(
            Tail(
                operator="a", epoch=epoch, before_us=switch, until_us=switch + 2, held=held_by(held)
            )
        )
    return owners, tails


@given(found=names, by=keys, drawn=some_tails())
def test_a_row_goes_once_to_each_instance_with_a_window_of_it(
    found: list[str | None], by: tuple[str, ...], drawn: tuple[BucketMap, list[Tail]]
) -> None:
    owners, tails = drawn
    lineages = lineages_of("a", owners, tails)
    rows = frame(found)
    route = ByLineage(keys=by, lineages=lineages, instances=owners.instances, panes=PANES)
    parts = route.split(rows)
    buckets, panes = bucket_list(rows, by), rows[PANE].to_list()
    for instance, part in enumerate(parts):
        assert part["n"].is_unique().all()
        assert part["n"].is_sorted()
        for n in range(rows.height):
            needing = [
                lineage
                for lineage in lineages
                if lineage.owners[buckets[n]] == instance
                and has_window(lineage, buckets[n], panes[n])
            ]
            got = [lineage for lineage in lineages if n in taken(route, part, lineage, instance)]
            assert n in part["n"] or not needing
            assert all(lineage in got for lineage in needing)


def taken(route: Route, part: pl.DataFrame, lineage: Lineage, instance: int) -> list[int]:
    numbers: list[int] = route.rows_for(part, lineage, lineage.owned_by(instance))["n"].to_list()
    return numbers


def has_window(lineage: Lineage, bucket: int, pane: int) -> bool:
    """Return whether one of the windows of a pane, four long and every two, is the lineage's."""
    starts = [start for start in range(-40, 60, 2) if start <= pane < start + 4]
    since = lineage.since_us.get(bucket, -1000)
    before = 1000 if lineage.before_us is None else lineage.before_us
    return any(since <= start < before for start in starts)


def source(name: str = "s") -> Stream:
    return ps.from_rows([], schema=SCHEMA, time="ts", name=name)


def test_every_edge_has_one_route_of_its_kind() -> None:
    window = ps.sliding("4 seconds", every="2 seconds")
    grouped = source().aggregate(by="k", window=window, x="sum(x)")
    out = grouped.product(grouped, within="1 hour", where="x < x_right").write_memory()
    more = source("t").filter("x > 1").write_memory("n", ordered=True)
    query = compile_query(out.also(more).sinks, instances=2, buckets=BUCKETS)
    split = compile_query(more.sinks, instances=2, buckets=BUCKETS, strategy="operator-cloud")
    tail = Tail(operator="aggregate-0", epoch=1, before_us=4, until_us=6, held=((0, 2, 0),))

    def kinds(compiled: Any, *tails: Tail) -> list[str]:
        even = {s.id: compiled.owners(s.id) for s in compiled.subqueries}
        routes = choose_routes(compiled, even, tails)
        assert set(routes) == {edge.id for edge in compiled.edges}
        return sorted(type(route).__name__ for route in routes.values())

    assert kinds(query) == ["ByKey", "ByKey", "OnGrid"]
    assert kinds(query, tail) == ["ByKey", "ByLineage", "OnGrid"]
    assert kinds(split) == ["ByKey", "Spread"]


def test_weights_are_those_of_a_subquery() -> None:
    query = compile_query(
        source().filter("x > 1").write_memory().sinks, instances=3, strategy="operator-cloud"
    )
    even = {s.id: query.owners(s.id) for s in query.subqueries}
    routes = choose_routes(query, even, (), {1: (2.0, 0.0, 1.0)})
    assert [routes[edge.id] for edge in query.edges_into(1)] == [Spread(weights=(2.0, 0.0, 1.0))]
    assert [routes[edge.id] for edge in query.edges_into(2)] == [Spread(weights=(1.0, 1.0, 1.0))]
    with pytest.raises(ValueError, match="3 instances need a weight each"):
        choose_routes(query, even, (), {1: (1.0,)})


def test_routes_are_small_in_a_pickled_plan(tmp_path: Path) -> None:
    """Ten edges into one head are not ten copies of its map."""
    window = ps.tumbling("1 minute")
    parts = [source().aggregate(by="k", window=window, n=f"sum(x + {i})") for i in range(10)]
    whole = parts[0].union(*parts[1:]).aggregate(by="k", window=window, n="sum(n)")
    query = compile_query(whole.write_memory().sinks, instances=4, buckets=1024)
    plan = make_plan(
        query, None, epoch=0, checkpoint=str(tmp_path), config=Config(), sinks={}, now=0.0
    )
    data, bare = pickle.dumps(plan), pickle.dumps(replace(plan, routes={}))
    last = len(query.subqueries) - 1
    assert len(query.edges_into(last)) == 10
    assert pickle.loads(data).routes == plan.routes
    assert len(data) - len(bare) < len(pickle.dumps(plan.maps[last]))
