"""Penstock, over its own file source and over a Spark streaming DataFrame."""

from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.types import TimestampNTZType

import penstock as ps
from bench.engines.base import EngineJob, EngineTimes
from bench.engines.session import Query, calls_schema, session, timed
from bench.workloads import ABOVE_KM, Workload
from penstock.workloads.cdr import nearby_calls, overlapping_calls

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
    results = QUESTIONS[job.workload.kind](source(spark, job), job.workload)
    query: Query = results.write_parquet(str(job.out)).start(
        spark,
        checkpoint=str(job.work / "checkpoint"),
        available_now=True,
        finish=job.workload.kind != "means",
    )
    return query


def means(calls: "Stream", load: Workload) -> "Stream":
    """Return count and mean duration per key and window."""
    tumbling = load.size_seconds == load.every_seconds
    window = ps.tumbling(load.size) if tumbling else ps.sliding(load.size, every=load.every)
    return calls.map(duration='"end" - start').aggregate(
        by=load.key, window=window, calls="count(*)", mean="avg(duration)"
    )


def join(calls: "Stream", load: Workload) -> "Stream":
    """Return pairs of calls of one caller that are far apart."""
    pairs = nearby_calls(calls, within=load.size).filter(f"km > {ABOVE_KM}")
    return pairs.select("src", "ts", "ts_right", "km")


def product(calls: "Stream", load: Workload) -> "Stream":
    """Return pairs of calls that share a number and overlap."""
    return overlapping_calls(calls, within=load.size)


QUESTIONS = {"means": means, "join": join, "product": product}


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
