"""The worker's cache: states that fit, states that are behind, and what they lack."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.compiler import compile_query
from penstock.operators.windows import aggregate
from penstock.plan.buckets import BucketSet
from penstock.plan.epoch import SegmentRef
from penstock.query.processes import Context, Row
from penstock.query.stream import Stream
from penstock.query.windows import TimeWindow
from penstock.state import cache
from penstock.testing.runner import LocalRun

WHOLE = BucketSet(((0, 8),))
START = datetime(2026, 1, 1)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


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
    assert names(cache.missing(had, now, WHOLE, 50)) == lacking


def key(refs: list[SegmentRef], watermark: int = 0) -> cache.Key:
    return cache.cache_key("here", "aggregate-0", WHOLE, watermark, refs)


def test_a_state_that_is_behind_is_of_the_same_run() -> None:
    cache.put(key([A]), "after a", [A], writer="me", epoch=1)
    found = cache.behind(key([A, B], 7), [A, B], "me")
    assert found is not None
    assert (found[0], names(found[1])) == ("after a", ["b"])
    assert cache.behind(key([A, B], 7), [A, B], "another") is None
    assert cache.behind(key([A, B], -1), [A, B], "me") is None


def test_the_newest_state_that_can_be_used_is_taken() -> None:
    cache.put(key([A]), "after a", [A], writer="me", epoch=1)
    cache.put(key([A, C]), "not committed", [A, C], writer="me", epoch=2)
    found = cache.behind(key([A, B]), [A, B], "me")
    assert found is not None
    assert (found[0], names(found[1])) == ("after a", ["b"])


def test_old_states_are_forgotten() -> None:
    other = cache.cache_key("here", "aggregate-0", BucketSet(((0, 1),)), 0, [A])
    cache.put(other, "old", [A], epoch=1)
    for epoch in range(2, 12):
        cache.put(key([A], epoch), epoch, [A], epoch=epoch)
    assert cache.get(other) is None
    assert [cache.get(key([A], epoch)) for epoch in (9, 10, 11)] == [None, 10, 11]


def test_frames_are_those_of_one_epoch() -> None:
    cache.frames_of("run", 3)["x"] = pl.DataFrame({"a": [1]})
    assert list(cache.frames_of("run", 3)) == ["x"]
    assert list(cache.frames_of("run", 4)) == []


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
def test_workers_that_take_turns_catch_up(
    workers: int, window: TimeWindow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = sums(tmp_path / "alone", window)
    for epoch in range(40):
        alone.epoch(batch(epoch))
    alone.finish()
    run, caches = (
        sums(tmp_path / "turns", window),
        [OrderedDict[Any, Any]() for _ in range(workers)],
    )
    misses = []
    for epoch in range(40):
        monkeypatch.setattr(cache, "_ENTRIES", caches[epoch % workers])
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
def test_workers_catch_up(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = ps.from_rows([], schema=dict(rows(0).schema), time="ts", delay="70 seconds")
    sink = QUERIES[name](stream).write_memory(ordered=name == "order")
    query = compile_query(sink.sinks, instances={0: 2})
    alone, run = LocalRun(query, tmp_path / "alone"), LocalRun(query, tmp_path / "turns")
    caches = [OrderedDict[Any, Any]() for _ in range(2)]
    misses = []
    for epoch in range(1, 40):
        # A key has rows for some epochs only, so that what it has outlives the worker that saw it.
        given = {0: [f.with_columns(pl.col("k") + f"-{epoch // 5}") for f in batch(epoch)[0]]}
        monkeypatch.setattr(cache, "_ENTRIES", OrderedDict())
        alone.epoch(given)
        monkeypatch.setattr(cache, "_ENTRIES", caches[epoch % 2])
        done = run.epoch(given)
        misses.append(sum(report.cache_misses for report in done.reports))
    alone.finish()
    run.finish()
    ours, theirs = (r.table().sort(pl.all()) for r in (run, alone))
    assert ours.equals(theirs)
    assert ours.height > 100
    # A merge of segments that a worker has not all seen costs it a restore; all else does not.
    assert sum(misses) < 20


def test_sessions_that_ended_elsewhere_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = ps.from_rows([], schema=dict(rows(0).schema), time="ts")
    run = LocalRun(compile_query(QUERIES["session"](stream).write_memory().sinks), tmp_path)
    caches, most = [OrderedDict[Any, Any]() for _ in range(2)], 0
    for epoch in range(1, 40):
        given = [f.with_columns(pl.col("k") + f"-{epoch // 5}") for f in batch(epoch)[0]]
        monkeypatch.setattr(cache, "_ENTRIES", caches[epoch % 2])
        run.epoch({0: given})
        most = max(most, *[entry.state.sessions.live for entry in cache._ENTRIES.values()])
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
        cache.clear()
        alone.epoch(batch(epoch))
        cache.clear()
        if epoch % 10 == 5:
            run.driver.rescale(1, 1 + epoch % 3)
        run.epoch(batch(epoch))
        left += [sum(f.height for f in e.state.raw) for e in cache._ENTRIES.values()]
    alone.finish()
    run.finish()
    assert in_order(run).equals(in_order(alone))
    assert max(left) > 7
