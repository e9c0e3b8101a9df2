"""The functions that make a stream: ``read_parquet`` and its kin, ``from_rows``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from penstock.base.durations import Duration, parse_duration
from penstock.base.errors import QueryError
from penstock.query import nodes
from penstock.query.expressions import ExpressionLike
from penstock.query.nodes import CsvFormat
from penstock.query.stream import Stream
from penstock.sources.csv import csv_format
from penstock.sources.declare import make_source
from penstock.sources.formats import DEFAULT, data_files, infer_schema
from penstock.sources.given import read_given_rows
from penstock.sources.partitions import infer_partitions

_PATIENCE = "1 minute"


def read_parquet(
    folder: str | Path,
    *,
    time: ExpressionLike,
    delay: Duration = "0 seconds",
    schema: Mapping[str, Any] | None = None,
    max_files_per_epoch: int | None = None,
    idle: Duration | None = None,
    name: str | None = None,
    patience: Duration = _PATIENCE,
    partitions: bool | Mapping[str, Any] = False,
    late: str = "all",
) -> Stream:
    """Return the stream of a folder of Parquet files that is watched for new ones.

    Args:
        folder: The folder. A file counts once it has its final name; write it elsewhere (or under a
            name that begins with a dot) and rename it.
        time: The column with the event time, or an expression that gives it: SQL text such as
            ``to_timestamp(sec)``, or a Polars expression.
        delay: How far behind the highest time seen a row may come; later rows are late.
        schema: The columns and types; read from the first file unless given.
        max_files_per_epoch: How many files one epoch takes at most.
        idle: After this long without rows, the source no longer holds back the watermark of the
            others.
        name: What to call the source in plans and errors.
        patience: For how long a file that is not complete is tried again before it is refused;
            "0 seconds" refuses it at once.
        partitions: Columns whose values are in the names of folders, ``year=2024/month=03``, with
            their types; True finds them in the files that are there. Files are then looked for in
            folders at every depth; else only in the folder itself.
        late: Which columns late rows are kept with: ``"all"`` of the source, or those that are
            ``"needed"`` by the query.

    >>> import penstock as ps
    >>> calls = ps.read_parquet("cdr/", time="ts", schema={"src": pl.String, "ts": pl.Datetime})
    >>> calls.schema
    {'src': String, 'ts': Datetime(time_unit='us', time_zone=None)}
    """
    given = _Given(time, delay, schema, max_files_per_epoch, idle, name, patience, partitions, late)
    return _read("parquet", folder, given)


def read_csv(
    folder: str | Path,
    *,
    time: ExpressionLike,
    delay: Duration = "0 seconds",
    schema: Mapping[str, Any] | None = None,
    max_files_per_epoch: int | None = None,
    idle: Duration | None = None,
    name: str | None = None,
    patience: Duration = _PATIENCE,
    partitions: bool | Mapping[str, Any] = False,
    late: str = "all",
    separator: str = ",",
    null_values: str | Sequence[str] = (),
    encoding: str = "utf8",
    header: bool = True,
    quote: str | None = '"',
    comment: str | None = None,
    skip_rows: int = 0,
    decimal_comma: bool = False,
) -> Stream:
    """Return the stream of a folder of CSV files; see `read_parquet`.

    Files may be packed: ``.csv.gz``, ``.csv.zst``. Without a header the schema is needed, in the
    order of the columns.

    Args:
        folder: The folder.
        time: The column with the event time.
        delay: How far behind the highest time seen a row may come.
        schema: The columns and types; read from the first file unless given.
        max_files_per_epoch: How many files one epoch takes at most.
        idle: After this long without rows, the source no longer holds back the watermark.
        name: What to call the source in plans and errors.
        patience: For how long a file that is not complete is tried again.
        partitions: Columns whose values are in the names of folders.
        late: Which columns late rows are kept with: ``"all"`` or ``"needed"``.
        separator: The character between values.
        null_values: A text, or several, that stand for null, such as ``"NA"``.
        encoding: The encoding of the files, any that Python knows; others than UTF-8 cost time.
        header: Whether the first line has the names of the columns.
        quote: The character that values may be quoted by; None for none.
        comment: What lines begin with that are passed over.
        skip_rows: How many lines at the top of a file are passed over.
        decimal_comma: Whether numbers are written as ``1,5``.
    """
    given = _Given(time, delay, schema, max_files_per_epoch, idle, name, patience, partitions, late)
    csv, problems = csv_format(
        separator=separator,
        null_values=null_values,
        encoding=encoding,
        header=header,
        quote=quote,
        comment=comment,
        skip_rows=skip_rows,
        decimal_comma=decimal_comma,
        schema=schema,
        partitions=partitions,
    )
    if problems:
        raise QueryError(problems=problems)
    return _read("csv", folder, given, csv)


def read_ndjson(
    folder: str | Path,
    *,
    time: ExpressionLike,
    delay: Duration = "0 seconds",
    schema: Mapping[str, Any] | None = None,
    max_files_per_epoch: int | None = None,
    idle: Duration | None = None,
    name: str | None = None,
    patience: Duration = _PATIENCE,
    partitions: bool | Mapping[str, Any] = False,
    late: str = "all",
) -> Stream:
    """Return the stream of a folder of files with one JSON object a line; see `read_parquet`.

    Files may be packed: ``.ndjson.gz``, ``.ndjson.zst``.
    """
    given = _Given(time, delay, schema, max_files_per_epoch, idle, name, patience, partitions, late)
    return _read("ndjson", folder, given)


def read_arrow(
    folder: str | Path,
    *,
    time: ExpressionLike,
    delay: Duration = "0 seconds",
    schema: Mapping[str, Any] | None = None,
    max_files_per_epoch: int | None = None,
    idle: Duration | None = None,
    name: str | None = None,
    patience: Duration = _PATIENCE,
    partitions: bool | Mapping[str, Any] = False,
    late: str = "all",
) -> Stream:
    """Return the stream of a folder of Arrow IPC files; see `read_parquet`."""
    given = _Given(time, delay, schema, max_files_per_epoch, idle, name, patience, partitions, late)
    return _read("arrow", folder, given)


def from_rows(
    rows: Iterable[Mapping[str, Any]] | pl.DataFrame,
    *,
    time: ExpressionLike,
    delay: Duration = "0 seconds",
    schema: Mapping[str, Any] | None = None,
    name: str = "rows",
) -> Stream:
    """Return the stream of rows given in the program, for tests and notebooks.

    Args:
        rows: The rows, as mappings or as a frame.
        time: The column with the event time, or an expression that gives it: SQL text such as
            ``to_timestamp(sec)``, or a Polars expression.
        delay: How far behind the highest time seen a row may come; later rows are late.
        schema: The columns and types, if not those of the rows; a value that does not fit its type
            exactly is a mistake.
        name: What to call the source in plans and errors.

    >>> import penstock as ps
    >>> ps.from_rows([{"x": 1, "ts": ps.at("2024-01-01")}], time="ts").schema["x"]
    Int64
    """
    given = rows if isinstance(rows, pl.DataFrame) else list(rows)
    frame, problems = read_given_rows(given, schema)
    return make_source(nodes.Rows(rows=frame), frame.schema, time, delay, None, name, problems)


def at(text: str) -> datetime:
    """Return the event time of an ISO text, for rows written by hand.

    >>> at("2024-01-01 10:30:00")
    datetime.datetime(2024, 1, 1, 10, 30)
    """
    return datetime.fromisoformat(text)


@dataclass(frozen=True, slots=True)
class _Given:
    """The options that all readers of files share."""

    time: ExpressionLike
    delay: Duration
    schema: Mapping[str, Any] | None
    max_files: int | None
    idle: Duration | None
    name: str | None
    patience: Duration
    partitions: bool | Mapping[str, Any]
    late: str


def _read(form: str, folder: str | Path, given: _Given, csv: CsvFormat = DEFAULT) -> Stream:
    path = str(folder)
    patience_us = parse_duration(given.patience)
    problems = []
    if given.max_files is not None and given.max_files < 1:
        problems.append(
            f"read_{form}: max_files_per_epoch must be positive; "
            f"max_files_per_epoch={given.max_files!r}"
        )
    if Path(path).is_file():
        problems.append(
            f"read_{form}: a folder is watched for new files, and {path!r} is a file; give the "
            "folder that it is in"
        )
    if patience_us < 0:
        problems.append(f"read_{form}: patience must not be negative; patience={given.patience!r}")
    if problems:
        raise QueryError(problems=problems)
    deep = given.partitions is not False
    partitions = _partitions(form, path, given.partitions)
    found = (
        dict(pl.DataFrame(schema=dict(given.schema)).schema)
        if given.schema
        else infer_schema(form, path, csv, deep=deep)
    )
    if isinstance(given.time, str) and given.time in partitions:
        problems.append(
            f"read_{form}: the time column {given.time!r} must be in the files, not in the names "
            "of folders"
        )
    reader = nodes.Files(
        path=path,
        format=form,
        max_files_per_epoch=given.max_files,
        patience_us=patience_us,
        csv=csv,
        partitions=tuple(partitions.items()),
    )
    name = given.name or Path(path).name or form
    return make_source(
        reader,
        found | partitions,
        given.time,
        given.delay,
        given.idle,
        name,
        problems,
        late=given.late,
    )


def _partitions(form: str, folder: str, given: bool | Mapping[str, Any]) -> dict[str, pl.DataType]:
    """Return the columns in the names of folders.

    Raises:
        QueryError: They are to be found, and there is no file to find them by.
    """
    if isinstance(given, Mapping):
        return dict(pl.DataFrame(schema=dict(given)).schema)
    if not given:
        return {}
    found = infer_partitions(folder, data_files(form, folder, deep=True))
    if not found:
        raise QueryError(
            problems=(
                f"read_{form}: no file in a folder such as year=2024 below {folder!r} to find the "
                "partition columns by; give partitions={'column': type, ...}",
            )
        )
    return found
