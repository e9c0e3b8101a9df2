"""The functions that make a stream: ``read_parquet`` and its kin, ``from_rows``, ``from_spark``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from penstock.errors import QueryError
from penstock.query import nodes
from penstock.query.durations import Duration, parse_duration
from penstock.query.expressions import unknown_column
from penstock.query.stream import Stream
from penstock.sources.formats import FORMATS, infer_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame as SparkFrame


def read_parquet(
    folder: str | Path,
    *,
    time: str,
    delay: Duration = "0 seconds",
    schema: Mapping[str, Any] | None = None,
    max_files_per_epoch: int | None = None,
    idle: Duration | None = None,
    name: str | None = None,
) -> Stream:
    """Return the stream of a folder of Parquet files that is watched for new ones.

    Args:
        folder: The folder. A file counts once it has its final name; write it elsewhere (or under a
            name that begins with a dot) and rename it.
        time: The column with the event time.
        delay: How far behind the highest time seen a row may come; later rows are late.
        schema: The columns and types; read from the first file unless given.
        max_files_per_epoch: How many files one epoch takes at most.
        idle: After this long without rows, the source no longer holds back the watermark of the
            others.
        name: What to call the source in plans and errors.

    >>> import penstock as ps
    >>> calls = ps.read_parquet("cdr/", time="ts", schema={"src": pl.String, "ts": pl.Datetime})
    >>> calls.schema
    {'src': String, 'ts': Datetime(time_unit='us', time_zone=None)}
    """
    return _read("parquet", folder, time, delay, schema, max_files_per_epoch, idle, name)


def read_csv(
    folder: str | Path,
    *,
    time: str,
    delay: Duration = "0 seconds",
    schema: Mapping[str, Any] | None = None,
    max_files_per_epoch: int | None = None,
    idle: Duration | None = None,
    name: str | None = None,
) -> Stream:
    """Return the stream of a folder of CSV files with a header; see `read_parquet`."""
    return _read("csv", folder, time, delay, schema, max_files_per_epoch, idle, name)


def read_ndjson(
    folder: str | Path,
    *,
    time: str,
    delay: Duration = "0 seconds",
    schema: Mapping[str, Any] | None = None,
    max_files_per_epoch: int | None = None,
    idle: Duration | None = None,
    name: str | None = None,
) -> Stream:
    """Return the stream of a folder of files with one JSON object a line; see `read_parquet`."""
    return _read("ndjson", folder, time, delay, schema, max_files_per_epoch, idle, name)


def read_arrow(
    folder: str | Path,
    *,
    time: str,
    delay: Duration = "0 seconds",
    schema: Mapping[str, Any] | None = None,
    max_files_per_epoch: int | None = None,
    idle: Duration | None = None,
    name: str | None = None,
) -> Stream:
    """Return the stream of a folder of Arrow IPC files; see `read_parquet`."""
    return _read("arrow", folder, time, delay, schema, max_files_per_epoch, idle, name)


def from_rows(
    rows: Iterable[Mapping[str, Any]] | pl.DataFrame,
    *,
    time: str,
    delay: Duration = "0 seconds",
    schema: Mapping[str, Any] | None = None,
    name: str = "rows",
) -> Stream:
    """Return the stream of rows given in the program, for tests and notebooks.

    >>> import penstock as ps
    >>> ps.from_rows([{"x": 1, "ts": ps.at("2024-01-01")}], time="ts").schema["x"]
    Int64
    """
    frame = (
        rows
        if isinstance(rows, pl.DataFrame)
        else pl.DataFrame(list(rows), schema=dict(schema) if schema else None)
    )
    return _source(nodes.Rows(rows=frame), frame.schema, time, delay, None, name)


def from_spark(
    frame: SparkFrame,
    *,
    time: str,
    delay: Duration = "0 seconds",
    idle: Duration | None = None,
    name: str = "frame",
) -> Stream:
    """Return the stream of any streaming DataFrame of Spark.

    Args:
        frame: A DataFrame from ``spark.readStream``, with any stateless operators on it.
        time: The column with the event time, of type timestamp or date.
        delay: How far behind the highest time seen a row may come; later rows are late.
        idle: After this long without rows, the source no longer holds back the watermark.
        name: What to call the source in plans and errors.
    """
    from penstock.sources.spark import frame_schema

    if not frame.isStreaming:
        raise QueryError(
            problems=("from_spark: the DataFrame is not streaming; read it with spark.readStream",)
        )
    return _source(nodes.Frame(frame=frame), frame_schema(frame), time, delay, idle, name)


def at(text: str) -> datetime:
    """Return the event time of an ISO text, for rows written by hand.

    >>> at("2024-01-01 10:30:00")
    datetime.datetime(2024, 1, 1, 10, 30)
    """
    return datetime.fromisoformat(text)


def _read(
    form: str,
    folder: str | Path,
    time: str,
    delay: Duration,
    schema: Mapping[str, Any] | None,
    max_files: int | None,
    idle: Duration | None,
    name: str | None,
) -> Stream:
    assert form in FORMATS
    path = str(folder)
    if max_files is not None and max_files < 1:
        raise QueryError(
            problems=(
                f"read_{form}: max_files_per_epoch must be positive; "
                f"max_files_per_epoch={max_files!r}",
            )
        )
    found = dict(pl.DataFrame(schema=dict(schema)).schema) if schema else infer_schema(form, path)
    reader = nodes.Files(path=path, format=form, max_files_per_epoch=max_files)
    return _source(reader, found, time, delay, idle, name or Path(path).name or form)


def _source(
    reader: nodes.Files | nodes.Frame | nodes.Rows,
    schema: Mapping[str, pl.DataType],
    time: str,
    delay: Duration,
    idle: Duration | None,
    name: str,
) -> Stream:
    problems = []
    if time not in schema:
        problems.append(f"source {name}: time column: {unknown_column(time, schema)}")
    elif not isinstance(schema[time], pl.Datetime) and schema[time] != pl.Date:
        problems.append(
            f"source {name}: time column {time!r} must be a timestamp or a date; "
            f"it is {schema[time]}"
        )
    problems += [
        f"source {name}: column names that begin with '__' are reserved; name={c!r}"
        for c in schema
        if c.startswith("__")
    ]
    delay_us = parse_duration(delay)
    if delay_us < 0:
        problems.append(f"source {name}: delay must not be negative; delay={delay!r}")
    idle_us = None if idle is None else parse_duration(idle)
    node = nodes.Source(
        schema=schema, name=name, time=time, delay_us=delay_us, reader=reader, idle_us=idle_us
    )
    return Stream(node, tuple(problems))
