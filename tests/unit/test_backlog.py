"""What waits at the sources, and how old input is when its results come."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.base.config import Config
from penstock.compiler import compile_query
from penstock.driver.driver import Driver
from penstock.driver.in_process import run_stages
from penstock.plan.compiled import CompiledQuery
from penstock.plan.splits import Reached, Split
from penstock.query.nodes import Source
from penstock.sources.backlog import Backlog, behind
from penstock.spark.frame import Frame
from penstock.testing.caught import catching

SCHEMA: dict[str, Any] = {"k": pl.String, "ts": pl.Datetime("us")}
SECOND = 1_000_000


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def write(folder: Path, name: str, modified: float) -> Path:
    frame = pl.DataFrame([{"k": "a", "ts": ps.at("2024-01-01")}], schema=SCHEMA)
    frame.write_parquet(folder / name)
    os.utime(folder / name, (modified, modified))
    return folder / name


def newest(microseconds: int) -> Reached:
    return Reached(newest_us=microseconds)


def query_on(*folders: Path) -> CompiledQuery:
    streams = [ps.read_parquet(f, time="ts", schema=SCHEMA) for f in folders]
    both = streams[0].union(*streams[1:]) if streams[1:] else streams[0]
    counted = both.aggregate(by="k", window=ps.tumbling("1 minute"), n="count(*)")
    return compile_query(counted.write_memory().sinks)


def test_files_that_are_newer_than_what_was_read_wait(tmp_path: Path) -> None:
    clock, backlog = Clock(), None
    for i in range(5):
        write(tmp_path, f"{i}.parquet", 100.0 + i)
    write(tmp_path, ".hidden.parquet", 200.0)
    write(tmp_path, "_hidden.parquet", 200.0)
    (tmp_path / "notes.txt").write_text("no data")
    backlog = Backlog(query_on(tmp_path), clock=clock)
    assert backlog({}) is None, "nothing was read, so nothing is known"
    clock.now += 1.0
    assert backlog({0: newest(102 * SECOND)}) == 2
    write(tmp_path, "late.PARQUET", 300.0)
    clock.now += 0.5
    assert backlog({0: newest(102 * SECOND)}) == 2, "it is looked at once a second"
    clock.now += 0.6
    assert backlog({0: newest(102 * SECOND)}) == 3
    clock.now += 2.0
    assert backlog({0: newest(300 * SECOND)}) == 0


def test_files_of_the_same_millisecond_count_as_read(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 100.0004)
    assert Backlog(query_on(tmp_path), clock=Clock())({0: newest(100_000_000)}) == 0


def test_a_slow_listing_is_made_more_seldom(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 100.0)
    clock = Clock()

    class Slow(Clock):
        def __call__(self) -> float:
            clock.now += 0.5  # each look at the clock: the listing takes half a second
            return clock.now

    backlog = Backlog(query_on(tmp_path), clock=Slow())
    assert backlog({0: newest(0)}) == 1
    write(tmp_path, "b.parquet", 101.0)
    for _ in range(40):
        assert backlog({0: newest(0)}) == 1
    clock.now += 10.0
    assert backlog({0: newest(0)}) == 2


def test_all_folders_count_and_one_that_is_unknown_makes_it_unknown(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "x.parquet", 100.0)
    query = query_on(tmp_path / "a", tmp_path / "b")
    first, second = (number for number, _ in query.sources)
    assert Backlog(query, clock=Clock())({first: newest(0), second: newest(0)}) == 2
    assert Backlog(query, clock=Clock())({first: newest(0)}) is None
    os.remove(tmp_path / "b" / "x.parquet")
    (tmp_path / "b").rmdir()
    assert Backlog(query, clock=Clock())({first: newest(0), second: newest(0)}) is None


def test_a_streaming_frame_is_as_far_behind_as_its_progress_says() -> None:
    schema = {"k": pl.String(), "ts": pl.Datetime("us")}
    source = Source(schema=schema, reader=Frame(frame=None), time="ts", delay_us=0, name="frame")
    counted = ps.Stream(source).aggregate(by="k", window=ps.tumbling("1 minute"), n="count(*)")
    query = compile_query(counted.write_memory().sinks)
    report = {"sources": [{"latestOffset": "120", "endOffset": 100}]}
    assert Backlog(query, lambda: report, clock=Clock())({}) == 20
    assert Backlog(query, lambda: None, clock=Clock())({}) is None


@pytest.mark.parametrize(
    ("latest", "end"), [("{", 1), (True, 1), ({}, {}), ({"t": {"0": None}}, 3), ([1], 3), (None, 1)]
)
def test_offsets_that_say_nothing(latest: Any, end: Any) -> None:
    assert behind([{"latestOffset": latest, "endOffset": end}]) is None
    assert behind([]) is None


def run_files(driver: Driver, epoch: int, files: list[tuple[float, Path]]) -> Any:
    splits = [
        Split(source=0, ordinal=(i,), path=str(path), came_us=int(at * SECOND))
        for i, (at, path) in enumerate(files)
    ]
    return driver.run_epoch(epoch, lambda query, plan: run_stages(query, plan, splits)).statistics


@pytest.mark.parametrize("instances", [1, 3])
def test_latency_is_the_age_of_the_oldest_file_when_results_come(
    tmp_path: Path, instances: int
) -> None:
    (tmp_path / "in").mkdir()
    files = [(at, write(tmp_path / "in", f"{at}.parquet", at)) for at in (100.0, 103.0, 104.0)]
    clock, told = Clock(), []

    def backlog(reached: Any) -> int:
        told.append(dict(reached))
        return 7

    def publish(sink: int, epoch: int, found: Any) -> None:
        clock.now += 5.0

    driver = Driver(
        query_on(tmp_path / "in"),
        tmp_path / "c",
        Config(fsync=False),
        kinds=catching(publish),
        clock=clock,
        backlog=backlog,
    )
    driver.rescale(0, instances)
    clock.now = 110.0
    first = run_files(driver, 0, files[1:])
    assert first.latency_seconds == 110.0 + 5.0 - 103.0
    assert first.backlog == 7
    clock.now = 130.0
    second = run_files(driver, 1, files[:1])
    assert second.latency_seconds == 135.0 - 100.0
    clock.now = 150.0
    third = run_files(driver, 2, [])
    assert third.latency_seconds == third.interval_seconds
    assert [r[0].newest_us for r in told] == [104 * SECOND] * 3, "an old file makes none new"
    assert [r[0].rows for r in told] == [2, 3, 3]


def test_latency_is_that_of_the_source_with_the_oldest_file(tmp_path: Path) -> None:
    for name, at in (("a", 100.0), ("b", 103.0)):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "x.parquet", at)
    query = query_on(tmp_path / "a", tmp_path / "b")
    clock = Clock()
    clock.now = 110.0
    driver = Driver(query, tmp_path / "c", Config(fsync=False), clock=clock)
    splits = [
        Split(
            source=n,
            ordinal=(0,),
            path=str(tmp_path / name / "x.parquet"),
            came_us=at * SECOND,
        )
        for (n, _), name, at in zip(query.sources, ("a", "b"), (100, 103), strict=True)
    ]
    done = driver.run_epoch(0, lambda query, plan: run_stages(query, plan, splits))
    assert done.statistics is not None
    assert done.statistics.latency_seconds == 10.0
