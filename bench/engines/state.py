"""One engine on the state benchmark: bring the keys in, then one small epoch at a time.

The law this module keeps: an epoch's milliseconds are what Spark's progress says, for every engine
alike; files are looked at between epochs, when none runs.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that PySpark's users know
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from bench.engines.session import epoch_times, session
from bench.state_input import DELAY_SECONDS

MEMORY = "10g"
"""The heap that every engine gets; the HDFS-backed store keeps all keys in it, twice."""
_STATE = "org.apache.spark.sql.execution.streaming.state"
STORES = {
    "native-hdfs": {
        "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.HDFSBackedStateStoreProvider",
    },
    "native-rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
}
"""Native's two state stores, each as its users would run it."""
ENGINES = ("penstock", *STORES)
_SCHEMA = {"key": StringType(), "x": LongType(), "ts": TimestampType()}
Files = dict[tuple[int, int], int]
"""Sizes by inode and time: a file that is written anew is another one, a renamed one is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateJob:
    """One run: the files to feed, some to warm up on, and a folder that is the engine's own."""

    engine: str
    name: str
    files: Path
    warm: Path
    work: Path

    def to_json(self) -> dict[str, str]:
        """Return plain values that `from_json` takes."""
        return {name: str(value) for name, value in asdict(self).items()}

    @staticmethod
    def from_json(values: dict[str, str]) -> "StateJob":
        """Return the job that `to_json` was given."""
        paths = {name: Path(values[name]) for name in ("files", "warm", "work")}
        return StateJob(engine=values["engine"], name=values["name"], **paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateTimes:
    """What the measured epochs took and wrote, and how large the checkpoint is after them."""

    preload_seconds: float
    epoch_ms: tuple[float, ...]
    epoch_bytes: tuple[int, ...]
    state_bytes: int


class Running(Protocol):
    """The part of a streaming query's handle that Spark's and Penstock's have in common."""

    @property
    def recentProgress(self) -> Any:
        """The last progress reports, oldest first."""

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Wait until the query has ended."""

    def processAllAvailable(self) -> None:
        """Wait until all files that are there have been processed."""

    def stop(self) -> None:
        """End the query."""


Start = Callable[[SparkSession, Path, Path], Running]


def run(job: StateJob) -> StateTimes:
    """Run the job and stop the session."""
    extra = {**STORES.get(job.engine, {}), "spark.driver.memory": MEMORY}
    spark = session(job.work, extra)
    start = start_native if job.engine in STORES else start_penstock
    try:
        _warm_up(spark, start, job)
        return _measure(spark, start, job)
    finally:
        spark.stop()


def start_native(spark: SparkSession, feed: Path, work: Path) -> Running:
    """Start Structured Streaming's windowed aggregation in append mode."""
    schema = StructType([StructField(name, kind) for name, kind in _SCHEMA.items()])
    rows = (
        spark.readStream.schema(schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(feed))
        .withWatermark("ts", f"{DELAY_SECONDS} seconds")
    )
    sums = (
        rows.groupBy("key", F.window("ts", "1 day").alias("window"))
        .agg(F.count("*").alias("rows"), F.sum("x").alias("total"))
        .select("key", "rows", "total")
    )
    stream = sums.writeStream.outputMode("append").format("parquet")
    return stream.option("checkpointLocation", str(work / "checkpoint")).start(str(work / "out"))


def start_penstock(spark: SparkSession, feed: Path, work: Path) -> Running:
    """Start Penstock over its file source."""
    import polars as pl

    import penstock as ps

    types = {"key": pl.String, "x": pl.Int64, "ts": pl.Datetime("us")}
    rows = ps.read_parquet(
        feed, time="ts", delay=f"{DELAY_SECONDS} seconds", schema=types, max_files_per_epoch=1
    )
    window = ps.tumbling("1 day")
    sums = rows.aggregate(by="key", window=window, rows="count(*)", total="sum(x)")
    query: Running = sums.write_parquet(str(work / "out")).start(
        spark, checkpoint=work / "checkpoint"
    )
    return query


def _warm_up(spark: SparkSession, start: Start, job: StateJob) -> None:
    """Run the query on other files; what the JVM's compiler does first is not what it costs."""
    feed, work = job.work / "warm-feed", job.work / "warm"
    feed.mkdir(parents=True)
    _feed(job.warm.glob("*.parquet"), feed)
    query = start(spark, feed, work)
    query.processAllAvailable()
    query.stop()


def _measure(spark: SparkSession, start: Start, job: StateJob) -> StateTimes:
    feed, checkpoint = job.work / "feed", job.work / "checkpoint"
    feed.mkdir(parents=True)
    query = start(spark, feed, job.work)
    begun = time.perf_counter()
    for _ in _fed(query, job.files.glob("preload-*"), feed):
        pass
    preload_seconds = time.perf_counter() - begun
    known, written = _listing(checkpoint), []
    before = len(epoch_times(query))
    for _ in _fed(query, job.files.glob("rows-*"), feed):
        now = _listing(checkpoint)
        written.append(sum(size for file, size in now.items() if file not in known))
        known = now
    epoch_ms = epoch_times(query)[before:]
    for _ in _fed(query, job.files.glob("closing*"), feed):
        query.stop()
    return StateTimes(
        preload_seconds=preload_seconds,
        epoch_ms=epoch_ms,
        epoch_bytes=tuple(written),
        state_bytes=sum(known.values()),
    )


def _fed(query: Running, files: Iterable[Path], feed: Path) -> Iterator[Path]:
    """Put one file after the other where the query looks; give it once it has been processed."""
    for file in sorted(files):
        _feed([file], feed)
        query.processAllAvailable()
        yield file


def _feed(files: Iterable[Path], feed: Path) -> None:
    for file in sorted(files):
        os.link(file, feed / file.name)


def _listing(folder: Path) -> Files:
    """Return all files below a folder."""
    found: Files = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                about = os.stat(os.path.join(parent, name))
            except FileNotFoundError:  # a store cleans up behind itself, at any time
                continue
            found[about.st_ino, about.st_mtime_ns] = about.st_size
    return found
