"""Rows that do not fit the declared schema: each costs itself, in every format and by any cut."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.compiler import compile_query
from penstock.driver.outputs import read_side_output
from penstock.testing.runner import LocalRun

START = datetime(2024, 1, 1)
SCHEMA = {"k": pl.String(), "x": pl.Int64(), "ts": pl.Datetime("us")}


def rows(**changed: list[Any] | pl.Series) -> pl.DataFrame:
    times = [START + timedelta(seconds=i) for i in range(4)]
    frame = pl.DataFrame({"k": list("abcd"), "x": [1, 2, 3, 4], "ts": times})
    return frame.with_columns(**{name: pl.Series(values) for name, values in changed.items()})


def run(tmp_path: Path, paths: list[Path], form: str = "parquet", instances: int = 1) -> LocalRun:
    reader = getattr(ps, f"read_{form}")
    stream = reader(tmp_path, time="ts", schema=SCHEMA).select("x", "ts")
    query = compile_query(stream.write_memory().sinks, instances=instances)
    run = LocalRun(query, tmp_path / f"run{instances}")
    run.files({0: [str(path) for path in paths]})
    return run


def letters(run: LocalRun) -> pl.DataFrame:
    return read_side_output(run.driver.root, "dead")[0]


EXACT = {
    "float": pl.Series([1.0, 2.9, 3.0, 4.0]),
    "unsigned": pl.Series([1, 2**63, 3, 4], dtype=pl.UInt64),
    "decimal": pl.Series(["1.0", "2.9", "3.0", "4.0"]).cast(pl.Decimal(5, 1)),
}


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("kind", EXACT)
def test_only_the_row_that_does_not_fit_is_refused(
    tmp_path: Path, form: str, kind: str, instances: int
) -> None:
    frame = rows(x=EXACT[kind])
    path = tmp_path / f"a.{form}"
    frame.write_parquet(path) if form == "parquet" else frame.write_ipc(path)
    done = run(tmp_path, [path], form, instances)
    assert done.table()["x"].to_list() == [1, 3, 4]
    (letter,) = letters(done).to_dicts()
    bad = frame["x"][1]
    assert letter["reason"] == (
        f"column 'x': {bad!r} of type {frame.schema['x']} has no exact value of type Int64"
    )
    assert json.loads(letter["row"])["k"] == "b"  # also what the query does not read
    assert done.driver.last is not None
    assert done.driver.last.totals["refused"] == 1


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("unit", [1, 1000, 1_000_000])
def test_integers_are_no_times(tmp_path: Path, unit: int, instances: int) -> None:
    """Neither 1970 nor anything else: and they do not move the watermark."""
    rows(ts=[1_704_067_200 * unit + i for i in range(4)]).write_parquet(tmp_path / "a.parquet")
    rows().write_parquet(tmp_path / "b.parquet")
    done = run(tmp_path, [tmp_path / "a.parquet", tmp_path / "b.parquet"], instances=instances)
    assert done.table()["ts"].to_list() == rows()["ts"].to_list()
    assert letters(done)["reason"].str.contains("has no exact value of type Datetime").all()
    assert done.driver.last is not None
    assert done.driver.last.totals["late"] == 0
    assert done.driver.last.totals["refused"] == 4


def test_a_refused_row_says_nothing_about_time(tmp_path: Path) -> None:
    """Whether a row is late is told by rows that count, also where row groups tell their times."""
    later = pl.Series([0, 0, 0, 10**15 + 1]).cast(pl.Duration("ns"))
    rows().with_columns(ts=pl.col("ts").cast(pl.Datetime("ns")) + later).write_parquet(
        tmp_path / "a.parquet"
    )
    rows().write_parquet(tmp_path / "b.parquet")
    for instances in (1, 2, 3):
        done = run(tmp_path, [tmp_path / "a.parquet", tmp_path / "b.parquet"], instances=instances)
        assert done.driver.last is not None
        totals = done.driver.last.totals
        assert (totals["read"], totals["refused"], totals["late"]) == (8, 1, 2)


def test_texts_are_read_in_text_formats_only(tmp_path: Path) -> None:
    texts = rows(x=["1", "2.9", "3", "many"])
    texts.write_csv(tmp_path / "a.csv")
    assert run(tmp_path, [tmp_path / "a.csv"], "csv").table()["x"].to_list() == [1, 3]
    texts.write_parquet(tmp_path / "a.parquet")
    assert run(tmp_path, [tmp_path / "a.parquet"], instances=3).table().is_empty()


SHORT = {"i8": pl.Int8(), "u64": pl.UInt64(), "dec": pl.Decimal(6, 2), "ts": pl.Datetime("us")}


def test_json_has_other_types_than_the_schema(tmp_path: Path) -> None:
    lines = [
        {"i8": 1, "u64": 2**64 - 1, "dec": 1.25, "ts": "2024-01-01T00:00:00"},
        {"i8": 300, "u64": 1, "dec": 1.25, "ts": "2024-01-01T00:00:01"},
        {"i8": 1, "u64": 1, "dec": 1.255, "ts": "2024-01-01T00:00:02"},
        {"i8": 2, "u64": -1, "dec": 1, "ts": "2024-01-01T00:00:03"},
        {"i8": 3, "u64": 1, "dec": 1, "ts": "2024-01-01T00:00:04"},
    ]
    path = tmp_path / "a.ndjson"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    stream = ps.read_ndjson(tmp_path, time="ts", schema=SHORT).select("i8", "u64", "dec")
    done = LocalRun(compile_query(stream.write_memory().sinks), tmp_path / "run")
    done.files({0: [str(path)]})
    assert done.table()["i8"].to_list() == [1, 3]
    assert done.table()["u64"].to_list() == [2**64 - 1, 1]
    assert letters(done).height == 3


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2.9, pl.Int64), (2**53 + 1, pl.Float64), (1, pl.Datetime), (True, pl.Int64), (300, pl.Int8)],
)
def test_rows_of_the_program(value: Any, dtype: Any) -> None:
    given = [{"x": None, "ts": START}, {"x": value, "ts": START}]
    schema = {"x": dtype, "ts": pl.Datetime("us")}
    for rows in (given, pl.DataFrame(given)):
        with pytest.raises(ps.QueryError, match=r"from_rows: .*(no exact value|append value)"):
            ps.from_rows(rows, time="ts", schema=schema).write_memory()


def test_rows_of_the_program_that_fit() -> None:
    schema = {"x": pl.Float64, "n": pl.Int8, "ts": pl.Datetime("ms")}
    for rows in (
        [{"x": 1, "n": 2, "ts": START}],
        pl.DataFrame({"x": [1], "n": [2], "ts": [START]}),
    ):
        assert dict(ps.from_rows(rows, time="ts", schema=schema).schema) == schema


def test_a_letter_has_bytes_and_endless_numbers(tmp_path: Path) -> None:
    rows(x=[1.0, float("nan"), 3.0, 4.0]).with_columns(
        k=pl.Series([b"a", b"\xff", b"c", b"d"])
    ).write_parquet(tmp_path / "a.parquet")
    (letter,) = letters(run(tmp_path, [tmp_path / "a.parquet"])).to_dicts()
    assert json.loads(letter["row"]) == {"k": "ff", "x": "NaN", "ts": "2024-01-01 00:00:01"}
