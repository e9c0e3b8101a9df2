"""Queries on a real cluster: three workers, each a host of its own, whose executors come and go."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import penstock as ps
from penstock.compiler import compile_query
from penstock.files.place import place_of
from penstock.observe.events import ExecutorEvent
from penstock.observe.log import read_events
from penstock.plan.statistics import EpochStatistics, InstanceLoad
from penstock.query.stream import Stream
from penstock.spark.executors import SparkExecutors
from penstock.spark.handle import Query
from penstock.testing.cluster import Cluster, cluster_session, standalone_cluster, wait_until
from penstock.testing.runner import LocalRun
from tests.spark.conftest import call_rows, write_calls
from tests.spark.test_run import expected, per_minute, tidy

pytestmark = pytest.mark.spark
ROWS = 100
AGGREGATE = "aggregate-0"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with standalone_cluster(workers=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def spark(cluster: Cluster) -> Iterator[Any]:
    with cluster_session(cluster, settings={"spark.penstock.maxExecutors": "3"}) as session:
        yield session


class Feed:
    """A running query and its input, which gets a file at a time; a file is an epoch."""

    def __init__(
        self, spark: Any, folder: Path, stream: Callable[[Stream], Stream], **options: Any
    ):
        self.folder, self.files = folder, 0
        (folder / "in").mkdir()
        source = ps.read_parquet(
            folder / "in",
            time="ts",
            max_files_per_epoch=1,
            schema={"src": pl.String, "x": pl.Int64, "ts": pl.Datetime("us")},
        )
        self.query: Query = (
            stream(source)
            .write_parquet(folder / "out")
            .start(spark, checkpoint=folder / "checkpoint", **options)
        )

    def add(self) -> None:
        """Give the query another file."""
        new = self.folder / f"{self.files}.parquet"
        write_calls(new, start=self.files * ROWS, rows=ROWS, modified=1_700_000_000 + self.files)
        new.rename(self.folder / "in" / new.name)
        self.files += 1

    def epochs(self, count: int) -> None:
        """Give it so many files, and wait for the epoch of each."""
        for _ in range(count):
            self.add()
            self.query.processAllAvailable()

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Give it files until a condition holds."""

        def holds() -> Any:
            self.epochs(1)
            return condition()

        try:
            wait_until(holds, what, poll_seconds=0.3, patience_seconds=200)
        except TimeoutError as error:
            error.add_note(f"hosts: {self.hosts()[-3:]}; executors: {self.executor_events()}")
            error.add_note(f"decisions: {self.query.decisions.tail(8).to_dicts()}")
            raise

    def check(self) -> None:
        """Stop the query and check that every window that has closed is there, once."""
        self.query.stop()
        assert self.query.exception() is None
        rows = call_rows(0, self.files * ROWS)
        last = rows["ts"].dt.epoch("s").max()
        found = tidy(pl.read_parquet(self.folder / "out" / "**/*.parquet"))
        assert_frame_equal(found, expected(rows, closed_by=last))  # type: ignore[arg-type]

    def statistics(self) -> list[EpochStatistics]:
        """Return what was measured, epoch by epoch."""
        self.query._driver.steering.events.flush()
        root = place_of(self.folder / "checkpoint") / "penstock"
        return [e for e in read_events(root, "statistics") if isinstance(e, EpochStatistics)]

    def instances(self) -> list[tuple[InstanceLoad, ...]]:
        """Return the instances of the aggregate, epoch by epoch."""
        every = [s for epoch in self.statistics() for s in epoch.subqueries]
        return [s.instances for s in every if s.name == AGGREGATE]

    def hosts(self) -> list[dict[int, str]]:
        """Return where the instances of the aggregate ran, epoch by epoch."""
        return [{i.instance: i.host for i in epoch} for epoch in self.instances()]

    def restored_bytes(self) -> int:
        """Return how much state was read from segments in all."""
        return sum(i.restored_bytes for epoch in self.instances() for i in epoch)

    def executor_events(self) -> list[tuple[str, str]]:
        """Return what happened to executors, and on which host."""
        root = place_of(self.folder / "checkpoint") / "penstock"
        found = read_events(root, "executor")
        return [(e.what, e.host) for e in found if isinstance(e, ExecutorEvent)]

    def count(self, what: str) -> int:
        """Return how many executors something happened to."""
        return sum(happened == what for happened, _ in self.executor_events())


