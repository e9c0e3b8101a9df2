"""One run of a query on Spark in local mode, and what its epochs cost.

An epoch takes one file, so what a file holds is the load that is injected into an epoch, whatever
the speed of this machine; with `every`, epochs begin at that pace. Laws: what is told of a run is
what the query itself has written down (statistics, reconfigurations) and what the system counts of
its processes; nothing that a run made is left behind but its folder.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.streamcloud.cpu import CpuSampler, Sample, cores_between
from penstock.files.place import Place, place_of
from penstock.observe.log import read_events
from penstock.plan.changes import Reconfiguration, newest
from penstock.plan.statistics import EpochStatistics, SubqueryLoad
from penstock.spark.session import scratch_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.query.stream import Stream
    from penstock.spark.handle import Query

POLL_SECONDS = 0.05
_SETTINGS = {
    # Workers need the operator of `queries`, wherever this process was started.
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parents[2]),
    # An instance of the paper is one thread; several would hide what a second instance brings.
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    "spark.penstock.recentProgress": "10000",
    "spark.driver.memory": "2g",
    # The paper keeps state in memory alone; without syncing, epochs do not wait for the disk.
    "spark.penstock.fsync": "false",
}


@contextmanager
def session(slots: int, **settings: str) -> "Iterator[SparkSession]":
    """Give a session with so many slots, each of which runs one single-threaded task at a time."""
    more = {name.replace("__", "."): value for name, value in settings.items()}
    with scratch_session("penstock streamcloud", cores=slots, settings=_SETTINGS | more) as spark:
        yield spark


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Some epochs of a run taken together."""

    epochs: int
    seconds: float
    rows: int
    cores: float
    others_cores: float
    processing_seconds: float
    """Processor seconds that tasks spent on tuples: reading, operators, state, results."""
    task_seconds: float
    """How long tasks were busy, one stage after the other, by the slowest instance of each."""

    @property
    def rows_per_second(self) -> float:
        """Rows that were read in a second."""
        return self.rows / self.seconds

    @property
    def task_rows_per_second(self) -> float:
        """What the tasks alone would reach: without exchange, scheduling and commit."""
        return self.rows / self.task_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What happened in a run, epoch by epoch."""

    epochs: tuple[EpochStatistics, ...]
    phases: dict[int, dict[str, float]]
    samples: list[Sample]
    changes: tuple[Reconfiguration, ...]
    started_at: float

    def span(self, first: int, last: int | None = None) -> Span:
        """Return what the epochs after `first`, which ends the warm-up, took until `last`."""
        begin = next(e for e in self.epochs if e.epoch == first)
        mine = [e for e in self.epochs if first < e.epoch <= (last or self.epochs[-1].epoch)]
        cores, others = cores_between(self.samples, begin.at, mine[-1].at)
        return Span(
            epochs=len(mine),
            seconds=mine[-1].at - begin.at,
            rows=sum(e.rows for e in mine),
            cores=cores,
            others_cores=others,
            processing_seconds=sum(self._processing(e) for e in mine),
            task_seconds=sum(
                max(i.busy_seconds for i in s.instances)
                for e in mine
                for s in e.subqueries
                if s.instances
            ),
        )

    def _processing(self, epoch: EpochStatistics) -> float:
        """Return the processor time of an epoch's tasks that was not spent on sending."""
        loads = [i for s in epoch.subqueries for i in s.instances]
        busy = sum(load.busy_seconds for load in loads)
        cpu = sum(load.cpu_seconds for load in loads)
        sending = self.phases.get(epoch.epoch, {}).get("send", 0.0)
        return cpu * max(0.0, 1.0 - sending / busy) if busy else 0.0


def load_of(epoch: EpochStatistics, subquery: int) -> SubqueryLoad:
    """Return what a subquery did in an epoch."""
    return next(s for s in epoch.subqueries if s.subquery == subquery)


def run_query(
    spark: "SparkSession",
    stream: "Stream",
    folder: Path,
    *,
    rows: int,
    limit_seconds: float,
    every: float | None = None,
    meanwhile: "Callable[[Query], None] | None" = None,
    **options: Any,
) -> Run:
    """Run a query until it has read so many rows; with `every`, an epoch each so many seconds.

    Args:
        spark: The session.
        stream: The query; its results go to a folder.
        folder: A folder of the run's own.
        rows: How many rows there are.
        limit_seconds: A run that takes longer has failed.
        every: Seconds between the beginnings of epochs; as fast as possible unless given.
        meanwhile: Called again and again while the query runs.
        options: Further options of `start`, such as `instances`, `strategy` or `elastic`.
    """
    pace: dict[str, Any] = (
        {"available_now": True} if every is None else {"every": every_text(every)}
    )
    begun = time.time()
    with CpuSampler() as cpu:
        query = stream.write_parquet(folder / "out").start(
            spark, checkpoint=folder / "checkpoint", **pace, **options
        )
        try:
            _wait(query, rows, begun + limit_seconds, meanwhile)
        finally:
            query.stop()
    root = place_of(str(folder / "checkpoint")) / "penstock"
    found = [e for e in read_events(root, "statistics") if isinstance(e, EpochStatistics)]
    return Run(
        epochs=tuple(found),
        phases={e["epoch"]: e["taskSeconds"] for e in query.epochs},
        samples=cpu.samples,
        changes=_changes(root),
        started_at=begun,
    )


def _changes(root: Place) -> tuple[Reconfiguration, ...]:
    """Return each change once, as it was at its end."""
    found = read_events(root, "reconfiguration")
    return tuple(newest(e for e in found if isinstance(e, Reconfiguration)))


def every_text(seconds: float) -> str:
    """Return a pace as `start` takes it.

    >>> every_text(0.5)
    '500 milliseconds'
    """
    return f"{round(seconds * 1000)} milliseconds"


def _wait(
    query: "Query", rows: int, deadline: float, meanwhile: "Callable[[Query], None] | None"
) -> None:
    """Wait until all rows have been read; raise what the query raised."""
    while query.totals.get("read", 0) < rows:
        if query.awaitTermination(POLL_SECONDS) and query.totals.get("read", 0) < rows:
            raise RuntimeError(f"the query ended early; totals={query.totals!r}, rows={rows!r}")
        if time.time() > deadline:
            raise TimeoutError(f"the run took too long; totals={query.totals!r}, rows={rows!r}")
        if meanwhile is not None:
            meanwhile(query)
