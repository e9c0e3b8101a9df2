"""The life of a checkpoint on Spark: daily starts, the finish, starts after it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.query.stream import Sinks
from tests.spark.conftest import write_calls

pytestmark = pytest.mark.spark


def add_day(calls: Path, day: int) -> None:
    calls.mkdir(exist_ok=True)
    modified = 1_700_000_000 + day
    write_calls(calls / f"{day}.parquet", start=100 * day, rows=100, modified=modified)


def per_minute(calls: Path, out: Path) -> Sinks:
    stream = ps.read_parquet(calls, time="ts")
    return stream.aggregate(window=ps.tumbling("1 minute"), n="count(*)").write_parquet(out)


def rows_in(out: Path) -> int:
    found = [pl.read_parquet(path, hive_partitioning=False) for path in out.rglob("*.parquet")]
    return int(pl.concat(found)["n"].sum())


def test_a_new_file_each_day_then_the_finish_then_one_too_many(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls, out, checkpoint = tmp_path / "calls", tmp_path / "out", tmp_path / "checkpoint"
    for day in range(3):
        add_day(calls, day)
        query = per_minute(calls, out).start(spark, checkpoint=checkpoint, available_now=True)
        query.awaitTermination()
        assert query.totals["read"] == 100 * (day + 1)
        assert rows_in(out) == (100 * day + 99) // 60 * 60, "whole minutes, and no other"
    for _ in range(2):  # the second has nothing left to do
        query = per_minute(calls, out).start(
            spark, checkpoint=checkpoint, available_now=True, finish=True
        )
        query.awaitTermination()
        assert query.exception() is None
        assert rows_in(out) == 300
    with pytest.raises(ps.FinishedError, match="finished with epoch 3"):
        per_minute(calls, out).start(spark, checkpoint=checkpoint)
    add_day(calls, 3)
    for finish in (True, False, True):
        query = per_minute(calls, out).start(
            spark, checkpoint=checkpoint, available_now=True, finish=finish
        )
        with pytest.raises(ps.FinishedError, match="use a new checkpoint"):
            query.awaitTermination()
        assert isinstance(query.exception(), ps.FinishedError)
    assert rows_in(out) == 300
