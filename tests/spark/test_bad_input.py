"""Bad input on Spark: each costs exactly itself, with a reason, and the other rows are right."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.base.errors import TaskError
from penstock.query.stream import Stream
from penstock.spark.failures import SparkFailureError
from penstock.spark.handle import Query
from tests.spark.conftest import call_rows, write_calls

pytestmark = pytest.mark.spark


def run(spark: SparkSession, stream: Stream, tmp_path: Path, instances: int = 1) -> Query:
    query = (
        stream.select("x")
        .write_memory()
        .start(
            spark, checkpoint=tmp_path / "c", available_now=True, finish=True, instances=instances
        )
    )
    query.awaitTermination()
    totals = query.totals
    assert totals["read"] == totals["processed"] + totals["late"] + totals["refused"]
    return query


def values(query: Query) -> list[int]:
    return sorted(query.table()["x"].to_list())


@pytest.mark.parametrize("instances", [1, 2])
def test_a_malformed_file(spark: SparkSession, calls: Path, tmp_path: Path, instances: int) -> None:
    (calls / "bad.parquet").write_bytes(b"PAR1 this is no parquet file")
    query = run(spark, ps.read_parquet(calls, time="ts", schema=call_rows(0, 1).schema),
                tmp_path, instances)  # fmt: skip
    assert values(query) == list(range(500))
    letters = query.dead_letters()
    assert letters["path"].str.ends_with("bad.parquet").all()
    assert "not a readable parquet file" in letters["reason"][0]


def test_a_file_deleted_before_it_is_read(spark: SparkSession, calls: Path, tmp_path: Path) -> None:
    """Spark lists the files of an epoch when it begins; one of them goes between that and the read.

    The first epoch's sink removes the file of the second, which Spark has already admitted.
    """

    def remove(frame: object, epoch: int) -> None:
        if epoch == 0:
            (calls / "1.parquet").unlink()

    stream = ps.read_parquet(calls, time="ts", max_files_per_epoch=1)
    sinks = stream.select("x").write_memory().also(stream.foreach_batch(remove))
    query = sinks.start(spark, checkpoint=tmp_path / "c", available_now=True, finish=True)
    query.awaitTermination()
    assert values(query) == [x for x in range(500) if not 100 <= x < 200]
    assert query.dead_letters()["reason"].str.contains("the file is gone").all()


def test_a_null_time(spark: SparkSession, calls: Path, tmp_path: Path) -> None:
    bad = call_rows(500, 3).with_columns(
        ts=pl.when(pl.col("x") == 501).then(None).otherwise(pl.col("ts"))
    )
    bad.write_parquet(calls / "5.parquet")
    query = run(spark, ps.read_parquet(calls, time="ts"), tmp_path)
    assert values(query) == [*range(501), 502]
    assert '"x":501' in query.dead_letters()["row"][0]


@pytest.mark.parametrize("instances", [1, 2])
def test_a_type_that_changes(
    spark: SparkSession, calls: Path, tmp_path: Path, instances: int
) -> None:
    halves = call_rows(500, 3).with_columns(x=pl.Series([500.0, 501.5, 502.0]))
    halves.write_parquet(calls / "5.parquet")
    os.utime(calls / "5.parquet", (1_700_000_010, 1_700_000_010))
    query = run(spark, ps.read_parquet(calls, time="ts"), tmp_path, instances)
    assert values(query) == [*range(501), 502]
    assert query.dead_letters()["reason"].to_list() == [
        "column 'x': 501.5 of type Float64 has no exact value of type Int64"
    ]  # fmt: skip


def test_a_column_that_is_missing(spark: SparkSession, calls: Path, tmp_path: Path) -> None:
    call_rows(500, 3).drop("x").write_parquet(calls / "5.parquet")
    os.utime(calls / "5.parquet", (1_700_000_010, 1_700_000_010))
    query = run(spark, ps.read_parquet(calls, time="ts"), tmp_path)
    assert values(query) == list(range(500))
    assert query.totals["refused"] == 3


@pytest.mark.parametrize("strategy", ["operator-set-cloud", "operator-cloud"])
def test_an_apply_that_raises(
    spark: SparkSession, calls: Path, tmp_path: Path, strategy: str
) -> None:
    def picky(frame: pl.DataFrame) -> pl.DataFrame:
        if (frame["x"] == 250).any():
            raise ValueError("250 is not to my taste")
        return frame.select(x="x", y=pl.col("x") * 2)

    stream = ps.read_parquet(calls, time="ts").apply(picky, schema={"x": pl.Int64, "y": pl.Int64})
    query = stream.write_memory().start(
        spark, checkpoint=tmp_path / "c", available_now=True, strategy=strategy, instances=2
    )
    query.awaitTermination()
    assert values(query) == [x for x in range(500) if x != 250]
    letter = query.dead_letters().row(0, named=True)
    assert letter["operator"] == "apply picky"
    assert letter["reason"] == "ValueError: 250 is not to my taste"
    assert letter["position"] == 250
    assert query.totals["refused"] == 1


def test_too_many_refused_rows_stop_the_query_with_the_reason(
    spark: SparkSession, calls: Path, tmp_path: Path
) -> None:
    spark.conf.set("spark.penstock.maxRefusedRows", "10")
    try:
        stream = ps.read_parquet(calls, time="ts").map(n="cast(src as int)")
        query = stream.write_memory().start(spark, checkpoint=tmp_path / "c", available_now=True)
        with pytest.raises(ps.RefusedLimitError, match=r"limit=10 .*first reason: map n = cast"):
            query.awaitTermination()
    finally:
        spark.conf.unset("spark.penstock.maxRefusedRows")
    assert query.totals == {}


def test_late_rows_can_be_read(spark: SparkSession, calls: Path, tmp_path: Path) -> None:
    write_calls(calls / "5.parquet", start=100, rows=2, modified=1_700_000_010)
    write_calls(calls / "6.parquet", start=495, rows=10, modified=1_700_000_011)
    stream = ps.read_parquet(calls, time="ts", delay="4 seconds", max_files_per_epoch=2)
    query = run(spark, stream, tmp_path)
    late = query.late()["calls"]
    assert late["x"].to_list() == [100, 101]
    assert values(query) == sorted([*range(500), *range(495, 505)])


@pytest.mark.parametrize("form", ["csv", "ndjson", "arrow"])
def test_other_formats_and_their_bad_lines(spark: SparkSession, tmp_path: Path, form: str) -> None:
    folder = tmp_path / form
    folder.mkdir()
    rows = call_rows(0, 50)
    path = folder / f"1.{form}"
    if form == "csv":
        rows.write_csv(path)
        with path.open("a") as file:
            file.write("k1,not a number,2024-01-01T00:01:00.000000\n")
    elif form == "ndjson":
        rows.write_ndjson(path)
        with path.open("a") as file:
            file.write('{"src": "k1", "x": \n')
    else:
        rows.write_ipc(path)
    read = {"csv": ps.read_csv, "ndjson": ps.read_ndjson, "arrow": ps.read_arrow}[form]
    query = run(spark, read(folder, time="ts", schema=rows.schema), tmp_path)
    assert values(query) == list(range(50))
    assert query.totals["refused"] == (0 if form == "arrow" else 1)


def test_a_module_that_workers_lack_is_told_in_a_sentence(
    spark: SparkSession, calls: Path, tmp_path: Path
) -> None:
    ghost = types.ModuleType("only_in_the_driver")
    exec("def same(frame):\n    return frame", ghost.__dict__)
    stream = ps.read_parquet(calls, time="ts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, ghost.__name__, ghost)
        query = (
            stream.apply(ghost.same, schema=stream.schema)
            .write_memory()
            .start(spark, checkpoint=tmp_path / "c", available_now=True)
        )
        with pytest.raises(TaskError, match="workers cannot import") as caught:
            query.awaitTermination()
    assert "only_in_the_driver" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_an_error_of_spark_is_told_in_a_few_lines(spark: SparkSession, tmp_path: Path) -> None:
    """What Spark itself fails with, in a user's DataFrame, is told at its heart."""
    frame = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    broken = frame.selectExpr("timestamp", "raise_error(concat('boom ', value)) AS x")
    query = (
        ps.from_spark(broken, time="timestamp")
        .write_memory()
        .start(spark, checkpoint=tmp_path / "c")
    )
    with pytest.raises(TaskError, match="boom") as caught:
        query.awaitTermination(120)
    assert len(str(caught.value)) < 1_000
    assert "\tat org.apache" not in str(caught.value)
    assert isinstance(caught.value.__cause__, SparkFailureError)
    assert repr(query).startswith("<Query: failed, ")


def test_a_failure_of_a_users_function_names_its_line(
    spark: SparkSession, calls: Path, tmp_path: Path
) -> None:
    def fail(rows: pl.DataFrame) -> pl.DataFrame:
        raise KeyError("mine")  # this line

    with Path(__file__).open() as source:
        line = next(n for n, text in enumerate(source, start=1) if "# this line" in text)
    broken = ps.read_parquet(calls, time="ts").apply(fail, schema={"x": pl.Int64})
    with pytest.raises(TaskError, match=rf"KeyError: 'mine' \[.*test_bad_input.py:{line}\]"):
        run(spark, broken, tmp_path)
