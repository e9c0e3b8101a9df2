"""A kind of source that Spark and the engine know nothing of: Spark lists what it prepares."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.base.errors import QueryError
from tests.counter import count_to, rows_between

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("instances", [1, 2])
def test_a_source_of_the_tests_runs_on_spark(
    spark: SparkSession, tmp_path: Path, instances: int
) -> None:
    rows = ps.from_rows(rows_between(1000, 1009), time="ts", delay="1 hour")
    query = (
        count_to(100, each=30)
        .union(rows)
        .select("n")
        .write_parquet(tmp_path / "out")
        .start(spark, checkpoint=tmp_path / "checkpoint", available_now=True, instances=instances)
    )
    query.awaitTermination()
    found = pl.read_parquet(tmp_path / "out" / "**" / "*.parquet", hive_partitioning=False)
    in_time = [n for n in range(100) if n % 10 != 9]
    assert sorted(found["n"]) == [*in_time, *range(1000, 1009)]
    assert query.lastProgress is not None
    assert query.lastProgress["penstock"]["rows"]["late"] == 10


def test_it_does_not_start_with_what_it_finds_wrong(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="source numbers: there is no number"):
        count_to(0, each=1).write_memory().start(spark, checkpoint=tmp_path / "checkpoint")
