"""A checkpoint and a sink on S3: the same rows, across a restart; Spark's own part is local."""

from __future__ import annotations

import io
from pathlib import Path

import boto3
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pyspark.sql import SparkSession

import penstock as ps
from penstock.base.errors import CheckpointError
from penstock.files.place import place_of
from penstock.query.stream import Sinks
from tests.spark.conftest import call_rows

pytestmark = pytest.mark.spark
BUCKET = "penstock-spark"


@pytest.fixture
def bucket(s3_server: str) -> str:
    client = boto3.client("s3", endpoint_url=s3_server)
    client.create_bucket(Bucket=BUCKET)
    return f"s3://{BUCKET}"


def counted(calls: Path, out: str) -> Sinks:
    stream = ps.read_parquet(str(calls), time="ts", max_files_per_epoch=1)
    window = ps.sliding("1 minute", every="30 seconds")
    return stream.aggregate(by="src", window=window, n="count(*)", s="sum(x)").write_parquet(out)


def published(out: str) -> pl.DataFrame:
    folder = place_of(out)
    epochs = [folder / entry.name for entry in folder.list() if entry.name.startswith("epoch=")]
    assert all(len(epoch.list()) == 1 for epoch in epochs), "an epoch is one object"
    frames = [
        pl.read_parquet(io.BytesIO((epoch / epoch.list()[0].name).read())) for epoch in epochs
    ]
    return pl.concat(frames).select("src", "window_end", "n", "s").sort("src", "window_end")


def batch(rows: pl.DataFrame) -> pl.DataFrame:
    seconds = pl.col("ts").dt.epoch("s")
    return (
        rows.with_columns(w=pl.int_ranges((seconds - 60) // 30 + 1, seconds // 30 + 1))
        .explode("w")
        .group_by("src", "w")
        .agg(n=pl.len().cast(pl.Int64), s=pl.col("x").sum())
        .with_columns(window_end=pl.from_epoch(pl.col("w") * 30 + 60).cast(pl.Datetime("us")))
        .select("src", "window_end", "n", "s")
        .sort("src", "window_end")
    )


def test_a_query_goes_on_from_s3(
    spark: SparkSession, calls: Path, bucket: str, tmp_path: Path
) -> None:
    later = sorted(calls.glob("*.parquet"))[3:]
    waiting = [(path, path.read_bytes()) for path in later]
    for path in later:
        path.unlink()
    query, checkpoint = counted(calls, f"{bucket}/out"), f"{bucket}/checkpoint"
    spark.conf.set("spark.penstock.sparkFolder", str(tmp_path / "log"))
    try:
        first = query.start(spark, checkpoint=checkpoint, available_now=True, instances=2)
        first.awaitTermination(60)
        assert first.totals["read"] == 300
        for path, data in waiting:
            path.write_bytes(data)
        second = query.start(
            spark, checkpoint=checkpoint, available_now=True, finish=True, instances=3
        )
        second.awaitTermination(60)
    finally:
        spark.conf.unset("spark.penstock.sparkFolder")
    assert second.totals["read"] == 500
    assert_frame_equal(published(f"{bucket}/out"), batch(call_rows(0, 500)))
    names = [entry.name for entry in (place_of(checkpoint) / "penstock" / "manifests").list()]
    assert names == [f"{epoch:012d}.json" for epoch in range(6)]
    assert second.checkpoint == checkpoint


def test_spark_without_a_file_system_for_s3_is_told_what_to_do(
    spark: SparkSession, calls: Path, bucket: str
) -> None:
    with pytest.raises(CheckpointError, match=r"hadoop-aws.*spark\.penstock\.sparkFolder"):
        counted(calls, f"{bucket}/other").start(spark, checkpoint=f"{bucket}/other-checkpoint")