@pytest.fixture
def feed(spark: Any, tmp_path: Path) -> Iterator[Callable[..., Feed]]:
    feeds: list[Feed] = []
    executors = SparkExecutors(spark.sparkContext)
    wait_until(lambda: executors.mark()[1] == 3, "three executors to begin with")

    def make(stream: Callable[[Stream], Stream] = per_minute, **options: Any) -> Feed:
        feeds.append(Feed(spark, tmp_path, stream, **options))
        return feeds[-1]

    yield make
    for made in feeds:
        made.query.stop()


@pytest.mark.parametrize("kind", ["files", "frames"])
def test_the_result_is_that_of_one_process(
    spark: Any, calls: Path, tmp_path: Path, kind: str
) -> None:
    stream = per_minute(ps.read_parquet(calls, time="ts", max_files_per_epoch=2))
    reader = spark.readStream.schema("src string, x bigint, ts timestamp_ntz")
    frames = reader.option("maxFilesPerTrigger", 2).parquet(str(calls))
    there = stream if kind == "files" else per_minute(ps.from_spark(frames, time="ts"))
    query = there.write_parquet(tmp_path / "out").start(
        spark, checkpoint=tmp_path / "c", available_now=True, instances=3
    )
    query.awaitTermination()
    here = LocalRun(compile_query(stream.write_memory().sinks), tmp_path / "here")
    files = sorted(str(path) for path in calls.glob("*.parquet"))
    for part in (files[:2], files[2:4], files[4:]):
        here.files({0: part})
    found = tidy(pl.read_parquet(tmp_path / "out" / "**/*.parquet"))
    assert found.height > 0
    assert_frame_equal(found, tidy(here.table()))


def test_instances_keep_to_their_hosts(cluster: Cluster, feed: Callable[..., Feed]) -> None:
    run = feed(instances=3)
    run.epochs(8)
    hosts = run.hosts()
    assert sorted(hosts[0].values()) == sorted(cluster.hosts), "an instance on each host"
    assert hosts[1:] == [hosts[0]] * 7
    assert [epoch["cacheHits"] for epoch in run.query.epochs[1:]] == [3] * 7
    assert run.restored_bytes() == 0, "every instance found its state in its process"
    run.check()


def test_a_query_of_one_task_keeps_to_its_host(feed: Callable[..., Feed]) -> None:
    run = feed(instances=1)
    run.epochs(6)
    assert len({host for epoch in run.hosts() for host in epoch.values()}) == 1
    assert [epoch["cacheHits"] for epoch in run.query.epochs[1:]] == [1] * 5
    assert run.restored_bytes() == 0
    run.check()


def test_rescale_while_it_runs(feed: Callable[..., Feed]) -> None:
    run = feed(instances=1)
    run.epochs(2)
    run.query.rescale(AGGREGATE, 3)
    run.epochs(3)
    run.query.rescale(AGGREGATE, 1)
    run.epochs(2)
    assert [len(epoch) for epoch in run.hosts()] == [1, 1, 3, 3, 3, 1, 1]
    run.check()


