"""Structured Streaming as it comes, in append mode: windowed aggregation, stream-stream join."""

from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that PySpark's users know
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import TimestampType

from bench.engines.base import EngineJob, EngineTimes
from bench.engines.session import calls_schema, session, timed
from bench.workloads import ABOVE_KM

EARTH_KM = 6371.0088
STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}
"""The faster of Spark's two state stores here, so that native is at its best.

Seconds for 10 M rows on a shared machine, this one against RocksDB: W2 13 to 14 against 18 to
22 (two or more runs each, in turn). W1 145 against 156 and W3 9.2 against 8.9 are single runs,
too near to tell. RocksDB ran as it comes, and on W1 and W2 also with changelog checkpoints and
without row tracking.
"""


def run(job: EngineJob) -> EngineTimes:
    """Run the job and stop the session."""
    spark = session(job.work, STATE)
    try:
        return timed(partial(start, spark), job)
    finally:
        spark.stop()


def start(spark: SparkSession, job: EngineJob) -> StreamingQuery:
    """Start the query over all files that are there now; it ends by itself."""
    results = {"means": means, "join": join}[job.workload.kind](spark, job)
    return (
        results.writeStream.outputMode("append")
        .format("parquet")
        .option("checkpointLocation", str(job.work / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(job.out))
    )


def source(spark: SparkSession, job: EngineJob) -> DataFrame:
    """Return the calls as a stream, none of them late."""
    return (
        spark.readStream.schema(calls_schema(TimestampType()))
        .option("maxFilesPerTrigger", job.files_per_epoch)
        .parquet(str(job.calls))
        .withWatermark("ts", "0 seconds")
    )


def means(spark: SparkSession, job: EngineJob) -> DataFrame:
    """Return count and mean duration per key and window."""
    load = job.workload
    window = F.window("ts", load.size, load.every).alias("window")
    return (
        source(spark, job)
        .withColumn("duration", F.col("end") - F.col("start"))
        .groupBy(load.key, window)
        .agg(F.count("*").alias("calls"), F.avg("duration").alias("mean"))
        .select(load.key, F.col("window.end").alias("window_end"), "calls", "mean")
    )


def join(spark: SparkSession, job: EngineJob) -> DataFrame:
    """Return pairs of calls of one caller that are far apart: a self-join with a band."""
    names = ("src", "ts", "lat", "lon")
    left = source(spark, job).select(*names)
    right = source(spark, job).select(*[F.col(name).alias(f"{name}_right") for name in names])
    window = F.expr(f"interval {job.workload.size}")
    pairs = left.join(
        right,
        (F.col("src") == F.col("src_right"))
        & (F.col("ts_right") > F.col("ts"))
        & (F.col("ts_right") < F.col("ts") + window),
    )
    far = pairs.withColumn("km", kilometres()).filter(F.col("km") > ABOVE_KM)
    return far.select("src", "ts", "ts_right", "km")


def kilometres() -> Column:
    """Return the distance of the two calls' places by the haversine."""
    phi, other = F.radians("lat"), F.radians("lat_right")
    sine = F.sin((other - phi) / 2)
    across = F.sin(F.radians(F.col("lon_right") - F.col("lon")) / 2)
    haversine = sine * sine + F.cos(phi) * F.cos(other) * across * across
    return F.lit(2 * EARTH_KM) * F.asin(F.least(F.lit(1.0), F.sqrt(haversine)))
