"""File formats: how a file becomes a Polars frame with the declared columns.

Law: a file gives exactly its rows in file order, each either conforming to the declared schema or
refused with a reason; a file that cannot be read at all is refused whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from penstock.errors import QueryError

Schema = Mapping[str, pl.DataType]
EXTENSIONS = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".tsv", ".txt"),
    "ndjson": (".ndjson", ".jsonl", ".json"),
    "arrow": (".arrow", ".ipc", ".feather"),
}


def _parquet(paths: Sequence[str], schema: Schema | None) -> pl.LazyFrame:
    return pl.scan_parquet(list(paths), hive_partitioning=False, glob=False)


def _csv(paths: Sequence[str], schema: Schema | None) -> pl.LazyFrame:
    overrides: dict[str, Any] | None = dict.fromkeys(schema, pl.String) if schema else None
    return pl.scan_csv(
        list(paths), schema_overrides=overrides, try_parse_dates=schema is None, glob=False
    )


def _ndjson(paths: Sequence[str], schema: Schema | None) -> pl.LazyFrame:
    overrides: dict[str, Any] | None = None
    if schema:
        overrides = {
            name: pl.String if dtype.is_temporal() else dtype for name, dtype in schema.items()
        }
    return pl.scan_ndjson(list(paths), schema_overrides=overrides, infer_schema_length=None)


def _arrow(paths: Sequence[str], schema: Schema | None) -> pl.LazyFrame:
    return pl.scan_ipc(list(paths), hive_partitioning=False, glob=False)


FORMATS: dict[str, Callable[[Sequence[str], Schema | None], pl.LazyFrame]] = {
    "parquet": _parquet,
    "csv": _csv,
    "ndjson": _ndjson,
    "arrow": _arrow,
}


def infer_schema(form: str, folder: str) -> dict[str, pl.DataType]:
    """Return the schema of the first file in a folder.

    Raises:
        QueryError: The folder has no file yet, or its first file cannot be read.
    """
    files = data_files(form, folder)
    if not files:
        raise QueryError(
            problems=(
                f"read_{form}: no {form} file in {folder!r} to read the schema from; "
                "give schema={'column': type, ...}",
            )
        )
    try:
        schema = dict(FORMATS[form]([files[0]], None).collect_schema())
    except (pl.exceptions.PolarsError, OSError) as error:
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
            parsed = parse_times(head[name])
            if parsed.null_count() == head[name].null_count() < head.height:
                schema[name] = pl.Datetime("us")
    return schema


def parse_times(texts: pl.Series) -> pl.Series:
    """Return ISO texts as times; what cannot be read is null."""
    frame = texts.to_frame("t").select(
        pl.coalesce(
            pl.col("t").str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False),
            pl.col("t").str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False),
            pl.col("t")
            .str.to_datetime("%+", time_unit="us", strict=False)
            .dt.convert_time_zone("UTC")
            .dt.replace_time_zone(None),
            pl.col("t").str.to_date("%Y-%m-%d", strict=False).cast(pl.Datetime("us")),
        )
    )
    return frame.to_series()


def data_files(form: str, folder: str) -> list[str]:
    """Return the data files of a local folder by modification time, then name."""
    root = Path(folder)
    if not root.is_dir():
        return []
    found = [
        p
        for p in root.iterdir()
        if p.is_file() and p.name[0] not in "._" and p.suffix.lower() in EXTENSIONS[form]
    ]
    found.sort(key=lambda p: (p.stat().st_mtime_ns, p.name))
    return [str(p) for p in found]
