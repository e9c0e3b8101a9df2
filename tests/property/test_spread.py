"""Spread: stateless operators with instances of their own change no row and no order.

``PENSTOCK_EXAMPLES`` sets how many examples the first test tries.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.compiler import compile_query
from penstock.query.nodes import Source
from penstock.query.stream import Stream
from penstock.testing.runner import LocalRun
from penstock.testing.streams import TestStream
from tests.property.strategies import Scenario, spread_scenarios

pytestmark = pytest.mark.filterwarnings("ignore:top without a window")

SCHEMA: dict[str, Any] = {"k": pl.String, "x": pl.Int64, "s": pl.String, "ts": pl.Datetime("us")}
START = ps.at("2024-01-01 00:00:00")
many = settings(max_examples=int(os.environ.get("PENSTOCK_EXAMPLES", "200")))


@many
@given(scenario=spread_scenarios())
@pytest.mark.timeout(1200)
def test_spread_changes_no_row_and_no_order(scenario: Scenario) -> None:
    scenario.check()


def source() -> Stream:
    return ps.from_rows([], schema=SCHEMA, time="ts", name="s")


def rows(count: int, bad: Sequence[int] = ()) -> list[dict[str, Any]]:
    return [
        {
            "k": "abc"[i % 3],
            "x": i,
            "s": "z" if i in bad else str(i),
            "ts": START + timedelta(seconds=i),
        }
        for i in range(count)
    ]


def traced(frame: pl.DataFrame) -> pl.DataFrame:
    """Say how many rows came together."""
    return frame.select("x", "ts", together=pl.lit(frame.height, dtype=pl.Int64))


def test_all_instances_work_behind_one_that_cannot_be_divided(tmp_path: Path) -> None:
    """All rows have one key, so the process has one instance with rows; the function has four."""
    schema = {"x": pl.Int64, "ts": pl.Datetime("us"), "together": pl.Int64}
    single = source().dedup(by="k", within="1 us").filter("k = 'a'")
    out = single.spread().apply(traced, schema=schema).write_memory()
    query = compile_query(out.sinks, instances={0: 1, 1: 4, 2: 4})
    run = LocalRun(query, tmp_path)
    result = run.epoch({0: [pl.DataFrame(rows(25), schema=SCHEMA)]})
    assert result.statistics is not None
    (load,) = [s for s in result.statistics.subqueries if s.name == "spread-0"]
    assert [instance.rows for instance in load.instances] == [2, 2, 2, 2]
    assert load.bucket_rows == ()


@pytest.mark.parametrize("instances", [1, 3])
def test_a_row_that_is_refused_in_two_branches_counts_once(instances: int) -> None:
    spread = source().spread()
    branches = [spread.map(n="cast(s as bigint)"), spread.filter("cast(s as bigint) > 5")]
    out = branches[0].write_memory("a").also(branches[1].spread().write_memory("b"))
    with TestStream(out, instances=instances) as stream:
        stream.add(rows(20, bad=(3, 11)))
        stream.finish()
        stream.expect_reference()
        assert stream.counts()["refused"] == 2


def test_a_union_of_rows_with_and_without_their_place() -> None:
    """What one side carries for an ordered sink, the other lacks; a bad row makes no difference."""
    given, window = source(), ps.tumbling("2 seconds")
    left = given.aggregate(by="k", window=window, x="sum(x)", s="max(s)")
    right = given.aggregate(by="k", window=window, x="max(x)", s="min(s)")
    both = left.union(right).aggregate(by="k", window=window, n="sum(cast(s as bigint))")
    out = both.write_memory("both").also(left.write_memory("left", ordered=True))
    with TestStream(out, instances=2, strategy="operator-cloud") as stream:
        stream.add(rows(20, bad=(3, 11)))
        stream.finish()
        stream.expect_reference()


def test_spread_may_come_and_go_with_a_checkpoint(tmp_path: Path) -> None:
    """It is no part of the query's meaning, so it is not pinned."""

    def query(spread: bool) -> Any:
        stream = source().spread() if spread else source()
        counted = stream.aggregate(by="k", window=ps.tumbling("4 seconds"), n="count(*)")
        return compile_query(counted.write_memory().sinks, instances=2)

    def frame(some: list[dict[str, Any]]) -> dict[int, list[pl.DataFrame]]:
        return {0: [pl.DataFrame(some, schema=SCHEMA)]}

    LocalRun(query(False), tmp_path).epoch(frame(rows(10)))
    later = LocalRun(query(True), tmp_path)
    later.epoch(frame(rows(20)[10:]))
    assert later.driver.last is not None
    assert later.driver.last.totals["read"] == 20


@given(drawn=st.sets(st.integers(1, 6)))
def test_the_planner_may_choose_heads(drawn: set[int]) -> None:
    stream = source().map(x="x + 1").filter("x > 2").map(x="x * 2")
    counted = stream.aggregate(by="k", window=ps.tumbling("4 seconds"), n="count(*)").filter(
        "n > 1"
    )
    query = compile_query(counted.write_memory().sinks, heads=drawn)
    assert {s.head for s in query.subqueries if s.head is not None} == drawn | {4}
    known = [n for s in query.subqueries for n in s.operators]
    assert sorted(known) == list(range(len(query.nodes)))
    assert all(not isinstance(query.nodes[head], Source) for head in drawn)
