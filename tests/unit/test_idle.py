"""Idle sources: a silent source holds the others back for as long as it may, then no longer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock.base.config import Config
from penstock.base.errors import FencedError
from penstock.compiler import compile_query
from penstock.driver.driver import Driver, EpochResult
from penstock.files.disk import RealDisk
from penstock.files.place import LocalFiles, in_place_of_local
from penstock.files.sealed import seal
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.testing.caught import catching
from penstock.testing.runner import Batch, frame_splits, run_stages

SCHEMA: dict[str, pl.DataType] = {"k": pl.String(), "ts": pl.Datetime("us")}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def rows(*seconds: int) -> pl.DataFrame:
    times = [ps.at(f"2024-01-01 00:{s // 60:02d}:{s % 60:02d}") for s in seconds]
    return pl.DataFrame({"k": ["a"] * len(times), "ts": times}, schema=SCHEMA)


class TwoSources:
    def __init__(self, folder: Path) -> None:
        empty = pl.DataFrame(schema=SCHEMA)
        folder.mkdir()
        for name in ("left", "right"):
            (folder / name).mkdir()
        left = ps.read_parquet(folder / "left", time="ts", schema=SCHEMA, idle="10 seconds")
        right = ps.read_parquet(folder / "right", time="ts", schema=SCHEMA, idle="10 seconds")
        counted = left.union(right).aggregate(
            by="k", window=ps.tumbling("10 seconds"), n="count(*)"
        )
        query = compile_query(counted.write_memory().sinks)
        self.clock, self.results = Clock(), [empty]
        self.driver = Driver(
            query, folder / "c", Config(fsync=False), kinds=catching(self.publish), clock=self.clock
        )

    def publish(self, sink: int, epoch: int, found: pl.DataFrame) -> None:
        self.results.append(found)

    def epoch(self, batch: Batch) -> EpochResult:
        def execute(query: CompiledQuery, plan: EpochPlan) -> list[TaskReport]:
            return run_stages(query, plan, frame_splits(query, batch))

        last = self.driver.last
        return self.driver.run_epoch(last.epoch + 1 if last else 0, execute)


def test_a_silent_source_holds_back_and_then_does_not(tmp_path: Path) -> None:
    run = TwoSources(tmp_path / "q")
    run.epoch({0: [rows(1, 2)], 1: [rows(3)]})
    assert run.epoch({0: [rows(25)]}).counts["written"] == 0, "the right source holds it back"
    run.clock.now += 11
    assert run.epoch({0: [rows(31)]}).counts["written"] == 2, "windows 0 and 20"
    back = run.epoch({1: [rows(15, 32)]})
    assert back.counts["late"] == 1, "the others have gone on; what it brings from before is late"
    assert back.counts["processed"] == 1


def test_a_query_whose_sources_are_all_silent_closes_nothing(tmp_path: Path) -> None:
    run = TwoSources(tmp_path / "q")
    run.epoch({0: [rows(1)], 1: [rows(3)]})
    run.clock.now += 100
    assert run.epoch({}).counts["written"] == 0


class OvertakingDisk(RealDisk):
    """A disk on which another driver goes on, and sweeps, just before a plan is read."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.meanwhile = meanwhile

    def read(self, path: str) -> bytes:
        if "/planned/" in path:
            self.meanwhile()
            Path(path).unlink()
        return super().read(path)


def test_a_driver_whose_plan_was_swept_is_fenced(tmp_path: Path) -> None:
    first = TwoSources(tmp_path / "q")
    first.epoch({0: [rows(1)], 1: [rows(3)]})
    checkpoint = tmp_path / "q" / "c"
    planned = checkpoint / "penstock" / "planned" / "000000000001.json"
    planned.write_bytes(seal("plan", {"epoch": 1, "now": 1000.0}))
    disk = OvertakingDisk(lambda: first.epoch({0: [rows(25)]}))
    with in_place_of_local(lambda fsync: LocalFiles(disk, fsync=fsync)):
        second = Driver(
            first.driver.query, checkpoint, Config(fsync=False), kinds=catching(first.publish)
        )
        with pytest.raises(FencedError, match="another driver"):
            second.run_epoch(1, lambda query, plan: [])
