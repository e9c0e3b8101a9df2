"""Files and frames as sources on Spark: half-written, given back, in folders, read twice."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.driver.again import give_back
from penstock.files.place import place_of
from penstock.query.stream import Sinks
from penstock.spark.handle import Query
from penstock.state.care.verify import verify
from tests.spark.conftest import call_rows, write_calls

pytestmark = pytest.mark.spark

SCHEMA = call_rows(0, 1).schema


def run(spark: SparkSession, sinks: Sinks, checkpoint: Path, *, finish: bool = False) -> Query:
    query = sinks.start(spark, checkpoint=checkpoint, available_now=True, finish=finish)
    query.awaitTermination()
    return query


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it has not happened in time"
        time.sleep(0.05)


def halve(path: Path, start: int) -> bytes:
    write_calls(path, start=start, rows=100, modified=1_700_000_100)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return whole


def test_an_idle_query_reads_a_file_once_it_is_complete(
    spark: SparkSession, calls: Path, tmp_path: Path
) -> None:
    whole = halve(calls / "5.parquet", 500)
    stream = ps.read_parquet(calls, time="ts", schema=SCHEMA)
    query = stream.select("x").write_memory().start(spark, checkpoint=tmp_path / "c")
    try:
        until(lambda: query.files.get("calls", {}).get("waiting") == 1)
        assert query.unread_files["status"].to_list() == ["waiting"]
        (calls / "5.parquet").write_bytes(whole)
        until(lambda: query.table().height == 600)
        assert sorted(query.table()["x"]) == list(range(600))
        assert query.totals["files"] == {"seen": 6, "read": 6, "refused": 0, "waiting": 0}
        assert query.dead_letters().is_empty()
        # An epoch is told of after its results are published: the last one may take a moment.
        until(lambda: sum(epoch["files"]["read"] for epoch in query.epochs) == 6)
    finally:
        query.stop()
    assert query.exception() is None


@pytest.mark.parametrize("instances", [1, 2])
def test_waiting_refused_and_given_back(
    spark: SparkSession, calls: Path, tmp_path: Path, instances: int
) -> None:
    """Runs that end: a file waits from one to the next, is refused, mended and given back."""
    spark.conf.set("spark.penstock.instances", instances)
    try:
        self_mending = halve(calls / "5.parquet", 500)
        broken = halve(calls / "6.parquet", 500)
        checkpoint = tmp_path / "c"

        def again(patience: str = "1 minute") -> Query:
            stream = ps.read_parquet(
                calls, time="ts", schema=SCHEMA, delay="1 hour", patience=patience
            )
            return run(spark, stream.select("x").write_parquet(tmp_path / "out"), checkpoint)

        assert again().totals["files"] == {"seen": 7, "read": 5, "refused": 0, "waiting": 2}
        (calls / "5.parquet").write_bytes(self_mending)
        query = again("0 seconds")  # no new file: what waits is tried at the start
        assert query.totals["files"] == {"seen": 7, "read": 6, "refused": 1, "waiting": 0}
        assert query.dead_letters()["path"].to_list() == [str(calls / "6.parquet")]
        (calls / "6.parquet").write_bytes(broken)
        give_back(place_of(checkpoint) / "penstock", "6.parquet")
        assert again().totals["files"] == {"seen": 7, "read": 7, "refused": 0, "waiting": 0}
        out = pl.read_parquet(tmp_path / "out/*/*.parquet")["x"]
        assert out.sort().to_list() == sorted([*range(600), *range(500, 600)])
        assert list(verify(checkpoint).findings) == []
    finally:
        spark.conf.unset("spark.penstock.instances")


@pytest.mark.parametrize("instances", [1, 2])
def test_an_empty_file_is_seen(
    spark: SparkSession, calls: Path, tmp_path: Path, instances: int
) -> None:
    """Spark notes an empty file as read and hands out nothing for it; we count it, and wait."""
    (calls / "5.parquet").touch()
    stream = ps.read_parquet(calls, time="ts", schema=SCHEMA, delay="1 hour")
    sinks, checkpoint = stream.select("x").write_parquet(tmp_path / "out"), tmp_path / "c"
    query = sinks.start(spark, checkpoint=checkpoint, available_now=True, instances=instances)
    query.awaitTermination()
    assert query.totals["files"] == {"seen": 6, "read": 5, "refused": 0, "waiting": 1}
    assert query.unread_files["path"].to_list() == [f"file:{calls / '5.parquet'}"]
    write_calls(calls / "5.parquet", start=500, rows=100, modified=1_700_000_100)
    assert run(spark, sinks, checkpoint).totals["files"] == {
        "seen": 6, "read": 6, "refused": 0, "waiting": 0
    }  # fmt: skip
    out = pl.read_parquet(tmp_path / "out/*/*.parquet")["x"]
    assert out.sort().to_list() == list(range(600))


def test_the_end_of_the_input_refuses_what_waits(
    spark: SparkSession, calls: Path, tmp_path: Path
) -> None:
    halve(calls / "5.parquet", 500)
    stream = ps.read_parquet(calls, time="ts", schema=SCHEMA)
    query = run(spark, stream.select("x").write_memory(), tmp_path / "c", finish=True)
    assert query.totals["files"] == {"seen": 6, "read": 5, "refused": 1, "waiting": 0}
    assert query.epochs[-1]["files"]["refused"] == 1
    assert "not a readable parquet file" in query.dead_letters()["reason"][0]


def test_one_dataframe_as_several_sources(spark: SparkSession, calls: Path, tmp_path: Path) -> None:
    frame = (
        spark.readStream.format("parquet")
        .schema("src string, x bigint, ts timestamp_ntz")
        .option("maxFilesPerTrigger", 2)
        .load(str(calls))
    )
    low, high = frame.where("x < 100"), frame.where("x >= 450")
    streams = [ps.from_spark(f, time="ts").select("x") for f in (frame, frame, low, high)]
    for day in range(2):  # a restart finds its way in Spark's log
        sinks = streams[0].union(*streams[1:]).write_memory()
        query = run(spark, sinks, tmp_path / "c")
        write_calls(calls / f"{5 + day}.parquet", start=500 + 100 * day, rows=100,
                    modified=1_700_000_010 + day)  # fmt: skip
        assert query.totals["read"] == [500 * 2 + 100 + 50, 600 * 2 + 100 + 150][day]
    assert list(verify(tmp_path / "c").findings) == []


def test_one_folder_twice_and_its_late_rows(
    spark: SparkSession, calls: Path, tmp_path: Path
) -> None:
    """Sources with one name are told apart; late rows can be read as input again."""
    write_calls(calls / "5.parquet", start=100, rows=3, modified=1_700_000_010)
    left = ps.read_parquet(calls, time="ts", schema=SCHEMA)
    right = ps.read_parquet(calls, time="ts", schema=SCHEMA, late="needed")
    query = run(spark, left.select("x").union(right.select("x")).write_memory(), tmp_path / "c")
    assert query.totals["late"] == 6
    late = query.late()
    assert set(late) == {"calls", "calls #2"}
    assert late["calls"].drop("epoch").equals(call_rows(100, 3))
    assert late["calls #2"].columns == ["x", "ts", "epoch"]
    assert query.files["calls #2"] == {"seen": 6, "read": 6, "refused": 0, "waiting": 0}


def test_late_rows_of_a_dataframe(spark: SparkSession, calls: Path, tmp_path: Path) -> None:
    write_calls(calls / "5.parquet", start=100, rows=3, modified=1_700_000_010)
    frame = (
        spark.readStream.format("parquet")
        .schema("src string, x bigint, ts timestamp_ntz")
        .option("maxFilesPerTrigger", 5)
        .load(str(calls))
    )
    stream = ps.from_spark(frame, time="ts", late="all", name="f")
    query = run(spark, stream.select("x").write_memory(), tmp_path / "c")
    assert query.late()["f"].drop("epoch").sort("x").equals(call_rows(100, 3))


def test_folders_in_the_folder(spark: SparkSession, calls: Path, tmp_path: Path) -> None:
    """Files below a source's folder are read if partitions are asked for; else those in it are."""
    for day, start in ((1, 500), (2, 600)):
        (calls / f"day={day}" / "kind=a b").mkdir(parents=True)
        write_calls(calls / f"day={day}" / "kind=a b" / "x.parquet", start=start, rows=10,
                    modified=1_700_000_100 + day)  # fmt: skip
    flat = ps.read_parquet(calls, time="ts", schema=SCHEMA, name="flat")
    deep = ps.read_parquet(
        calls,
        time="ts",
        schema=SCHEMA,
        name="deep",
        partitions={"day": pl.Int64, "kind": pl.String},
    )
    sinks = flat.select("x").write_memory("flat").also(
        deep.select("x", "day", "kind").write_memory("deep")
    )  # fmt: skip
    query = run(spark, sinks, tmp_path / "c")
    assert query.table("flat")["x"].sort().to_list() == list(range(500))
    found = query.table("deep").group_by("day", "kind").len().sort("day")
    assert found.rows() == [(1, "a b", 10), (2, "a b", 10)]
    assert query.files == {
        "flat": {"seen": 5, "read": 5, "refused": 0, "waiting": 0},
        "deep": {"seen": 7, "read": 2, "refused": 5, "waiting": 0},
    }
    assert "no folder day=… in its path" in query.dead_letters()["reason"].to_list()


def test_packed_csv_with_options(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "csv"
    folder.mkdir()
    text = "# made by hand\nsrc;x;ts\nk;1;2024-01-01 00:00:00\nk;NA;2024-01-01 00:00:01\n"
    (folder / "1.csv").write_bytes(text.encode("utf-16"))
    os.utime(folder / "1.csv", (1_700_000_000, 1_700_000_000))
    stream = ps.read_csv(
        folder, time="ts", schema=SCHEMA, separator=";", null_values="NA", comment="#",
        encoding="utf-16",
    )  # fmt: skip
    query = run(spark, stream.select("x").write_memory(), tmp_path / "c")
    assert query.table()["x"].to_list() == [1, None]
