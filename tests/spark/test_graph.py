"""A whole graph on Spark, with a restart: every kind of operator, against the reference."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.query.stream import Sinks, Stream
from penstock.testing import evaluate
from penstock.testing.compare import difference
from tests.spark.conftest import call_rows, write_calls

pytestmark = pytest.mark.spark


class Quiet(ps.Process):
    """Says which keys had no row for three seconds, and how many they had before; 13 fails."""

    state: Mapping[str, Any] = {"n": pl.Int64, "last": pl.List(pl.Int64)}
    output: Mapping[str, Any] = {"n": pl.Int64, "last": pl.List(pl.Int64)}

    def on_row(self, row: Mapping[str, Any], context: ps.Context) -> None:
        """Count a row."""
        if row["x"] % 100 == 13:
            raise ValueError(f"unlucky {row['x']}")
        before = context.state or {"n": 0, "last": []}
        context.state = {"n": before["n"] + 1, "last": [*before["last"], row["x"]][-3:]}
        context.clear_timers()
        context.set_timer(context.time + timedelta(seconds=3))

    def on_timer(self, time: datetime, context: ps.Context) -> list[dict[str, Any]]:
        """Tell of the key and forget it."""
        state, context.state = context.state, None
        return [dict(state)] if state else []


class Numbered(ps.BatchProcess):
    """Numbers the rows of each key."""

    state: Mapping[str, Any] = {"n": pl.Int64}
    output: Mapping[str, Any] = {"n": pl.Int64, "x": pl.Int64}

    def on_rows(self, rows: pl.DataFrame, state: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Number many rows at once."""
        known = rows.join(state, on="src", how="left", maintain_order="left")
        number = pl.col("n").fill_null(0) + pl.int_range(1, pl.len() + 1).over("src")
        done = known.select("__row", "src", "x", n=number)
        return done, done.group_by("src").agg(pl.col("n").last())


def graph(calls: Stream, folder: Path) -> Sinks:
    """A diamond: two ways from the calls to a join, and other branches from the same prefix."""
    known = calls.enrich(pl.DataFrame({"src": ["k1", "k2"], "place": ["here", "there"]}), on="src")
    counted = known.aggregate(by="src", window=ps.count_window(10, every=5), total="sum(x)")
    numbered = known.filter("x % 3 = 0").process(Numbered(), by="src")
    pairs = numbered.join(
        counted.select("src", "total", ts="window_end"), on="src", within="20 seconds", how="left"
    )
    best = counted.select("src", "total").top(1, "total", window=ps.tumbling("1 minute"))
    quiet = known.filter("x % 11 < 6").process(Quiet(), by="src").explode("last")
    once = quiet.dedup(by="src", within="30 seconds")
    return pairs.write_parquet(folder / "pairs", ordered=True).also(
        best.write_parquet(folder / "best"),
        quiet.write_parquet(folder / "quiet"),
        once.write_parquet(folder / "once"),
    )


def test_a_graph_with_every_kind_of_operator(
    spark: SparkSession, calls: Path, tmp_path: Path
) -> None:
    for instances, more in ((1, 0), (3, 2)):
        for i in range(5, 5 + more):
            write_calls(calls / f"{i}.parquet", start=i * 100, rows=100, modified=1_700_000_000 + i)
        source = ps.read_parquet(calls, time="ts", max_files_per_epoch=2)
        query = graph(source, tmp_path).start(
            spark,
            checkpoint=tmp_path / "checkpoint",
            available_now=True,
            instances=instances,
            finish=more > 0,
        )
        assert query.awaitTermination(180)
        if not more:
            assert query.state("process-0", key="k3").height == 1
            letters = query.dead_letters()
            assert "Quiet" in letters["operator"][0]
            reasons = letters["reason"].to_list()
            assert "on_row: ValueError: unlucky 13; key: src='k6'" in reasons
    sinks = graph(ps.read_parquet(calls, time="ts"), tmp_path).sinks
    reference = evaluate(sinks, {0: call_rows(0, 700).to_dicts()}, finish=True)
    for (number, rows), name in zip(
        sorted(reference.rows.items()), ("pairs", "best", "quiet", "once"), strict=True
    ):
        assert len(rows) > 3, (number, name)
        found = pl.read_parquet(tmp_path / name / "**" / "*.parquet", hive_partitioning=False)
        odd = difference(found.to_dicts(), rows, ordered=name == "pairs")
        assert not odd, f"{name}: {odd}"
    assert query.totals["refusedResults"] == reference.refused_results == 4
