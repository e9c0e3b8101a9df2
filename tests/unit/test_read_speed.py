"""How fast state is read: measured by tasks, and one number for the guard and the protocols."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest

import penstock as ps
from penstock.compiler import compile_query
from penstock.control import read_speed
from penstock.control.controller import Controller
from penstock.control.elastic import elastic
from penstock.control.read_speed import LEAST_BYTES, READ_BYTES_PER_SECOND, ReadSpeed
from penstock.observe.log import read_events
from penstock.plan.statistics import EpochStatistics, SubqueryLoad
from penstock.task.operator_state import OperatorState
from penstock.testing.runner import LocalRun
from tests.property.control_model import epoch_statistics, instance_load

SCHEMA: dict[str, Any] = {"k": pl.String, "ts": pl.Datetime("us")}


def restored(*pairs: tuple[int, float]) -> EpochStatistics:
    loads = tuple(
        instance_load(i, restored_bytes=size, restored_seconds=seconds)
        for i, (size, seconds) in enumerate(pairs)
    )
    return epoch_statistics(0, [SubqueryLoad(subquery=1, name="a", instances=loads)])


def test_it_is_assumed_until_it_is_measured() -> None:
    assert ReadSpeed().bytes_per_second == READ_BYTES_PER_SECOND
    assert ReadSpeed().after(restored((0, 0.0))) == ReadSpeed()


def test_it_is_what_all_instances_have_read_in_their_time() -> None:
    speed = ReadSpeed().after(restored((4_000_000, 1.0), (2_000_000, 2.0), (0, 0.0)))
    assert speed.bytes_per_second == 2e6


def test_what_is_too_small_to_tell_does_not_count() -> None:
    little = restored((LEAST_BYTES - 1, 9.0))
    assert ReadSpeed().after(little) == ReadSpeed()
    assert ReadSpeed().after(restored((LEAST_BYTES, 0.5))).bytes_per_second == LEAST_BYTES * 2


def test_older_epochs_count_less() -> None:
    speed = ReadSpeed()
    for _ in range(20):
        speed = speed.after(restored((10_000_000, 10.0)))
    assert speed.bytes_per_second == pytest.approx(1e6)
    speed = speed.after(restored((30_000_000, 10.0)))
    assert speed.bytes_per_second == pytest.approx(2e6, rel=0.01)
    for _ in range(20):
        speed = speed.after(restored((30_000_000, 10.0)))
    assert speed.bytes_per_second == pytest.approx(3e6, rel=0.01)


def run_on(folder: Path) -> LocalRun:
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    counted = stream.aggregate(by="k", window=ps.tumbling("1 hour"), n="count(*)")
    query = compile_query(counted.write_memory().sinks, buckets=16, instances={1: 2})
    run = LocalRun(query, folder)
    run.driver.steering.control = Controller(elastic(min=2, max=2))
    return run


def step(run: LocalRun) -> None:
    at = ps.at(f"2024-01-01 00:{run.next_epoch:02d}:00")
    frame = pl.DataFrame([{"k": f"k{i % 99}", "ts": at} for i in range(300)], schema=SCHEMA)
    run.epoch({0: [frame]})


def test_tasks_measure_it_and_guard_and_protocol_use_the_same(tmp_path: Path) -> None:
    run = run_on(tmp_path)
    steering = run.driver.steering
    for _ in range(2):
        step(run)
    assert steering.weights().read_bytes_per_second == READ_BYTES_PER_SECOND
    with (
        patch.object(read_speed, "LEAST_BYTES", 1),
        patch.object(OperatorState, "_reshape", lambda *_: None),  # as in another process
        patch.object(Controller, "observe", return_value=None) as observe,
    ):
        run.driver.move(1, {0: 1}, protocol="state")
        step(run)
    steering.close()
    told = [e for e in read_events(run.driver.root, "statistics") if isinstance(e, EpochStatistics)]
    loads = [one for s in told[-1].subqueries for one in s.instances if one.restored_bytes]
    assert loads
    assert all(0 < one.restored_seconds < 5 for one in loads)
    assert all(not one.restored_seconds for s in told[0].subqueries for one in s.instances)
    measured = sum(o.restored_bytes for o in loads) / sum(o.restored_seconds for o in loads)
    assert steering.weights().read_bytes_per_second == pytest.approx(measured)
    runtime = observe.call_args.kwargs["runtime"]
    assert runtime.read_bytes_per_second == pytest.approx(measured)
