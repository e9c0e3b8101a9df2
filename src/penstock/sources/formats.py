"""File formats: how a file becomes a Polars frame with the declared columns.

Law: a file gives exactly its rows in file order, each either conforming to the declared schema or
refused with a reason; a file that cannot be read at all is refused whole.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from penstock.base.errors import QueryError
from penstock.query.nodes import CsvFormat

Schema = Mapping[str, pl.DataType]
EXTENSIONS = {
    "parquet": (".parquet", ".pq"),
    "csv": tuple(f"{e}{c}" for e in (".csv", ".tsv", ".txt") for c in ("", ".gz", ".zst")),
    "ndjson": tuple(f"{e}{c}" for e in (".ndjson", ".jsonl", ".json") for c in ("", ".gz", ".zst")),
    "arrow": (".arrow", ".ipc", ".feather"),
}
BY_COLUMN = ("parquet", "arrow")
"""Formats of which single columns can be read."""

DEFAULT = CsvFormat()
_UTF8 = frozenset({"utf8", "utf-8", "utf_8", "u8"})


def _parquet(paths: Sequence[str], schema: Schema | None, csv: CsvFormat) -> pl.LazyFrame:
    return pl.scan_parquet(list(paths), hive_partitioning=False, glob=False)


def _csv(paths: Sequence[str], schema: Schema | None, csv: CsvFormat) -> pl.LazyFrame:
    plain = csv.encoding.lower() in _UTF8
    found: list[Any] = list(paths) if plain else [_recode(path, csv.encoding) for path in paths]
    return pl.scan_csv(found, glob=False, **csv_options(schema, csv))


def csv_options(schema: Schema | None, csv: CsvFormat) -> dict[str, Any]:
    """Return what Polars has to know to read CSV: as texts, if it is known what they mean."""
    return {
        "separator": csv.separator,
        "has_header": csv.header,
        "new_columns": list(csv.columns) or None,
        "quote_char": csv.quote,
        "comment_prefix": csv.comment,
        "skip_lines": csv.skip_rows,
        "null_values": list(csv.null_values) or None,
        "infer_schema": schema is None,
        "try_parse_dates": schema is None,
        "decimal_comma": csv.decimal_comma and schema is None,
        "raise_if_empty": False,
    }


def _recode(path: str, encoding: str) -> io.BytesIO:
    return io.BytesIO(read_bytes(path).decode(encoding).encode())


def read_bytes(path: str) -> bytes:
    """Return the bytes of a file; one with the ending ``.gz`` or ``.zst`` is unpacked."""
    with pa.input_stream(path, compression="detect") as stream:
        data: bytes = stream.read()
    return data


def _ndjson(paths: Sequence[str], schema: Schema | None, csv: CsvFormat) -> pl.LazyFrame:
    overrides: dict[str, Any] | None = None
    if schema:
        overrides = json_types(schema)
    return pl.scan_ndjson(list(paths), schema_overrides=overrides, infer_schema_length=None)


def json_types(schema: Schema) -> dict[str, Any]:
    """Return the types as which columns of JSON are read, before they become the declared ones.

    Polars reads no short integers and no decimals from JSON, and times in one form only.
    """
    return {name: _json_type(dtype) for name, dtype in schema.items()}


def _json_type(dtype: pl.DataType) -> pl.DataType:
    if dtype.is_temporal() or isinstance(dtype, pl.Decimal | pl.Enum | pl.Categorical):
        return pl.String()
    if dtype.is_integer():
        return pl.String() if dtype in (pl.Int128, pl.UInt128, pl.UInt64) else pl.Int64()
    return dtype


def _arrow(paths: Sequence[str], schema: Schema | None, csv: CsvFormat) -> pl.LazyFrame:
    return pl.scan_ipc(list(paths), hive_partitioning=False, glob=False)


FORMATS: dict[str, Callable[[Sequence[str], Schema | None, CsvFormat], pl.LazyFrame]] = {
    "parquet": _parquet,
    "csv": _csv,
    "ndjson": _ndjson,
    "arrow": _arrow,
}


def infer_schema(
    form: str, folder: str, csv: CsvFormat = DEFAULT, *, deep: bool = False
) -> dict[str, pl.DataType]:
    """Return the schema of the first file in a folder, or in folders of it if ``deep``.

    Raises:
        QueryError: The folder has no file yet, or its first file cannot be read.
    """
    files = data_files(form, folder, deep=deep)
    if not files:
        raise QueryError(
            problems=(
                f"read_{form}: no {form} file in {folder!r} to read the schema from; "
                "give schema={'column': type, ...}",
            )
        )
    try:
        schema = dict(FORMATS[form]([files[0]], None, csv).collect_schema())
    except (pl.exceptions.PolarsError, OSError, UnicodeError) as error:
        raise QueryError(
            problems=(
                f"read_{form}: cannot read the schema of {files[0]!r}: "
                f"{str(error).splitlines()[0]}",
            )
        ) from error
    if form == "ndjson":
        schema = _with_times(schema, files[0])
    return schema


def _with_times(schema: dict[str, pl.DataType], path: str) -> dict[str, pl.DataType]:
    head = pl.scan_ndjson(path).head(100).collect()
    for name, dtype in schema.items():
        if dtype == pl.String:
            texts = head[name].drop_nulls()
            if texts.len() and not parse_times(texts).has_nulls():
                whole = texts.str.to_datetime("%+", time_unit="us", strict=False)
                schema[name] = pl.Datetime("us", None if whole.has_nulls() else "UTC")
    return schema


def parse_times(texts: pl.Series, zone: str | None = None) -> pl.Series:
    """Return ISO texts as times in a zone, or as UTC without one; what cannot be read is null.

    A text with an offset from UTC is an instant. One without is what the clock of the zone showed:
    at first, if it showed it twice; and if it never did, the text cannot be read.

    >>> texts = pl.Series(["2024-03-10T12:00:00Z", "2024-11-03 01:30:00", "2024-03-10 02:30:00"])
    >>> parse_times(texts, "America/New_York").dt.to_string("iso").to_list()
    ['2024-03-10 08:00:00.000000-04:00', '2024-11-03 01:30:00.000000-04:00', None]
    """
    text = pl.col("t").str
    local = pl.coalesce(
        text.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False),
        text.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False),
        text.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")),
    )
    instant = text.to_datetime("%+", time_unit="us", strict=False).dt.convert_time_zone("UTC")
    if zone is None:
        found = pl.coalesce(local, instant.dt.replace_time_zone(None))
    else:
        known = local.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
        found = pl.coalesce(known, instant.dt.convert_time_zone(zone))
    return texts.to_frame("t").select(found).to_series()


def data_files(form: str, folder: str, *, deep: bool = False) -> list[str]:
    """Return the data files of a local folder by modification time, then name.

    Args:
        form: Their format.
        folder: The folder.
        deep: Whether files in folders of the folder count too, at every depth.
    """
    root = Path(folder)
    if not root.is_dir():
        return []
    found = [
        p
        for p in (root.rglob("*") if deep else root.iterdir())
        if p.is_file()
        and all(part[0] not in "._" for part in p.relative_to(root).parts)
        and p.name.lower().endswith(EXTENSIONS[form])
    ]
    found.sort(key=lambda p: (p.stat().st_mtime_ns, p.name))
    return [str(p) for p in found]


def count_newer(form: str, folder: str, newest_us: int, *, deep: bool = False) -> int | None:
    """Return how many data files of a folder are newer than a time; None if it cannot be listed.

    Spark knows the times of files in milliseconds, so those of the same millisecond count as read.

    Args:
        form: Their format.
        folder: The folder.
        newest_us: The time, in microseconds since 1970.
        deep: Whether files in folders of the folder count too, at every depth.
    """
    count = 0
    try:
        for entry in _entries(folder, deep=deep):
            if entry.name[0] not in "._" and entry.name.lower().endswith(EXTENSIONS[form]):
                count += entry.stat().st_mtime_ns // 1_000_000 > newest_us // 1000
    except OSError:
        return None
    return count


def _entries(folder: str, *, deep: bool) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if deep and entry.is_dir() and entry.name[0] not in "._":
                yield from _entries(entry.path, deep=True)
            else:
                yield entry
