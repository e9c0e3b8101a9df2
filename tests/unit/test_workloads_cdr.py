"""The queries on call records against batch jobs that are written another way."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from bench.batch import calls as batch
from bench.compare import frame_difference
from bench.local import run_local
from penstock.workloads import cdr
from penstock.workloads.calls import CallRecords

ROWS = 20_000
MINUTE = 60_000_000


def expect(got: pl.DataFrame, wanted: pl.DataFrame, *, at_least: int) -> None:
    odd = frame_difference(got, wanted)
    assert not odd, odd
    assert wanted.height >= at_least


@pytest.mark.parametrize("instances", [1, 3])
def test_calls_by_district(instances: int, tmp_path: Path) -> None:
    made = CallRecords(rows=ROWS, districts=10, hours=0.5)
    got = run_local(made, cdr.calls_by_district, tmp_path, instances=instances)
    means = got.drop("window_end").with_columns(pl.col("mean").cast(pl.Int64))
    wanted = batch.by_district(made.frame(0, ROWS).lazy())
    wanted = wanted.with_columns(pl.col("mean").cast(pl.Int64))  # durations are whole microseconds
    expect(means, wanted, at_least=1_000)


def test_durations(tmp_path: Path) -> None:
    made = CallRecords(rows=1_000)
    got = run_local(made, cdr.durations, tmp_path)
    rows = made.frame(0, 1_000)
    expect(got, rows.with_columns(duration=rows["end"] - rows["start"]), at_least=1_000)


@pytest.mark.parametrize("instances", [1, 3])
def test_calls_of_one_caller_within_a_minute(instances: int, tmp_path: Path) -> None:
    made = CallRecords(rows=ROWS, callers=200, hours=0.5)
    got = run_local(made, cdr.nearby_calls, tmp_path, instances=instances)
    assert (got["apart"] == got["ts_right"] - got["ts"]).all()
    wanted = batch.nearby(made.frame(0, ROWS).lazy(), above_km=-1.0).collect()
    expect(got.select("src", "ts", "ts_right", "km"), wanted, at_least=50_000)


@pytest.mark.parametrize("instances", [1, 3])
def test_overlapping_calls(instances: int, tmp_path: Path) -> None:
    made = CallRecords(rows=3_000, callers=300, hours=0.2)
    got = run_local(made, cdr.overlapping_calls, tmp_path, instances=instances)
    wanted = batch.overlapping(made.frame(0, 3_000).lazy(), within_us=MINUTE).collect()
    expect(got, wanted, at_least=1_000)


@pytest.mark.parametrize("instances", [1, 3])
def test_high_mobility(instances: int, tmp_path: Path) -> None:
    made = CallRecords(rows=ROWS, callers=500, hours=1.0, settled=True, away_one_in=20)
    got = run_local(made, cdr.high_mobility, tmp_path, instances=instances)
    wanted = batch.fast_phones(made.frame(0, ROWS).lazy(), districts=25, kmh=500.0)
    expect(got.drop("window_end"), wanted, at_least=50)


def test_comparisons_are_counted_from_the_data() -> None:
    calls = CallRecords(rows=500, hours=0.1).frame(0, 500)
    pairs = calls.select("ts").join(calls.select("ts"), how="cross")
    near = (pl.col("ts") - pl.col("ts_right")).cast(pl.Int64).abs() < MINUTE
    assert batch.comparisons(calls.lazy(), within_us=MINUTE) == pairs.filter(near).height - 500
