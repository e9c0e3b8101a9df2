"""One engine on the rescale benchmark: plain epochs, and epochs with a full rescale between them.

The law this module keeps: what is timed is what a user waits for, for every engine alike: from the
moment at which the next input is there, or the rescale is asked for, until that input has been
processed and committed.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from pyspark.sql import SparkSession

from bench.engines.session import session
from bench.engines.state import MEMORY, STORES, Running, start_native, start_penstock

NATIVE, PENSTOCK = "native-rocksdb", "penstock"
ENGINES = (PENSTOCK, NATIVE)
FEW, MANY = 1, 4
"""Instances before and after; for native, partitions of its state."""
SINK = {"spark.sql.streaming.fileSink.log.compactInterval": "1000000"}
"""Native's file sink merges its log every ten batches and fails there, since the batch that a
repartition adds wrote nothing to that log (BATCH_METADATA_NOT_FOUND in Spark 4.3.0)."""
STATEFUL = 1
"""The number of the aggregate's subquery; 0 scans the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleJob:
    """One run: files to feed, some to warm up on, and how the epochs follow each other."""

    engine: str
    name: str
    files: Path
    warm: Path
    work: Path
    rounds: int
    plain: int
    """Plain epochs before each rescale."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `from_json` takes."""
        return {n: str(v) if isinstance(v, Path) else v for n, v in asdict(self).items()}

    @staticmethod
    def from_json(values: dict[str, Any]) -> "RescaleJob":
        """Return the job that `to_json` was given."""
        return RescaleJob(**{**values, **{n: Path(values[n]) for n in ("files", "warm", "work")}})


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleTimes:
    """Every epoch in its order: instances before and after it, and its milliseconds.

    In a plain epoch both numbers are the same. ``stopped`` are the milliseconds of each rescale
    during which no query ran: between the stop and the start, both included.
    """

    epochs: tuple[tuple[int, int, float], ...]
    stopped: tuple[float, ...]
    preload_seconds: float


def run(job: RescaleJob) -> RescaleTimes:
    """Run the job and stop the session."""
    extra = {**STORES.get(job.engine, {}), "spark.driver.memory": MEMORY}
    extra |= {"spark.sql.shuffle.partitions": str(FEW), **SINK}
    spark = session(job.work, extra)
    try:
        warming = _Run(spark, job, job.warm, job.work / "warm")
        warming.run(rounds=min(job.rounds, 2), plain=min(job.plain, 4))
        return _Run(spark, job, job.files, job.work).run(rounds=job.rounds, plain=job.plain)
    finally:
        spark.stop()


def schedule(rounds: int, plain: int) -> Iterator[tuple[int, int]]:
    """Give instances before and after each epoch.

    >>> list(schedule(1, 1))
    [(1, 1), (1, 4), (4, 4), (4, 1)]
    """
    for _ in range(rounds):
        for before, after in ((FEW, MANY), (MANY, FEW)):
            yield from [(before, before)] * plain
            yield before, after


class _Run:
    """One query from its first file to the row that closes its window."""

    def __init__(self, spark: SparkSession, job: RescaleJob, files: Path, work: Path) -> None:
        self.spark, self.files, self.work = spark, files, work
        self.native = job.engine == NATIVE
        self.feed = work / "feed"
        self.feed.mkdir(parents=True)
        self.stopped: list[float] = []

    def run(self, *, rounds: int, plain: int) -> RescaleTimes:
        if self.native:
            self.spark.conf.set("spark.sql.shuffle.partitions", str(FEW))
        query = self._start()
        preload = _timed(lambda: self._feed(query, "preload-*")) / 1000
        epochs = []
        files = sorted(self.files.glob("rows-*"))
        for file, (before, after) in zip(files, schedule(rounds, plain), strict=True):
            begun = time.perf_counter()
            if before != after:
                query = self._rescaled(query, after)
            self._feed(query, file.name)
            epochs.append((before, after, (time.perf_counter() - begun) * 1000))
        self._feed(query, "closing*")
        query.stop()
        return RescaleTimes(
            epochs=tuple(epochs), stopped=tuple(self.stopped), preload_seconds=preload
        )

    def _start(self) -> Running:
        return (start_native if self.native else start_penstock)(self.spark, self.feed, self.work)

    def _feed(self, query: Running, pattern: str) -> None:
        """Put files where the query looks, one after the other, and wait for each."""
        for file in sorted(self.files.glob(pattern)):
            os.link(file, self.feed / file.name)
            query.processAllAvailable()

    def _rescaled(self, query: Running, instances: int) -> Running:
        """Return the query with another number of instances."""
        if not self.native:
            from penstock.spark.handle import Query

            cast(Query, query).rescale(STATEFUL, instances)
            self.stopped.append(0.0)
            return query
        begun = time.perf_counter()
        query.stop()
        self.spark._streamingCheckpointManager.repartition(str(self.work / "checkpoint"), instances)
        query = self._start()
        self.stopped.append((time.perf_counter() - begun) * 1000)
        return query


def _timed(work: Callable[[], None]) -> float:
    """Return how many milliseconds something takes."""
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000
