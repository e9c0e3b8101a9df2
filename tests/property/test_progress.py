"""Progress by sets of buckets: whoever lags behind changes no row, and nobody else's work.

``PENSTOCK_EXAMPLES`` sets how many examples the first test tries.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import penstock as ps
from penstock.base.hashing import BUCKET, bucket_of
from penstock.compiler import compile_query
from penstock.driver.inspect import read_state
from penstock.exchange.merger import watermarks
from penstock.plan.buckets import BucketSet
from penstock.plan.progress import Progress
from penstock.query.stream import Stream
from penstock.testing.runner import LocalRun
from tests.property.strategies import Scenario, held_scenarios

pytestmark = pytest.mark.filterwarnings("ignore:top without a window")

BUCKETS = 16
SCHEMA: dict[str, Any] = {"k": pl.String, "x": pl.Int64, "ts": pl.Datetime("us")}
many = settings(max_examples=int(os.environ.get("PENSTOCK_EXAMPLES", "300")))


@many
@given(scenario=held_scenarios())
@pytest.mark.timeout(1200)
def test_buckets_that_lag_change_no_row(scenario: Scenario) -> None:
    scenario.check()


bucket_sets = st.sets(st.integers(0, BUCKETS - 1)).map(BucketSet.of)


@given(steps=st.lists(st.tuples(bucket_sets, st.integers(0, 20))), mine=bucket_sets)
def test_progress_is_a_partition_whose_marks_never_go_back(
    steps: list[tuple[BucketSet, int]], mine: BucketSet
) -> None:
    progress, marks = Progress.even(BUCKETS, 0), dict.fromkeys(range(BUCKETS), 0)
    for buckets, mark in steps:
        back = [b for b in buckets if marks[b] > mark]
        if back:
            with pytest.raises(ValueError, match="would go back"):
                progress.after([Progress.of([(mark, buckets)])])
            continue
        progress = progress.after([Progress.of([(mark, buckets)])])
        marks |= dict.fromkeys(buckets, mark)
    found = {bucket: mark for mark, buckets in progress.shares for bucket in buckets}
    assert found == marks
    assert progress.lowest == min(marks.values())
    assert len({mark for mark, _ in progress.sets}) == len(progress.sets)
    assert set(progress.cut(mine).buckets) == set(mine)
    assert {b: m for m, part in progress.cut(mine).shares for b in part} == {
        bucket: marks[bucket] for bucket in mine
    }


def test_what_follows_an_operator_relies_on_its_lowest_mark() -> None:
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    first = stream.aggregate(by="k", window=ps.tumbling("10s"), n="count(*)")
    second = first.aggregate(window=ps.tumbling("10s"), m="max(n)")
    query = compile_query(second.write_memory().sinks)
    before, after = query.stateful
    free = watermarks(query, {0: 100})
    assert watermarks(query, {0: 100}, marks={before: 100}) == free
    lagging = watermarks(query, {0: 100}, marks={before: 40})
    assert (free[before] - lagging[before], free[after] - lagging[after]) == (60, 60)


def test_an_idle_input_that_lags_still_holds_back_what_follows() -> None:
    """Its sources bring nothing new, but it has results to come."""
    stream = ps.from_rows([], schema=SCHEMA, time="ts", name="idle")
    other = ps.from_rows([], schema=SCHEMA, time="ts", name="other")
    counts = stream.aggregate(by="k", window=ps.tumbling("10s"), x="count(*)")
    both = counts.select("k", "x").union(other.select("k", "x"))
    counted = both.aggregate(window=ps.tumbling("10s"), n="count(*)")
    query = compile_query(counted.write_memory().sinks)
    numbers = {source.name: number for number, source in query.sources}
    first, second = query.stateful
    seen, idle = {numbers["idle"]: 50, numbers["other"]: 100}, frozenset({numbers["idle"]})
    after = query.nodes[second].after_us
    assert watermarks(query, seen, idle=idle, marks={first: 50})[second] - after == 100
    assert watermarks(query, seen, idle=idle, marks={first: 20})[second] - after < 50


def epoch(second: int) -> dict[int, list[pl.DataFrame]]:
    keys = "abcdefghijkl"
    at = ps.at(f"2024-01-01 00:{second // 60:02d}:{second % 60:02d}")
    frame = pl.DataFrame({"k": list(keys), "x": range(12), "ts": [at] * 12}, schema=SCHEMA)
    return {0: [frame]}


OPERATORS: dict[str, Callable[[Stream], Stream]] = {
    "aggregate": lambda s: s.aggregate(
        by="k", window=ps.sliding("20s", every="10s"), n="count(*)", x="sum(x)"
    ),
    "join": lambda s: s.join(s, on="k", within="15s", self_pairs=True).select("k", "x"),
    "dedup": lambda s: s.dedup(by="k", within="15s"),
}
UNFOLD = ("aggregate", "join")
"""Whose states are cut and joined in memory."""


@pytest.mark.parametrize("kind", list(OPERATORS))
def test_a_share_that_lags_leaves_the_others_alone(tmp_path: Path, kind: str) -> None:
    """The same rows with and without a bucket that stays behind: results, state, memory."""
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    query = compile_query(OPERATORS[kind](stream).write_memory().sinks, buckets=BUCKETS)
    keys = pl.DataFrame({"k": list("abcdefghijkl")}).with_columns(bucket_of(["k"], BUCKETS))
    stays = BucketSet.of([keys[BUCKET][0]])
    others = keys.filter(~pl.col(BUCKET).is_in(list(stays)))["k"].to_list()
    (name,) = [query.operator_name(number) for number in query.stateful]
    lagging = LocalRun(
        query, tmp_path / "lagging", hold=lambda n: {name: stays} if 2 <= n < 6 else {}
    )
    free = LocalRun(query, tmp_path / "free")
    for number in range(9):
        found, wanted = lagging.epoch(epoch(7 * number)), free.epoch(epoch(7 * number))
        mine = pl.col("k").is_in(others)
        assert_frame_equal(
            lagging.table().filter(mine), free.table().filter(mine), check_row_order=False
        )
        held = found.manifest.progress[name].cut(stays).lowest
        ahead = found.manifest.progress[name].sets[-1][0]
        assert ahead == wanted.manifest.progress[name].lowest
        assert (held < ahead) == (2 <= number < 6)
        read = sum(load.restored_bytes for r in found.reports for load in r.loads.values())
        assert not read or (kind not in UNFOLD and number in (2, 7))
    assert_frame_equal(lagging.table(), free.table(), check_row_order=False)


def test_segments_stay_few_and_whole_while_a_share_lags(tmp_path: Path) -> None:
    """Shares of one instance merge the same files, each for its own buckets."""
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    counts = stream.aggregate(by="k", window=ps.tumbling("1 day"), n="count(*)", x="sum(x)")
    query = compile_query(counts.write_memory().sinks, buckets=BUCKETS)
    (name,) = [query.operator_name(number) for number in query.stateful]
    stays = BucketSet(((0, BUCKETS // 2),))
    lagging = LocalRun(
        query, tmp_path / "lagging", hold=lambda n: {name: stays} if 20 <= n < 50 else {}
    )
    free = LocalRun(query, tmp_path / "free")
    for number in range(60):
        found, _ = lagging.epoch(epoch(number)), free.epoch(epoch(number))
        assert len(found.manifest.segments[name]) < 24
        if number % 10 == 9:
            mine, theirs = (read_state(run.driver.root, name) for run in (lagging, free))
            assert_frame_equal(mine, theirs, check_row_order=False)
    lagging.finish()
    free.finish()
    assert_frame_equal(lagging.table(), free.table(), check_row_order=False)
