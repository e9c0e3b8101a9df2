"""What native Structured Streaming can say too, it says the same: joins, sessions and others."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that PySpark's users know

import penstock as ps
from penstock.query.stream import Stream
from penstock.testing.compare import difference

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1)
SCHEMA = "k string, x bigint, ts timestamp"
FILES, ROWS = 4, 500
SURE = START + timedelta(seconds=FILES * ROWS - 120)
"""Results up to here are final in both engines: native's watermark lags by a micro-batch."""


def written(folder: Path, seed: int) -> Path:
    """Write a stream in time order, with equal times and a hot key; return its folder."""
    random = np.random.default_rng(seed)
    folder.mkdir()
    seconds = np.sort(random.integers(0, FILES * ROWS, FILES * ROWS))
    keys = np.where(random.random(FILES * ROWS) < 0.3, 0, random.integers(1, 40, FILES * ROWS))
    rows = pl.DataFrame(
        {
            "k": [None if key == 39 else f"k{key}" for key in keys],
            "x": random.integers(0, 9, FILES * ROWS),
            "ts": [START + timedelta(seconds=int(second)) for second in seconds],
        },
        schema={"k": pl.String, "x": pl.Int64, "ts": pl.Datetime("us")},
    )
    for i in range(FILES):
        path = folder / f"{i}.parquet"
        rows[i * ROWS : (i + 1) * ROWS].write_parquet(path)
        os.utime(path, (1_700_000_000 + i, 1_700_000_000 + i))
    return folder


@pytest.fixture
def left(tmp_path: Path) -> Path:
    return written(tmp_path / "left", 1)


@pytest.fixture
def right(tmp_path: Path) -> Path:
    return written(tmp_path / "right", 2)


def ours(spark: SparkSession, stream: Stream, folder: Path) -> pl.DataFrame:
    query = stream.write_parquet(folder / "ours").start(
        spark, checkpoint=folder / "ours-checkpoint", available_now=True, instances=2
    )
    assert query.awaitTermination(120)
    return pl.read_parquet(folder / "ours" / "**" / "*.parquet")


def native(frame: DataFrame, folder: Path) -> pl.DataFrame:
    query = (
        frame.writeStream.outputMode("append")
        .format("parquet")
        .option("checkpointLocation", str(folder / "native-checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "native"))
    )
    assert query.awaitTermination(180)
    found = pl.read_parquet(folder / "native" / "*.parquet")
    zoned = [name for name, dtype in found.schema.items() if isinstance(dtype, pl.Datetime)]
    return found.with_columns(
        pl.col(name).dt.replace_time_zone(None).dt.cast_time_unit("us") for name in zoned
    )


def stream_of(folder: Path) -> Stream:
    return ps.read_parquet(folder, time="ts", max_files_per_epoch=1)


def frame_of(spark: SparkSession, folder: Path) -> DataFrame:
    files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))
    return files.withWatermark("ts", "0 seconds")


def agree(mine: pl.DataFrame, theirs: pl.DataFrame, *, least: int) -> None:
    assert mine.height > least
    odd = difference(mine.select(sorted(mine.columns)).to_dicts(),
                     theirs.select(sorted(mine.columns)).to_dicts())  # fmt: skip
    assert not odd, odd


BAND = "l.k = r.k and r.ts > l.ts - interval 10 seconds and r.ts < l.ts + interval 10 seconds"


def paired(spark: SparkSession, left: Path, right: Path, how: str) -> DataFrame:
    first, second = frame_of(spark, left).alias("l"), frame_of(spark, right).alias("r")
    pairs = first.join(second, F.expr(f"{BAND} and l.x <> r.x"), how)
    return pairs.select(
        F.col("l.k").alias("k"), F.col("l.x").alias("x"), F.col("l.ts").alias("ts"),
        F.col("r.x").alias("x_right"), F.col("r.ts").alias("ts_right"),
    )  # fmt: skip


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_join_with_a_band(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path, how: str
) -> None:
    pairs = stream_of(left).join(
        stream_of(right), on="k", within="10 seconds", where="x <> x_right", how=how
    )
    sure = pl.col("ts") <= SURE
    mine = ours(spark, pairs, tmp_path).filter(sure)
    theirs = native(paired(spark, left, right, how), tmp_path).filter(sure)
    assert mine["x_right"].null_count() == 0 or how == "left"
    agree(mine, theirs, least=3000)


def test_sessions(spark: SparkSession, left: Path, tmp_path: Path) -> None:
    sessions = stream_of(left).aggregate(
        by="k", window=ps.session("20 seconds"), n="count(*)", total="sum(x)", most="max(x)"
    )
    window = F.session_window("ts", "20 seconds")
    counted = frame_of(spark, left).groupBy("k", window.alias("w"))
    frame = counted.agg(
        F.count("*").alias("n"), F.sum("x").alias("total"), F.max("x").alias("most")
    ).select("k", F.col("w.start").alias("window_start"), F.col("w.end").alias("window_end"),
             "n", "total", "most")  # fmt: skip
    sure = pl.col("window_end") <= SURE
    agree(
        ours(spark, sessions, tmp_path).filter(sure),
        native(frame, tmp_path).filter(sure),
        least=500,
    )


def test_dedup(spark: SparkSession, left: Path, tmp_path: Path) -> None:
    mine = ours(spark, stream_of(left).dedup(by=("k", "x")), tmp_path)
    theirs = native(frame_of(spark, left).dropDuplicates(["k", "x"]), tmp_path)
    last = theirs["ts"].max()
    # Which of several rows of one time is the first is only told by Penstock; the last time waits.
    agree(mine.filter(pl.col("ts") < last), theirs.filter(pl.col("ts") < last), least=200)


def test_enrich(spark: SparkSession, left: Path, tmp_path: Path) -> None:
    table = pl.DataFrame({"k": ["k0", "k3", "k7"], "label": ["hot", "c", "g"]})
    mine = ours(spark, stream_of(left).enrich(table, on="k", how="left"), tmp_path)
    labels = spark.createDataFrame(table.rows(), "k string, label string")
    agree(mine, native(frame_of(spark, left).join(labels, "k", "left"), tmp_path), least=1999)


def test_a_join_of_one_key_is_not_lost_to_skew(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    """The hot key alone, on several instances: the same number of pairs as native counts."""
    hot = [stream_of(folder).filter("k = 'k0'") for folder in (left, right)]
    pairs = hot[0].join(hot[1], on="k", within="30 seconds")
    first = frame_of(spark, left).where("k = 'k0'").alias("l")
    second = frame_of(spark, right).where("k = 'k0'").alias("r")
    frame = first.join(second, F.expr(BAND.replace("10", "30"))).select(
        "l.k", "l.x", "l.ts", F.col("r.x").alias("x_right"), F.col("r.ts").alias("ts_right")
    )
    agree(ours(spark, pairs, tmp_path), native(frame, tmp_path), least=5000)
