"""One Spark session for all tests on Spark; it leaves no process and no file behind."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

from penstock.runtime.spark.session import scratch_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with scratch_session("penstock tests", cores=2, settings={"spark.driver.memory": "2g"}) as s:
        yield s


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """A folder of five small Parquet files, in time order."""
    folder = tmp_path / "calls"
    folder.mkdir()
    for i in range(5):
        write_calls(folder / f"{i}.parquet", start=i * 100, rows=100, modified=1_700_000_000 + i)
    return folder


def call_rows(start: int, rows: int) -> pl.DataFrame:
    first = datetime(2024, 1, 1)
    return pl.DataFrame(
        {
            "src": [f"k{i % 7}" for i in range(start, start + rows)],
            "x": list(range(start, start + rows)),
            "ts": [first + timedelta(seconds=i) for i in range(start, start + rows)],
        },
        schema={"src": pl.String, "x": pl.Int64, "ts": pl.Datetime("us")},
    )


def write_calls(path: Path, *, start: int, rows: int, modified: int) -> None:
    import os

    call_rows(start, rows).write_parquet(path)
    os.utime(path, (modified, modified))