def test_an_executor_killed_in_an_epoch(
    cluster: Cluster, feed: Callable[..., Feed], tmp_path: Path
) -> None:
    """The task that waits on the killed executor runs again elsewhere, and so do lost scans."""
    waits, killed = tmp_path / "waits", tmp_path / "killed"

    def wait_for_the_kill(rows: pl.DataFrame) -> pl.DataFrame:
        if not killed.exists() and rows["n"].sum() > 0 and (rows["last"] >= 3 * 100).any():
            from penstock.task.measure import host_name

            name = waits.with_suffix(f".{os.getpid()}")
            name.write_text(host_name())
            name.rename(waits)
            until = time.monotonic() + 60
            while not killed.exists() and time.monotonic() < until:
                time.sleep(0.01)
        return rows

    def gated(stream: Stream) -> Stream:
        found = per_minute(stream)
        return found.apply(wait_for_the_kill, schema=found.schema)

    run = feed(gated, instances={0: 3, 1: 3})
    run.epochs(3)
    run.add()
    wait_until(waits.exists, "a task waits for the kill")
    host = waits.read_text()
    (pid,) = cluster.executors()[host]
    assert cluster.kill_executor(host) == [pid]
    since = time.monotonic()
    killed.touch()
    run.query.processAllAvailable()
    print(f"the epoch ended {time.monotonic() - since:.1f} s after the kill")
    run.until(lambda: ("lost", host) in run.executor_events(), "the loss is noticed")
    run.until(
        lambda: run.executor_events().count(("added", host)) == 2, "another executor in its place"
    )
    print(f"an executor was in its place {time.monotonic() - since:.1f} s after the kill")
    run.until(lambda: len(set(run.hosts()[-1].values())) == 3, "an instance on each host again")
    run.check()


def test_executors_go_and_come_with_the_instances(
    cluster: Cluster, feed: Callable[..., Feed]
) -> None:
    run = feed(instances=1)
    since = time.monotonic()
    run.until(lambda: run.count("released") == 2, "two of three executors given back")
    print(f"released after {time.monotonic() - since:.1f} s and {run.files} epochs")
    assert run.count("decommissioning") == 2
    assert run.count("lost") == 0
    run.until(lambda: sum(map(len, cluster.executors().values())) == 1, "their processes are gone")
    (stays,) = {host for epoch in run.hosts()[-3:] for host in epoch.values()}
    assert cluster.executors()[stays], "the executor of the instance stays"
    run.query.rescale(AGGREGATE, 3)
    since = time.monotonic()
    run.until(lambda: len(set(run.hosts()[-1].values())) == 3, "an instance on each of three hosts")
    print(f"three executors after {time.monotonic() - since:.1f} s")
    run.check()


@pytest.mark.timeout(600)
def test_an_elastic_query_takes_executors_and_gives_them_back(
    cluster: Cluster, feed: Callable[..., Feed], tmp_path: Path
) -> None:
    """Load goes up and down with a file that says how long the work of a row takes.

    It is three times what lies between two epochs without it, so that the share of an epoch in
    which an instance is busy is the same on any machine.
    """
    heavy = tmp_path / "heavy"

    def work(rows: pl.DataFrame) -> pl.DataFrame:
        time.sleep(rows.height * float(heavy.read_text()) if heavy.exists() else 0.0)
        return rows

    def loaded(stream: Stream) -> Stream:
        found = per_minute(stream)
        return found.apply(work, schema=found.schema)

    rules = ps.elastic(max=3, lower=0.15, target=0.3, upper=0.5, cooldown_seconds=1, smoothing=2)
    run = feed(loaded, elastic=rules)
    run.until(lambda: run.count("released") == 2, "two of three executors given back")
    longest = max(epoch.interval_seconds for epoch in run.statistics()[-3:])
    (tmp_path / "new").write_text(str(3 * longest / 35))  # seven keys in five windows per epoch
    (tmp_path / "new").rename(heavy)
    run.until(lambda: len(set(run.hosts()[-1].values())) > 1, "several hosts under load")
    heavy.unlink()
    run.until(lambda: run.count("released") == run.count("added") - 1, "one executor is left")
    assert len(run.hosts()[-1]) == 1
    assert {r["cause"] for r in run.query.reconfigurations.to_dicts()} == {"streamcloud"}
    run.check()


def test_a_host_that_is_lost_and_a_new_one(cluster: Cluster, feed: Callable[..., Feed]) -> None:
    """It comes last: the cluster has other hosts after it."""
    run = feed(instances=3)
    run.epochs(1)
    gone = cluster.hosts[0]
    cluster.kill_worker(gone)
    run.until(lambda: ("lost", gone) in run.executor_events(), "the loss is noticed")
    assert gone not in run.hosts()[-1].values()
    assert sorted(run.hosts()[-1]) == [0, 1, 2]
    new = cluster.add_worker()
    run.until(lambda: new in run.hosts()[-1].values(), "an instance on the new host")
    run.check()
