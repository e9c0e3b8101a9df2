"""The Spark session that all Spark engines share, and the timing of one streaming query.

The law this module keeps: the same settings for every Spark engine. What an engine needs on
top of them is given by name.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, DoubleType, IntegerType, StringType, StructField, StructType

from bench.engines.base import EngineJob, EngineTimes

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "4g",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # Spark's default for local files starts a process for each checkpoint file that it writes;
    # without it every engine's epochs are shorter.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class Query(Protocol):
    """The part of a streaming query's handle that Spark's and Penstock's have in common."""

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Wait until the query has ended."""

    @property
    def recentProgress(self) -> Any:
        """The last progress reports, oldest first."""


def calls_schema(time: DataType) -> StructType:
    """Return the call records' columns with times of the given type.

    Files hold times without a zone. Spark's watermarks refuse that type, so native reads them
    as Spark's own `timestamp`, which in a UTC session is the same.
    """
    kinds = {
        **dict.fromkeys(("src", "dst"), StringType()),
        **dict.fromkeys(("start", "end", "ts"), time),
        "district": IntegerType(),
        **dict.fromkeys(("lat", "lon"), DoubleType()),
    }
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def session(work: Path, extra: Mapping[str, str]) -> SparkSession:
    """Start a local session with two task slots whose scratch files stay inside `work`."""
    builder = SparkSession.builder.master("local[2]").appName("penstock-bench")
    folders = {"spark.local.dir": work / "local", "spark.sql.warehouse.dir": work / "warehouse"}
    for name, value in {**_SETTINGS, **folders, **extra}.items():
        builder = builder.config(name, str(value))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(1000).repartition(2).count()
    return spark


def timed(start: Callable[[EngineJob], Query], job: EngineJob) -> EngineTimes:
    """Warm up on the small input, then time the query from its start to its end."""
    start(job.warmed()).awaitTermination()
    begun = time.perf_counter()
    query = start(job)
    query.awaitTermination()
    seconds = time.perf_counter() - begun
    return EngineTimes(seconds=seconds, epoch_ms=epoch_times(query))


def epoch_times(query: Query) -> tuple[float, ...]:
    """Return milliseconds of each epoch that read rows.

    Spark ends with an epoch without input, which only closes windows. It counts in the
    seconds, not here.
    """
    reports = (p if isinstance(p, dict) else p.jsonValue for p in query.recentProgress)
    return tuple(
        float(report["durationMs"]["triggerExecution"])
        for report in reports
        if report["numInputRows"] > 0
    )
