"""An event time that is an expression, over streaming DataFrames of Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.query.stream import Stream


def _stream(spark: SparkSession, folder: Path, seconds: list[int | None]) -> Stream:
    rows = [(second, number) for number, second in enumerate(seconds)]
    spark.createDataFrame(rows, "sec bigint, x bigint").coalesce(1).write.parquet(str(folder))
    frame = spark.readStream.schema("sec bigint, x bigint").parquet(str(folder))
    return ps.from_spark(frame, time="to_timestamp(sec)", name=folder.name)


@pytest.mark.parametrize("sources", [1, 2])
def test_windows_are_over_it(spark: SparkSession, tmp_path: Path, sources: int) -> None:
    """One DataFrame is read where Spark has its rows; two are packed into splits."""
    made = [_stream(spark, tmp_path / f"in{i}", [i, 30, 61, None, 2**62]) for i in range(sources)]
    stream = made[0].union(*made[1:]) if sources > 1 else made[0]
    minutes = stream.aggregate(window=ps.tumbling("1 minute"), n="count(*)")
    query = minutes.write_memory("minutes").start(
        spark, checkpoint=tmp_path / "checkpoint", available_now=True, finish=True
    )
    query.awaitTermination(120)
    assert query.exception() is None
    found = query.table("minutes").sort("window_start")
    assert found["n"].to_list() == [2 * sources, sources]
    assert found["window_start"].dt.epoch("s").to_list() == [0, 60]
    assert query.totals["refused"] == query.dead_letters().height == 2 * sources
