"""Statistics of an epoch: what tasks report, put together, against counts made apart."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest

import penstock as ps
from penstock.base.hashing import BUCKET, bucket_of
from penstock.compiler import compile_query
from penstock.driver.statistics import Gatherer, _measure_held_by_bucket
from penstock.plan.buckets import BucketMap
from penstock.plan.epoch import SegmentRef
from penstock.plan.statistics import EpochStatistics, SubqueryLoad, TaskLoad
from penstock.task import inbox, measure, stager
from penstock.task.measure import BucketCounts, count_buckets
from penstock.task.worker import Worker
from penstock.testing.runner import LocalRun

SCHEMA: dict[str, Any] = {"k": pl.String, "x": pl.Int64, "ts": pl.Datetime("us")}
BUCKETS = 64


def rows(keys: list[str], minute: int) -> pl.DataFrame:
    at = ps.at(f"2024-01-01 00:{minute:02d}:00")
    return pl.DataFrame([{"k": k, "x": 1, "ts": at} for k in keys], schema=SCHEMA)


def run_on(folder: Path, instances: int) -> LocalRun:
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    # A median keeps its rows, so every row goes to the owner of its bucket.
    out = stream.aggregate(by="k", window=ps.tumbling("10 minutes"), m="median(x)").write_memory()
    query = compile_query(out.sinks, instances=instances, buckets=BUCKETS)
    return LocalRun(query, folder)


def bucket(key: str) -> int:
    frame = pl.DataFrame({"k": [key]})
    return int(frame.select(bucket_of(["k"], BUCKETS))[BUCKET][0])


def statistics(run: LocalRun, frame: pl.DataFrame) -> EpochStatistics:
    found = run.epoch({0: [frame]}).statistics
    assert found is not None
    return found


def of_aggregate(found: EpochStatistics) -> SubqueryLoad:
    return next(s for s in found.subqueries if s.name == "aggregate-0")


@pytest.mark.parametrize("instances", [1, 3])
def test_rows_by_bucket_and_instance(tmp_path: Path, instances: int) -> None:
    keys = ["hot"] * 50 + [f"k{i}" for i in range(30)]
    run = run_on(tmp_path, instances)
    found = statistics(run, rows(keys, 0))
    load = of_aggregate(found)
    wanted = Counter(bucket(key) for key in keys)
    assert {b: n for b, n in enumerate(load.bucket_rows) if n} == wanted
    owners = run.driver.layout.maps[load.subquery].owners
    assert [i.rows for i in load.instances] == [
        sum(n for b, n in wanted.items() if owners[b] == instance) for instance in range(instances)
    ]
    assert (load.hot_keys[0].key, load.hot_keys[0].rows) == ("hot", 50)
    assert load.hot_keys[0].bucket == bucket("hot")
    assert found.rows == 80
    for instance in load.instances:
        mine = [s for b, s in enumerate(load.bucket_seconds) if owners[b] == instance.instance]
        assert sum(mine) == pytest.approx(instance.busy_seconds if instance.rows else 0, abs=1e-6)
        assert instance.cpu_seconds >= 0
        assert instance.memory_bytes > 1_000_000


def test_state_bytes_are_those_of_the_segments_and_follow_rows(tmp_path: Path) -> None:
    run = run_on(tmp_path, 2)
    statistics(run, rows(["a"] * 1000, 0))
    load = of_aggregate(statistics(run, rows(["b"], 1)))
    assert run.driver.last is not None
    refs = run.driver.last.segments["aggregate-0"]
    assert sum(load.bucket_bytes) == pytest.approx(sum(r.bytes for r in refs), abs=len(refs) * 2)
    assert {b for b, n in enumerate(load.bucket_bytes) if n} == {bucket("a"), bucket("b")}
    assert sum(i.state_bytes for i in load.instances) == pytest.approx(
        sum(load.bucket_bytes), abs=2
    )


def test_bytes_in_memory_are_those_of_the_states_and_follow_rows(tmp_path: Path) -> None:
    run = run_on(tmp_path, 2)
    keys = [f"k{i}" for i in range(100)]
    load = of_aggregate(statistics(run, rows(keys * 5, 0)))
    assert sum(i.held_bytes for i in load.instances) == run.worker.cache.bytes
    assert sum(load.bucket_held_bytes) == pytest.approx(run.worker.cache.bytes, abs=BUCKETS)
    assert {b for b, n in enumerate(load.bucket_held_bytes) if n} == set(map(bucket, keys))
    owners = run.driver.layout.maps[load.subquery].owners
    for instance in load.instances:
        mine = [n for b, n in enumerate(load.bucket_held_bytes) if owners[b] == instance.instance]
        assert sum(mine) == pytest.approx(instance.held_bytes, abs=BUCKETS)
    assert sum(load.bucket_held_bytes) > sum(load.bucket_bytes), "files are compressed"
    more = of_aggregate(statistics(run, rows(keys * 45, 1)))
    grown = sum(i.held_bytes for i in more.instances) / sum(i.held_bytes for i in load.instances)
    assert 5 < grown < 12


def test_what_no_segment_tells_of_is_spread_over_its_owners_buckets() -> None:
    owners = BucketMap(owners=(0, 0, 1, 1), instances=2)
    loads = [TaskLoad(instance=i, held_bytes=100) for i in range(2)]
    found = _measure_held_by_bucket(loads, owners, np.array([3.0, 1, 0, 0]), [4.0, 0.0], ())
    assert found.tolist() == [75, 25, 50, 50]


def test_a_restored_state_is_told_apart(tmp_path: Path) -> None:
    run = run_on(tmp_path, 1)
    load = of_aggregate(statistics(run, rows([f"k{i}" for i in range(100)], 0)))
    assert [i.restored_bytes for i in load.instances] == [0]
    run.driver.rescale(load.subquery, 2)
    run.worker = Worker()  # as in other processes; in this one the state would be cut in memory
    load = of_aggregate(statistics(run, rows(["a"], 1)))
    assert len(load.instances) == 2
    assert sum(i.restored_bytes for i in load.instances) > 0
    load = of_aggregate(statistics(run, rows(["a"], 2)))
    assert [i.restored_bytes for i in load.instances] == [0, 0]


def test_unknown_segments_are_spread_over_their_live_buckets() -> None:
    ref = SegmentRef(name="x", rows=9, bytes=90, sha256="", until=1, live=((2, 5),))
    found = Gatherer().state_bytes([ref], 8)
    assert found.tolist() == [0, 0, 30, 30, 30, 0, 0, 0]


def test_many_rows_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "SAMPLE", 100)
    frame = pl.DataFrame({"k": ["a", "b"] * 5_000})
    counts = BucketCounts()
    counts.add(frame, ["k"], BUCKETS)
    assert sum(counts.buckets.values()) == 10_000
    by_expression = count_buckets(frame, bucket_of(["k"], BUCKETS))
    assert sum(by_expression.values()) == 10_000


def test_no_keys_is_one_bucket() -> None:
    counts = BucketCounts()
    counts.add(pl.DataFrame({"x": [1, 2, 3]}), [], BUCKETS)
    assert (counts.buckets, counts.hot_keys) == ({0: 3}, [])


@pytest.mark.parametrize(("task", "slow"), [(inbox, "to_frame"), (stager, "stage_frame")])
def test_taking_rows_and_writing_results_is_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: ModuleType, slow: str
) -> None:
    """An instance that does little but decode its rows, or write its results, is busy too."""
    quick = getattr(task, slow)

    def slowed(*args: Any, **options: Any) -> Any:
        until = time.process_time() + 0.05  # of the processor: a busy machine takes longer
        while time.process_time() < until:
            pass
        return quick(*args, **options)

    monkeypatch.setattr(task, slow, slowed)
    run = run_on(tmp_path, 2)
    statistics(run, rows(["a", "b", "c", "d"], 1))
    found = of_aggregate(statistics(run, rows(["a", "b", "c", "d"], 20)))
    assert [load.busy_seconds >= 0.05 for load in found.instances] == [True, True]


def test_waiting_for_a_core_is_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 1.5])
    monkeypatch.setattr(measure, "ready_seconds", lambda: next(times))
    clock = iter([10.0, 12.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(time, "process_time", lambda: 3.0)
    watch = measure.Stopwatch()
    assert watch.seconds() == (0.5, 0.0)


def test_waiting_for_a_core_is_counted() -> None:
    core = min(os.sched_getaffinity(0))
    rivals = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    mine = os.sched_getaffinity(0)
    try:
        for rival in rivals:
            os.sched_setaffinity(rival.pid, {core})
        os.sched_setaffinity(0, {core})
        deadline, noticed = time.monotonic() + 60.0, False
        while not noticed and time.monotonic() < deadline:  # rivals take a while to begin
            noticed = spin_and_see_waiting()
    finally:
        os.sched_setaffinity(0, mine)
        for rival in rivals:
            rival.kill()
            rival.wait(timeout=10)
    assert noticed  # two others wanted the same core


def spin_and_see_waiting() -> bool:
    """Return whether a stopwatch leaves out a fifth of the time that a spell of work has taken."""
    since, watch = time.perf_counter(), measure.Stopwatch()
    while time.perf_counter() - since < 0.2:
        pass
    passed, (busy, _) = time.perf_counter() - since, watch.seconds()
    return busy < 0.8 * passed
