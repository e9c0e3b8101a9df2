"""One Spark session for all tests on Spark; it leaves no process and no file behind."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from moto.server import ThreadedMotoServer
from pyspark.sql import SparkSession

from penstock.spark.session import scratch_session


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that speaks S3, on loopback; it is there before Spark, whose workers look for it."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_DEFAULT_REGION": "us-east-1",
        "PENSTOCK_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        try:
            yield settings["AWS_ENDPOINT_URL"]
        finally:
            server.stop()


@pytest.fixture(scope="session")
def spark(s3_server: str) -> Iterator[SparkSession]:
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
