"""Penstock, over its own file source and over a Spark streaming DataFrame."""

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.types import TimestampNTZType

import penstock as ps
from bench.engines.base import EngineJob, EngineTimes
from bench.engines.session import Query, calls_schema, session, timed

if TYPE_CHECKING:
    from penstock.query.stream import Stream


def run(job: EngineJob) -> EngineTimes:
    """Run the job and stop the session."""
    spark = session(job.work, {})
    try:
        return timed(partial(start, spark), job)
    finally:
        spark.stop()


def start(spark: SparkSession, job: EngineJob) -> Query:
    """Start the query over all files that are there now; it ends by itself."""
    load = job.workload
    tumbling = load.size_seconds == load.every_seconds
    window = ps.tumbling(load.size) if tumbling else ps.sliding(load.size, every=load.every)
    means = (
        source(spark, job)
        .map(duration='"end" - start')
        .aggregate(by=load.key, window=window, calls="count(*)", mean="avg(duration)")
    )
    query: Query = means.write_parquet(str(job.out)).start(
        spark, checkpoint=str(job.work / "checkpoint"), available_now=True
    )
    return query


def source(spark: SparkSession, job: EngineJob) -> "Stream":
    """Return the calls through the source that the engine's name says."""
    if job.engine == "penstock-files":
        return ps.read_parquet(str(job.calls), time="ts", max_files_per_epoch=job.files_per_epoch)
    frame = (
        spark.readStream.schema(calls_schema(TimestampNTZType()))
        .option("maxFilesPerTrigger", job.files_per_epoch)
        .parquet(str(job.calls))
    )
    return ps.from_spark(frame, time="ts")
