"""The worker's cache: states that fit, states that are behind, and what they lack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.base.config import Config
from penstock.compiler import compile_query
from penstock.operators.stores.pieces import total_bytes
from penstock.operators.windows import aggregate
from penstock.plan.buckets import BucketSet
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, SegmentRef
from penstock.query.processes import Context, Row
from penstock.query.stream import Stream
from penstock.query.windows import TimeWindow
from penstock.state import cache
from penstock.state.cache import StateCache
from penstock.task.worker import Worker, memory_bytes
from penstock.testing.runner import LocalRun

WHOLE = BucketSet(((0, 8),))
START = datetime(2026, 1, 1)


def ref(name: str, *, until: int = 100, live: tuple[int, int] = (0, 8), **other: Any) -> SegmentRef:
    return SegmentRef(name=name, rows=1, bytes=1, sha256="", until=until, live=(live,), **other)


def names(refs: tuple[SegmentRef, ...] | None) -> list[str] | None:
    return None if refs is None else [ref.name for ref in refs]


A, B, C = ref("a"), ref("b"), ref("c")


@pytest.mark.parametrize(
    ("had", "now", "lacking"),
    [
        ([A, B], [A, B], []),
        ([A], [A, B, C], ["b", "c"]),
        ([A, B], [ref("m", merged=("a", "b"))], []),
        ([A, B], [ref("m", merged=("a", "b")), C], ["c"]),
        ([A], [ref("m", merged=("a", "b"))], None),  # it has rows of b, too
        ([A, B], [A], None),  # b is gone and nobody says where to
        ([A, ref("b", until=50)], [A], []),  # it has expired
        ([A], [ref("a", live=(0, 4))], None),  # it no longer counts for all buckets
    ],
)
def test_what_a_state_lacks(
    had: list[SegmentRef], now: list[SegmentRef], lacking: list[str] | None
) -> None:
    assert names(cache.find_missing(had, now, WHOLE, 50)) == lacking


def key(refs: list[SegmentRef], watermark: int = 0) -> cache.Key:
    return cache.cache_key("here", "aggregate-0", WHOLE, watermark, refs)


def test_a_state_that_is_behind_is_of_the_same_run() -> None:
    states = StateCache()
    states.put(key([A]), "after a", [A], writer="me", epoch=1)
    found = states.behind(key([A, B], 7), [A, B], "me")
    assert found is not None
    assert (found[0], names(found[1])) == ("after a", ["b"])
    assert states.behind(key([A, B], 7), [A, B], "another") is None
    assert states.behind(key([A, B], -1), [A, B], "me") is None


def test_the_newest_state_that_can_be_used_is_taken() -> None:
    states = StateCache()
    states.put(key([A]), "after a", [A], writer="me", epoch=1)
    states.put(key([A, C]), "not committed", [A, C], writer="me", epoch=2)
    found = states.behind(key([A, B]), [A, B], "me")
    assert found is not None
    assert (found[0], names(found[1])) == ("after a", ["b"])


def test_old_states_are_forgotten() -> None:
    states = StateCache()
    other = cache.cache_key("here", "aggregate-0", BucketSet(((0, 1),)), 0, [A])
    states.put(other, "old", [A], epoch=1)
    for epoch in range(2, 12):
        states.put(key([A], epoch), epoch, [A], epoch=epoch)
    assert states.get(other) is None
    assert [states.get(key([A], epoch)) for epoch in (9, 10, 11)] == [None, 10, 11]


def piece(size: int) -> np.ndarray[Any, Any]:
    return np.zeros(size, dtype=np.uint8)


def of(operator: str, watermark: int = 0) -> cache.Key:
    return cache.cache_key("here", operator, WHOLE, watermark, [A])


def test_the_least_recently_used_states_go_first() -> None:
    states = StateCache(bound=100)
    for name in "abc":
        assert states.put(of(name), name, pieces=[piece(30)]) == 30
    assert states.get(of("a")) == "a"
    assert states.put(of("d"), "d", pieces=[piece(40)]) == 40
    assert [states.get(of(name)) for name in "abcd"] == ["a", None, "c", "d"]
    assert states.bytes == 100


def test_pieces_that_states_share_count_once() -> None:
    states, shared = StateCache(bound=100), piece(60)
    assert states.put(of("a"), 0, pieces=[shared, piece(10)], epoch=0) == 70
    assert states.put(of("a", 1), 1, pieces=[shared, piece(20)], epoch=1) == 80
    assert (states.bytes, len(states)) == (90, 2)
    assert states.put(of("a", 2), 2, pieces=[shared, shared, piece(5)], epoch=2) == 65
    assert (states.bytes, states.states) == (85, [1, 2])


def test_a_state_that_another_follows_goes_before_one_that_is_the_last() -> None:
    states = StateCache(bound=100)
    states.put(of("a"), "last a", pieces=[piece(40)])
    states.put(of("b", 1), "old b", pieces=[piece(30)])
    states.put(of("b", 2), "last b", pieces=[piece(40)])
    assert states.states == ["last a", "last b"]


def test_a_state_that_is_too_large_stays_alone() -> None:
    states = StateCache(bound=100)
    states.put(of("a"), "a", pieces=[piece(50)])
    assert states.put(of("b"), "b", pieces=[piece(500)]) == 500
    assert (states.states, states.bytes) == (["b"], 500)
    states.put(of("c"), "c", pieces=[piece(10)])
    assert (states.states, states.bytes) == (["c"], 10)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.lists(st.integers(0, 5), max_size=4), st.booleans()),
        max_size=30,
    )
)
def test_the_cache_knows_what_it_holds(steps: list[tuple[int, list[int], bool]]) -> None:
    known, states = [piece(10 * n) for n in range(6)], StateCache(bound=100)
    for epoch, (operator, chosen, used) in enumerate(steps):
        if used:
            states.get(of(str(operator), epoch - 1))
        pieces = [known[n] for n in chosen]
        states.put(of(str(operator), epoch), pieces, pieces=pieces, epoch=epoch)
        held = [one for state in states.states for one in state]
        assert states.bytes == total_bytes(held)
        assert states.bytes <= 100 or len(states) == 1
        assert states.states[-1] is pieces


def test_a_worker_keeps_the_frames_of_one_epoch_and_one_query(tmp_path: Path) -> None:
    worker, query = Worker(), sums(tmp_path, WINDOWS[0]).driver.query
    plan = EpochPlan(epoch=3, checkpoint="", writer="run")
    worker.begin(query, plan)
    worker.frames["x"] = pl.DataFrame({"a": [1]})
    worker.begin(query, plan)
    assert list(worker.frames) == ["x"]
    worker.begin(query, replace(plan, epoch=4))
    assert list(worker.frames) == []
    loads: list[str] = []

    def load(name: str) -> CompiledQuery:
        loads.append(name)
        return query

    for name in "aaba":
        assert worker.query(name, partial(load, name)) is query
    assert loads == ["a", "b", "a"]


def test_the_bound_is_the_plans_or_a_share_of_the_memory(tmp_path: Path) -> None:
    worker, query = Worker(), sums(tmp_path, WINDOWS[0]).driver.query
    worker.begin(query, EpochPlan(epoch=0, checkpoint="", cache_bytes=77))
    assert worker.cache.bound == 77
    worker.begin(query, EpochPlan(epoch=0, checkpoint=""))
    assert worker.cache.bound is not None
    assert 2**26 < worker.cache.bound <= memory_bytes() / 4


def test_a_query_keeps_to_its_bound(tmp_path: Path) -> None:
    """Its two aggregates do not fit together, so both are read again, and nothing is lost."""
    stream = ps.from_rows([], schema=dict(rows(0).schema), time="ts", delay="15 seconds")
    first = stream.aggregate(by="k", window=ps.tumbling("10 seconds"), n="count(*)")
    second = first.aggregate(by="k", window=WINDOWS[0], n="sum(n)")
    query = compile_query(second.write_memory().sinks)
    wide = LocalRun(query, tmp_path / "wide", Config(fsync=False))
    narrow = LocalRun(query, tmp_path / "narrow", Config(fsync=False, cacheBytes=2000))
    misses = []
    for epoch in range(20):
        wide.epoch(batch(epoch))
        done = narrow.epoch(batch(epoch))
        misses.append(sum(report.cache_misses for report in done.reports))
        assert narrow.worker.cache.bytes <= 2000 or len(narrow.worker.cache) == 1
    assert wide.worker.cache.bytes > 2000
    wide.finish()
    narrow.finish()
    assert sum(misses) > 20
    assert in_order(narrow).equals(in_order(wide))
    assert in_order(narrow).height > 100


def rows(epoch: int, count: int = 60) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "k": [f"k{(7 * epoch + 3 * i) % 40}" for i in range(count)],
            "x": [epoch * i for i in range(count)],
            "ts": [START + timedelta(seconds=20 * epoch + i / 3) for i in range(count)],
        }
    ).with_columns(pl.col("ts").cast(pl.Datetime("us")))


WINDOWS = [ps.sliding("2 minutes", every="30 seconds"), ps.tumbling("2 minutes")]


def sums(folder: Path, window: TimeWindow) -> LocalRun:
    stream = ps.from_rows([], schema=dict(rows(0).schema), time="ts", delay="15 seconds")
    query = stream.aggregate(by="k", window=window, n="count(*)", total="sum(x)", most="max(x)")
    # Two scans send their partials, so a segment has several of a group.
    return LocalRun(compile_query(query.write_memory().sinks, instances={0: 2}), folder)


def batch(epoch: int) -> dict[int, list[pl.DataFrame]]:
    made = rows(epoch)
    return {0: [made[:30], made[30:]]}


def in_order(run: LocalRun) -> pl.DataFrame:
    return run.table().sort("k", "window_end")


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS, ids=["sliding", "tumbling"])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_that_take_turns_catch_up(workers: int, window: TimeWindow, tmp_path: Path) -> None:
    alone = sums(tmp_path / "alone", window)
    for epoch in range(40):
        alone.epoch(batch(epoch))
    alone.finish()
    run, turns = sums(tmp_path / "turns", window), [Worker() for _ in range(workers)]
    misses = []
    for epoch in range(40):
        run.worker = turns[epoch % workers]
        done = run.epoch(batch(epoch))
        misses.append(sum(report.cache_misses for report in done.reports))
    run.finish()
    assert in_order(run).equals(in_order(alone))
    assert in_order(run).height > 200
    # A merge of segments that a worker has not all seen costs it a restore; all else does not.
    assert sum(misses) < 40 / 4 * workers
    assert sum(misses[:workers]) == workers - 1


class Fading(ps.Process):
    """Fades a sum, tells of it a while later, and forgets the keys that it tells of."""

    state = {"sum": pl.Int64}  # noqa: RUF012  # read only
    output = {"sum": pl.Int64}  # noqa: RUF012

    def on_row(self, row: Row, context: Context) -> None:
        known = context.state or {"sum": 0}
        context.state = {"sum": known["sum"] // 2 + row["x"]}
        if row["x"] % 3 == 0:
            context.set_timer(context.time + timedelta(seconds=100))

    def on_timer(self, time: datetime, context: Context) -> list[Row]:
        told = [{"sum": (context.state or {"sum": -1})["sum"]}]
        context.state = None
        return told


def _joined(stream: Stream, how: str) -> Stream:
    odd, even = stream.filter("x % 3 = 1"), stream.filter("x % 3 = 2")
    return odd.join(even, on="k", within="25 seconds", how=how)


def _enriched(stream: Stream) -> Stream:
    table = stream.filter("x % 3 = 1").select("k", "ts", latest="x")
    return stream.filter("x % 3 = 2").enrich(table, on="k")


QUERIES: dict[str, Callable[[Stream], Stream]] = {
    "join": lambda s: _joined(s, "inner"),
    "full join": lambda s: _joined(s, "full"),
    "process": lambda s: s.process(Fading(), by="k"),
    "dedup": lambda s: s.dedup(by="k", within="50 seconds"),
    "dedup for ever": lambda s: s.dedup(by="k"),
    "enrich": _enriched,
    "session": lambda s: s.aggregate(by="k", window=ps.session("50 seconds"), n="sum(x)"),
    "top": lambda s: s.top(2, "x", by="k", window=ps.sliding("2 minutes", every="30 seconds")),
    "order": lambda s: s,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(QUERIES))
def test_workers_catch_up(name: str, tmp_path: Path) -> None:
    stream = ps.from_rows([], schema=dict(rows(0).schema), time="ts", delay="70 seconds")
    sink = QUERIES[name](stream).write_memory(ordered=name == "order")
    query = compile_query(sink.sinks, instances={0: 2})
    alone, run = LocalRun(query, tmp_path / "alone"), LocalRun(query, tmp_path / "turns")
    turns = [Worker(), Worker()]
    misses = []
    for epoch in range(1, 40):
        # A key has rows for some epochs only, so that what it has outlives the worker that saw it.
        came = {0: [f.with_columns(pl.col("k") + f"-{epoch // 5}") for f in batch(epoch)[0]]}
        alone.worker = Worker()
        alone.epoch(came)
        run.worker = turns[epoch % 2]
        done = run.epoch(came)
        misses.append(sum(report.cache_misses for report in done.reports))
    alone.finish()
    run.finish()
    ours, theirs = (r.table().sort(pl.all()) for r in (run, alone))
    assert ours.equals(theirs)
    assert ours.height > 100
    # A merge of segments that a worker has not all seen costs it a restore; all else does not.
    assert sum(misses) < 20


def test_sessions_that_ended_elsewhere_are_forgotten(tmp_path: Path) -> None:
    stream = ps.from_rows([], schema=dict(rows(0).schema), time="ts")
    run = LocalRun(compile_query(QUERIES["session"](stream).write_memory().sinks), tmp_path)
    turns, most = [Worker(), Worker()], 0
    for epoch in range(1, 40):
        came = [f.with_columns(pl.col("k") + f"-{epoch // 5}") for f in batch(epoch)[0]]
        run.worker = turns[epoch % 2]
        run.epoch({0: came})
        most = max(most, *[state.sessions.live for state in run.worker.cache.states])
    assert 40 <= most <= 120, "of 320 in all"


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS, ids=["sliding", "tumbling"])
def test_restored_rows_are_worked_off_in_portions(
    window: TimeWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregate, "_PORTION", 7)
    alone, run = sums(tmp_path / "alone", window), sums(tmp_path / "run", window)
    left = []
    for epoch in range(30):
        alone.worker, run.worker = Worker(), Worker()
        alone.epoch(batch(epoch))
        if epoch % 10 == 5:
            run.driver.rescale(1, 1 + epoch % 3)
        run.epoch(batch(epoch))
        left += [sum(f.height for f in state.raw) for state in run.worker.cache.states]
    alone.finish()
    run.finish()
    assert in_order(run).equals(in_order(alone))
    assert max(left) > 7
