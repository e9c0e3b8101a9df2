"""Times with a zone keep it: through every operator, in late rows, in files, in state."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.base.errors import QueryError
from penstock.query.stream import Stream
from penstock.sources.files import read_one
from penstock.sources.formats import infer_schema
from penstock.testing import TestStream

pytestmark = pytest.mark.filterwarnings("ignore:top without a window")

NEW_YORK = "America/New_York"
ZONED = pl.Datetime("us", NEW_YORK)


def _stream(unit: str = "us", name: str = "rows") -> Stream:
    schema = {"k": pl.String, "x": pl.Int64, "ts": pl.Datetime(unit, NEW_YORK)}  # type: ignore[arg-type]
    return ps.from_rows([], schema=schema, time="ts", delay="1 minute", name=name)


def _rows(minutes: range) -> list[dict[str, Any]]:
    start = datetime(2024, 11, 3, 4, 40, tzinfo=UTC)  # an hour that New York has twice
    return [{"k": "ab"[i % 2], "x": i, "ts": start + timedelta(minutes=7 * i)} for i in minutes]


OPERATORS: dict[str, Any] = {
    "filter": lambda s: s.filter("x > 2"),
    "tumbling": lambda s: s.aggregate(by="k", window=ps.tumbling("1 hour"), n="sum(x)"),
    "sliding": lambda s: s.aggregate(window=ps.sliding("1 hour", every="20 minutes"), n="max(ts)"),
    "kept rows": lambda s: s.aggregate(window=ps.tumbling("1 hour"), n=pl.col("x").median()),
    "count": lambda s: s.aggregate(by="k", window=ps.count_window(3), n="min(ts)"),
    "session": lambda s: s.aggregate(by="k", window=ps.session("10 minutes"), n="sum(x)"),
    "top": lambda s: s.top(2, "x", window=ps.tumbling("1 hour")),
    "top at": lambda s: s.top(1, "x", by="k"),
    "join": lambda s: s.join(s, on="k", within="15 minutes", where="x < x_right"),
    "dedup": lambda s: s.dedup(by="k", within="20 minutes"),
    "again": lambda s: s.aggregate(window=ps.tumbling("1 hour"), n="count(*)").aggregate(
        window=ps.tumbling("2 hours"), n="sum(n)", last="max(window_end)"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("unit", ["us", "ns", "ms"])
def test_an_operator_keeps_the_zone(operator: str, unit: str, tmp_path: Path) -> None:
    made_of = _stream(unit)
    made = OPERATORS[operator](made_of)
    times = [name for name, dtype in made.schema.items() if isinstance(dtype, pl.Datetime)]
    assert {made.schema[name].time_zone for name in times} == {NEW_YORK}
    sinks = made.write_memory("m", ordered=True).also(made.write_parquet(tmp_path / "out"))
    with TestStream(sinks, instances=2) as run:
        run.add(_rows(range(12)))
        run.crash(_rows(range(12, 30)) + _rows(range(3)))
        run.finish()
        run.expect_reference()
        assert run.rows("m")
        assert run.late()[0].schema["ts"] == made_of.schema["ts"]
    file = next((tmp_path / "out").rglob("*.parquet"))
    types = pq.ParquetFile(file).schema
    assert times
    for name in times:
        column = types.column(types.names.index(name))
        assert "isAdjustedToUTC=true" in str(column.logical_type)


def test_windows_of_a_union_and_a_join_have_the_zone_of_the_first_input() -> None:
    other = ps.from_rows([], schema={"k": pl.String, "at": pl.Datetime("us", "UTC")}, time="at")
    joined = _stream().join(other, on="k", within="1 minute")
    bounds = joined.aggregate(window=ps.tumbling("1 hour"), n="count(*)").schema
    assert bounds["window_start"] == bounds["window_end"] == ZONED


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "ndjson"])
def test_a_file_keeps_the_zone_of_its_columns(form: str, tmp_path: Path) -> None:
    frame = pl.DataFrame(_rows(range(3)), schema={"x": pl.Int64, "ts": ZONED})
    path = tmp_path / f"a.{form}"
    if form in ("parquet", "arrow"):
        frame.write_parquet(path) if form == "parquet" else frame.write_ipc(path)
    else:
        texts = frame.with_columns(pl.col("ts").dt.to_string("iso:strict"))
        texts.write_csv(path) if form == "csv" else texts.write_ndjson(path)
    found = infer_schema(form, str(tmp_path))
    assert found["ts"] == (ZONED if form in ("parquet", "arrow") else pl.Datetime("us", "UTC"))
    for zone in (NEW_YORK, "UTC", "Asia/Kathmandu"):
        schema = {"x": pl.Int64(), "ts": pl.Datetime("us", zone)}
        read = read_one(form, str(path), schema, 10).rows
        assert read.schema["ts"] == schema["ts"]
        assert read["ts"].to_physical().equals(frame["ts"].to_physical())


def test_a_text_without_an_offset_is_local_to_the_declared_zone(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(
        "ts\n2024-07-01 00:00:00\n2024-11-03 01:30:00\n2024-03-10 02:30:00\n2024-07-01\n"
    )
    read = read_one("csv", str(path), {"ts": ZONED}, 10)
    assert read.rows["ts"].dt.to_string("iso:strict").to_list() == [
        "2024-07-01T00:00:00.000000-04:00",
        "2024-11-03T01:30:00.000000-04:00",  # shown twice: the first
        "2024-07-01T00:00:00.000000-04:00",
    ]
    assert "2024-03-10 02:30:00" in read.rejected[0].reason  # never shown


def test_a_column_that_spark_has_no_type_for_is_refused_by_name() -> None:
    schema = {
        "ts": pl.Datetime("us"),
        "day": pl.Time,
        "some": pl.List(pl.Time),
        "ok": pl.UInt64,
    }
    stream = ps.from_rows([], schema=schema, time="ts")
    with pytest.raises(QueryError) as caught:
        stream.foreach_batch(lambda frame, epoch: None)
    assert "column 'day' is Time" in str(caught.value)
    assert "CAST(day AS VARCHAR)" in str(caught.value)
    assert "column 'some' is List(Time)" in str(caught.value)
    fine = stream.select("ts", "ok", day=pl.col("day").cast(pl.String))
    assert fine.foreach_batch(lambda frame, epoch: None).sinks[0].schema == {
        "ts": pl.Datetime("us"),
        "ok": pl.Decimal(20, 0),
        "day": pl.String(),
    }


def test_a_number_too_large_for_spark_is_a_dead_letter() -> None:
    stream = ps.from_rows([], schema={"n": pl.Int128, "ts": pl.Datetime("us")}, time="ts")
    sinks = stream.foreach_batch(lambda frame, epoch: None)
    with TestStream(sinks) as run:
        run.add([{"n": n, "ts": datetime(2024, 1, 1)} for n in (10**37, 10**38)])
        assert run.counts()["refused"] == 1
        assert [int(row["n"]) for row in run.rows()] == [10**37]
