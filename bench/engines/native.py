"""Structured Streaming as it comes: one windowed aggregation in append mode."""

from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that PySpark's users know
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import TimestampType

from bench.engines.base import EngineJob, EngineTimes
from bench.engines.session import calls_schema, session, timed

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
    load = job.workload
    calls = (
        spark.readStream.schema(calls_schema(TimestampType()))
        .option("maxFilesPerTrigger", job.files_per_epoch)
        .parquet(str(job.calls))
        .withWatermark("ts", "0 seconds")
    )
    window = F.window("ts", load.size, load.every).alias("window")
    means = (
        calls.withColumn("duration", F.col("end") - F.col("start"))
        .groupBy(load.key, window)
        .agg(F.count("*").alias("calls"), F.avg("duration").alias("mean"))
        .select(load.key, F.col("window.end").alias("window_end"), "calls", "mean")
    )
    return (
        means.writeStream.outputMode("append")
        .format("parquet")
        .option("checkpointLocation", str(job.work / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(job.out))
    )
