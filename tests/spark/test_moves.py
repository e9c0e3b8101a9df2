"""Buckets that move in a query that runs on Spark: both protocols, and the same rows."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pyspark.sql import SparkSession

import penstock as ps
from penstock.plan.changes import MoveProtocol
from penstock.query.stream import Stream
from tests.spark.conftest import write_calls

BUCKETS = 1024


def sliding(stream: Stream) -> Stream:
    window = ps.sliding("4 minutes", every="1 minute")
    return stream.aggregate(by="src", window=window, n="count(*)", total="sum(x)")


@pytest.mark.parametrize("protocol", ["window", "state"])
def test_windows_move_while_the_query_runs(
    spark: SparkSession, calls: Path, tmp_path: Path, protocol: MoveProtocol
) -> None:
    stream = ps.read_parquet(calls, time="ts", max_files_per_epoch=1)
    query = (
        sliding(stream)
        .write_memory("m")
        .start(spark, checkpoint=tmp_path / "c", every="50 milliseconds", instances={1: 2})
    )
    try:
        query.processAllAvailable()
        query.move(
            "aggregate-0", {b: 1 - b * 2 // BUCKETS for b in range(BUCKETS)}, protocol=protocol
        )
        for i in range(5, 10):
            path = calls / f"{i}.parquet"
            write_calls(path, start=100 * i, rows=100, modified=1_700_000_000 + i)
            query.processAllAvailable()
        (change,) = query.reconfigurations.to_dicts()
    finally:
        query.stop()
    assert query.exception() is None
    assert (change["protocol"], change["buckets"], change["outcome"]) == (protocol, BUCKETS, "done")
    assert (change["bytes"] == 0) == (protocol == "window")
    still = (
        sliding(stream)
        .write_memory("m")
        .start(spark, checkpoint=tmp_path / "d", available_now=True)
    )
    still.awaitTermination()
    by = ["src", "window_start"]
    expected = still.table("m").filter(pl.col("window_end") <= query.table("m")["window_end"].max())
    assert_frame_equal(query.table("m").sort(by), expected.sort(by))
