"""Sinks' folders on Spark: who may write there, what readers get, one query for a checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.query.stream import Sinks
from tests.spark.conftest import write_calls
from tests.unit.test_owners import begin, feed

pytestmark = pytest.mark.spark


def rows_of(calls: Path, out: Path, mode: str = "error") -> Sinks:
    stream = ps.read_parquet(calls, time="ts", max_files_per_epoch=1)
    return stream.write_parquet(out, mode=mode)


def add_file(calls: Path, number: int) -> None:
    calls.mkdir(exist_ok=True)
    modified = 1_700_000_000 + number
    write_calls(calls / f"{number}.parquet", start=100 * number, rows=100, modified=modified)


def test_spark_reads_the_epochs_of_an_ordered_output_in_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = begin(tmp_path, ordered=True)
    feed(run, *range(12))
    run.finish()
    found = spark.read.parquet(str(tmp_path / "out"))
    assert dict(found.dtypes)["epoch"] == "int"
    assert [row.a for row in found.filter("epoch = 11").collect()] == [10]
    names = sorted(path.rsplit("/", 2)[1] for path in found.inputFiles())
    assert [int(name.removeprefix("epoch=")) for name in names] == list(range(1, 13))


def test_a_second_start_is_refused_and_the_first_query_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls, out, checkpoint = tmp_path / "calls", tmp_path / "out", tmp_path / "checkpoint"
    add_file(calls, 0)
    query = rows_of(calls, out).start(spark, checkpoint=checkpoint, name="first")
    try:
        query.processAllAvailable()
        (tmp_path / "link").symlink_to(checkpoint)
        for other in (checkpoint, f"file://{checkpoint}", tmp_path / "link"):
            with pytest.raises(ps.CheckpointError, match=r"query 'first' .* stop that one first"):
                rows_of(calls, out).start(spark, checkpoint=other)
        with pytest.raises(ps.OutputError, match=r"of checkpoint '.*/checkpoint'"):
            rows_of(calls, out).start(spark, checkpoint=tmp_path / "another")
        shutil.move(out, tmp_path / "moved")
        add_file(calls, 1)
        query.processAllAvailable()
        assert query.isActive
        assert query.exception() is None
    finally:
        query.stop()
    again = rows_of(calls, out).start(spark, checkpoint=checkpoint, available_now=True)
    again.awaitTermination()
    found = [pl.scan_parquet(place).collect().height for place in (tmp_path / "moved", out)]
    assert (found, again.totals["written"]) == ([100, 100], 200)


def test_an_old_folder_is_refused_to_a_new_checkpoint_or_overwritten(
    spark: SparkSession, tmp_path: Path
) -> None:
    calls, out, checkpoint = tmp_path / "calls", tmp_path / "out", tmp_path / "checkpoint"
    add_file(calls, 0)
    for mode in ("error", "overwrite"):
        query = rows_of(calls, out, mode).start(spark, checkpoint=checkpoint, available_now=True)
        query.awaitTermination()
        assert query.totals["written"] == 100
        assert pl.scan_parquet(out).collect().height == 100
        shutil.rmtree(checkpoint)
        with pytest.raises(ps.OutputError, match="not of this checkpoint"):
            rows_of(calls, out).start(spark, checkpoint=checkpoint, available_now=True)
        shutil.rmtree(checkpoint)
