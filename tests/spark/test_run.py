"""Queries on Spark itself: sources, sinks, triggers, restart, the handle."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pyspark.sql import SparkSession

import penstock as ps
from penstock.query.stream import Stream
from tests.spark.conftest import call_rows, write_calls

pytestmark = pytest.mark.spark


def per_minute(stream: Stream) -> Stream:
    return stream.map(y="x * 2").aggregate(
        by="src",
        window=ps.sliding("1 minute", every="20 seconds"),
        n="count(*)",
        mean="avg(y)",
        last="last(x)",
    )


def expected(rows: pl.DataFrame, *, closed_by: int | None) -> pl.DataFrame:
    """The same in one Polars batch: every row into each of its three windows."""
    times = pl.col("ts").dt.epoch("s")
    found = (
        rows.with_columns(pl.int_ranges((times - 60) // 20 + 1, times // 20 + 1).alias("w"))
        .explode("w")
        .sort("ts")
        .group_by("src", "w")
        .agg(
            n=pl.len().cast(pl.Int64),
            mean=(pl.col("x") * 2).mean(),
            last=pl.col("x").last(),
        )
        .with_columns(end=pl.col("w") * 20 + 60)
    )
    if closed_by is not None:
        found = found.filter(pl.col("end") <= closed_by)
    return (
        found.with_columns(window_end=pl.from_epoch("end").cast(pl.Datetime("us")))
        .select("src", "window_end", "n", "mean", "last")
        .sort("src", "window_end")
    )


def tidy(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.select("src", "window_end", "n", "mean", "last").sort("src", "window_end")


LAST = int(call_rows(0, 500)["ts"].dt.epoch("s").max())  # type: ignore[arg-type]


@pytest.mark.parametrize(("instances", "time"), [(1, "timestamp"), (3, "timestamp_ntz")])
def test_files_and_frames_give_the_same_rows(
    spark: SparkSession, calls: Path, tmp_path: Path, instances: int, time: str
) -> None:
    files = ps.read_parquet(calls, time="ts", max_files_per_epoch=1)
    schema = f"src string, x bigint, ts {time}"
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(str(calls))
    frames = ps.from_spark(frame, time="ts")
    outputs = []
    for name, stream in (("files", files), ("frames", frames)):
        query = (
            per_minute(stream)
            .write_parquet(str(tmp_path / name))
            .start(
                spark,
                checkpoint=tmp_path / f"{name}-checkpoint",
                available_now=True,
                instances=instances,
            )
        )
        query.awaitTermination()
        assert query.totals["read"] == query.totals["processed"] == 500
        found = tidy(pl.read_parquet(tmp_path / name / "**/*.parquet"))
        outputs.append(found.unique(maintain_order=True))
        assert found.height == outputs[-1].height, "a row was written twice"
    assert_frame_equal(outputs[0], expected(call_rows(0, 500), closed_by=LAST))
    shown = pl.col("window_end").dt.replace_time_zone("UTC" if time == "timestamp" else None)
    assert_frame_equal(outputs[0].with_columns(shown), outputs[1])


@pytest.mark.parametrize("stateful", [True, False])
def test_an_ordered_sink_on_a_frame_of_many_partitions(
    spark: SparkSession, calls: Path, tmp_path: Path, stateful: bool
) -> None:
    frame = (
        spark.readStream.schema("src string, x bigint, ts timestamp")
        .option("maxFilesPerTrigger", 3)
        .parquet(str(calls))
        .repartition(5)
    )
    stream = ps.from_spark(frame, time="ts")
    result = per_minute(stream) if stateful else stream
    query = result.write_memory(ordered=True).start(
        spark, checkpoint=tmp_path / "c", available_now=True, finish=True
    )
    query.awaitTermination()
    found = query.table()
    if stateful:
        instants = pl.col("window_end").dt.replace_time_zone("UTC")
        wanted = expected(call_rows(0, 500), closed_by=None).with_columns(instants)
        assert_frame_equal(tidy(found), wanted)
        assert found["window_end"].is_sorted()
    else:
        assert found["x"].to_list() == list(range(500))
    assert "Spark's partitions" in query.explain()


@pytest.mark.parametrize("strategy", ["operator-set-cloud", "operator-cloud", "query-cloud"])
def test_every_strategy_on_spark(
    spark: SparkSession, calls: Path, tmp_path: Path, strategy: str
) -> None:
    stream = ps.read_parquet(calls, time="ts", max_files_per_epoch=3)
    query = per_minute(stream).filter("n > 1").write_memory(ordered=True).start(
        spark, checkpoint=tmp_path / "c", available_now=True, finish=True, strategy=strategy,
        instances=2,
    )  # fmt: skip
    query.awaitTermination()
    found = query.table()
    want = expected(call_rows(0, 500), closed_by=None).filter(pl.col("n") > 1)
    assert_frame_equal(tidy(found), want)
    assert found["window_end"].is_sorted()


def test_restart_goes_on_where_it_ended(spark: SparkSession, calls: Path, tmp_path: Path) -> None:
    def run(instances: int) -> None:
        stream = ps.read_parquet(calls, time="ts", max_files_per_epoch=2)
        query = (
            per_minute(stream)
            .write_parquet(str(tmp_path / "out"))
            .start(spark, checkpoint=tmp_path / "c", available_now=True, instances=instances)
        )
        query.awaitTermination()

    run(instances=1)
    write_calls(calls / "5.parquet", start=500, rows=100, modified=1_700_000_010)
    run(instances=2)
    found = tidy(pl.read_parquet(tmp_path / "out" / "**/*.parquet"))
    assert_frame_equal(found, expected(call_rows(0, 600), closed_by=LAST + 100))


def test_an_epoch_that_fails_is_redone_and_one_that_was_committed_is_not(
    spark: SparkSession, calls: Path, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    broken = threading.Event()

    def sink(frame: Any, epoch: int) -> None:
        seen.append((epoch, frame.count()))
        if epoch == 2 and not broken.is_set():
            broken.set()
            raise RuntimeError("the sink is down")

    def start() -> Any:
        stream = ps.read_parquet(calls, time="ts", max_files_per_epoch=1)
        return (
            per_minute(stream)
            .foreach_batch(sink)
            .start(spark, checkpoint=tmp_path / "c", available_now=True)
        )

    first = start()
    with pytest.raises(RuntimeError, match="the sink is down"):
        first.awaitTermination()
    assert not first.isActive
    assert "the sink is down" in str(first.exception())
    start().awaitTermination()
    assert [epoch for epoch, _ in seen] == [0, 1, 2, 2, 3, 4]
    assert seen[2] == seen[3]
    total = sum(dict(seen).values())
    assert total == expected(call_rows(0, 500), closed_by=LAST).height


def test_a_running_query_takes_new_files_and_rescales_without_a_stop(
    spark: SparkSession, calls: Path, tmp_path: Path
) -> None:
    stream = ps.read_parquet(calls, time="ts", max_files_per_epoch=1)
    query = (
        per_minute(stream)
        .write_memory("m")
        .start(spark, checkpoint=tmp_path / "c", every="50 milliseconds", name="live")
    )
    try:
        query.processAllAvailable()
        query.rescale(1, 3)
        write_calls(calls / "5.parquet", start=500, rows=100, modified=1_700_000_010)
        query.processAllAvailable()
        assert query.isActive
        assert query.name == "live"
        progress = query.lastProgress
        assert progress is not None
        assert {"batchId", "runId", "durationMs", "numInputRows"} <= set(progress)
        newest = [p for p in query.recentProgress if p["numInputRows"]][-1]
        assert newest["numInputRows"] == 100
        assert newest["penstock"]["tasks"] == 4
    finally:
        query.stop()
    assert query.exception() is None
    assert_frame_equal(tidy(query.table("m")), expected(call_rows(0, 600), closed_by=LAST + 100))


def test_a_query_that_is_stopped_at_any_moment_has_no_error(
    spark: SparkSession, calls: Path, tmp_path: Path
) -> None:
    stream = ps.read_parquet(calls, time="ts", max_files_per_epoch=1)
    for _ in range(3):
        query = (
            per_minute(stream)
            .write_parquet(str(tmp_path / "out"))
            .start(spark, checkpoint=tmp_path / "c")
        )
        query.stop()
        assert query.exception() is None
        assert not query.isActive
    last = (
        per_minute(stream)
        .write_parquet(str(tmp_path / "out"))
        .start(spark, checkpoint=tmp_path / "c", available_now=True)
    )
    last.awaitTermination()
    found = tidy(pl.read_parquet(tmp_path / "out" / "**/*.parquet"))
    assert_frame_equal(found, expected(call_rows(0, 500), closed_by=LAST))


def test_several_sinks_share_one_query(spark: SparkSession, calls: Path, tmp_path: Path) -> None:
    stream = ps.read_parquet(calls, time="ts")
    small, large = stream.route("x < 100", rest=True)
    both = small.write_memory("small").also(large.write_memory("large", ordered=True))
    query = both.start(spark, checkpoint=tmp_path / "c", available_now=True, finish=True)
    query.awaitTermination()
    assert sorted(query.table("small")["x"]) == list(range(100))
    assert query.table("large")["x"].to_list() == list(range(100, 500))
    with pytest.raises(KeyError, match="no memory sink 'other'"):
        query.table("other")


def test_rows_of_the_program(spark: SparkSession, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"k": "a", "ts": ps.at("2024-01-01 00:00:10")},
        {"k": None, "ts": None},
    ]
    stream = ps.from_rows(rows, time="ts")
    query = stream.write_memory().start(
        spark, checkpoint=tmp_path / "c", available_now=True, finish=True
    )
    query.awaitTermination()
    assert query.table()["k"].to_list() == ["a"]
    assert query.totals["refused"] == 1
    assert query.dead_letters()["reason"].to_list() == ["the time column 'ts' is null"]


def test_console(
    spark: SparkSession, calls: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = ps.read_parquet(calls, time="ts").filter("x = 3")
    query = stream.write_console().start(spark, checkpoint=tmp_path / "c", available_now=True)
    query.awaitTermination()
    printed = capsys.readouterr().out
    assert "epoch 0: 1 row" in printed
    assert "k3" in printed


def test_a_changed_query_is_refused_and_a_new_filter_is_not(
    spark: SparkSession, calls: Path, tmp_path: Path
) -> None:
    stream = ps.read_parquet(calls, time="ts")

    def start(result: Stream) -> None:
        result.write_parquet(str(tmp_path / "out")).start(
            spark, checkpoint=tmp_path / "c", available_now=True
        ).awaitTermination()

    start(per_minute(stream))
    start(per_minute(stream).filter("n > 2"))
    with pytest.raises(ps.CheckpointError, match="aggregate-0 window was"):
        start(stream.aggregate(by="src", window=ps.tumbling("1 hour"), n="count(*)"))


def test_options_that_make_no_sense_are_refused(
    spark: SparkSession, calls: Path, tmp_path: Path
) -> None:
    query = ps.read_parquet(calls, time="ts").write_memory()
    with pytest.raises(ps.QueryError, match="finish=True needs available_now=True"):
        query.start(spark, checkpoint=tmp_path, finish=True)
    with pytest.raises(ps.ConfigError, match="instances"):
        query.start(spark, checkpoint=tmp_path, instances=5000)
    missing = ps.read_parquet(tmp_path / "no", time="ts", schema={"ts": pl.Datetime})
    with pytest.raises(ps.QueryError, match="does not exist"):
        missing.write_memory().start(spark, checkpoint=tmp_path)
    spark.conf.set("spark.penstock.bukets", "4")
    try:
        with pytest.raises(ps.ConfigError, match=r"spark\.penstock\.bukets"):
            query.start(spark, checkpoint=tmp_path)
    finally:
        spark.conf.unset("spark.penstock.bukets")
