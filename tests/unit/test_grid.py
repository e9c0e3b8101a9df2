"""The grid: any two rows meet in exactly one cell, wherever the cells are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.compiler import compile_query
from penstock.control.bounds import count_needed_for_memory
from penstock.control.elastic import Elastic
from penstock.control.view import SubqueryView
from penstock.exchange.placement import placement_of
from penstock.exchange.routes import OnGrid
from penstock.operators.kernel import SIDE
from penstock.plan.buckets import BucketMap, BucketSet
from penstock.plan.grid import Grid, bytes_held
from penstock.query.nodes import Node
from penstock.testing.runner import LocalRun

KEYS = ("n",)


class _Product(Node):
    """A node on a grid, with nothing else to it."""

    sent: tuple[str, ...] = ()

    def keys(self, port: int) -> tuple[str, ...] | None:
        return KEYS

    def grid(self, port: int) -> str:
        return self.sent[port]


@pytest.mark.parametrize("instances", range(1, 13))
@pytest.mark.parametrize("size", [1, 2, 5, 32])
def test_cells_are_spread_over_instances(size: int, instances: int) -> None:
    grid = Grid(rows=size, columns=size)
    owners = grid.owners(instances)
    counts = [len(list(owners.owned_by(i))) for i in range(instances)]
    assert sum(counts) == size * size
    if size == 32:
        assert max(counts) <= 1.5 * size * size / instances


@given(cells=st.sets(st.integers(0, 19)))
def test_rectangles_make_up_the_cells(cells: set[int]) -> None:
    grid = Grid(rows=4, columns=5)
    found = [
        row * 5 + column
        for rows, columns in grid.rectangles(BucketSet.of(cells))
        for row in rows
        for column in columns
    ]
    assert sorted(found) == sorted(cells)


maps = st.integers(1, 5).flatmap(
    lambda instances: st.lists(st.integers(0, instances - 1), min_size=9, max_size=9).map(
        lambda owners: BucketMap(owners=tuple(owners), instances=instances)
    )
)


@given(
    owners=maps,
    way=st.sampled_from([("row", "column"), ("cross",), ("all", "all")]),
    buckets=st.sampled_from([9, 15]),
)
def test_a_state_row_is_written_once_and_read_where_it_is_needed(
    owners: BucketMap, way: tuple[str, ...], buckets: int
) -> None:
    grid = Grid(rows=3, columns=3)
    node = _Product(inputs=tuple(Node() for _ in way), schema={})
    object.__setattr__(node, "sent", way)
    sides = [
        pl.DataFrame({"n": range(12)}).with_columns(pl.lit(side, dtype=pl.Int8).alias(SIDE))
        for side in range(len(way))
    ]
    places = [
        placement_of(node, buckets, owners.owned_by(instance))
        for instance in range(owners.instances)
    ]
    for side, rows in enumerate(sides):
        sent = OnGrid(keys=KEYS, way=way[side], grid=grid, owners=owners).split(rows)
        written = [p.select_written(part) for p, part in zip(places, sent, strict=True)]
        assert sorted(n for part in written for n in part["n"]) == list(range(12))
        for place, part in zip(places, sent, strict=True):
            assert part.filter(~place.bucket(part).is_in(list(place.reads))).is_empty()


def test_an_instance_is_charged_with_the_state_that_it_reads(tmp_path: Path) -> None:
    """State is stored by rows and columns of the grid, owners are those of cells."""
    schema: dict[str, Any] = {"x": pl.Int64, "ts": pl.Datetime("us")}
    left, right = (ps.from_rows([], schema=schema, time="ts", name=n) for n in ("left", "right"))
    out = left.product(right, within="1 hour", where="x < x_right").write_memory()
    query = compile_query(out.sinks, instances=4, buckets=16)
    run = LocalRun(query, tmp_path)
    at = ps.at("2024-01-01 00:00:00")
    frame = pl.DataFrame({"x": range(200), "ts": [at] * 200}, schema=schema)
    result = run.epoch({0: [frame], 1: [frame.head(0)]})
    assert result.statistics is not None
    load = next(s for s in result.statistics.subqueries if s.name.startswith("product"))
    whole = sum(load.bucket_bytes)
    assert whole > 0
    # Two by two blocks of cells: each instance has half of the grid's rows, and so of left's state.
    held = [instance.state_bytes for instance in load.instances]
    assert sum(held) == pytest.approx(2 * whole, rel=0.01)
    assert all(0.3 * whole < one < 0.7 * whole for one in held)
    in_memory = [instance.held_bytes for instance in load.instances]
    owners = run.driver.layout.maps[load.subquery]
    ways = query.nodes[query.stateful[0]].ways
    assert min(in_memory) > 200 * 16 / 2  # half of the rows, two columns of eight bytes each
    assert sum(bytes_held(owners, load.bucket_held_bytes, ways)) == pytest.approx(
        sum(in_memory), rel=0.01
    )


def test_memory_on_a_grid_counts_what_instances_hold_in_common() -> None:
    grid = Grid(rows=4, columns=4)
    view = SubqueryView(
        id=1,
        name="product-0",
        owners=grid.owners(1),
        instances=(),
        bucket_held_bytes=(100,) * 8 + (0,) * 8,
        ways=("row", "column"),
    )
    # One instance holds 800 bytes, two 600 each (all rows and half the columns), four 400.
    assert [
        count_needed_for_memory(view, Elastic(max=16, memory_bytes=n)) for n in (800, 600, 400)
    ] == [
        1,
        2,
        4,
    ]
