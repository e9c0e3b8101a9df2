"""Partition columns: values that stand in the names of folders, ``year=2024/month=03``.

Law: a file below a source's folder has a value for every partition column, in the column's type, or
it is refused whole.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import polars as pl

from penstock.query.nodes import Files
from penstock.sources.exact import fit
from penstock.sources.files import local_path

_NULL = "__HIVE_DEFAULT_PARTITION__"


class PartitionError(Exception):
    """A file whose path does not give a value to each partition column."""


def below(folder: str, path: str) -> str | None:
    """Return the path of a file below a folder; None if it is not below it.

    >>> below("/data/calls/", "file:/data/calls/day=1/a.csv"), below("/data/calls", "/data/b.csv")
    ('day=1/a.csv', None)
    """
    root, file = _make_absolute(folder), _make_absolute(path)
    return file[len(root) + 1 :] if file.startswith(f"{root}/") else None


def _make_absolute(path: str) -> str:
    found = local_path(path)
    if "://" in found:
        return found.replace("s3a://", "s3://", 1).rstrip("/")
    return os.path.abspath(found)


def folder_names(relative: str) -> dict[str, str]:
    """Return the names and values in the folders of a path.

    >>> folder_names("year=2024/city=New%20York/a.parquet")
    {'year': '2024', 'city': 'New York'}
    """
    parts = [folder.partition("=") for folder in relative.split("/")[:-1]]
    return {unquote(name): unquote(value) for name, equals, value in parts if equals}


def partition_values(reader: Files, path: str) -> pl.DataFrame:
    """Return one row with the values of the partition columns for a file.

    Raises:
        PartitionError: A column has no value, or one that its type does not have.
    """
    relative = below(reader.path, path)
    given = folder_names(relative or "")
    columns = []
    for name, dtype in reader.partitions:
        if name not in given:
            raise PartitionError(f"no folder {name}=… in its path")
        text = None if given[name] == _NULL else given[name]
        found = fit(pl.Series(name, [text], dtype=pl.String), dtype, parse=True)
        if found.misfits.any():
            raise PartitionError(f"folder {name}={text}: no value of type {dtype}")
        columns.append(found.values.alias(name))
    return pl.DataFrame(columns)


def infer_partitions(folder: str, files: Sequence[str]) -> dict[str, pl.DataType]:
    """Return the partition columns of some files: whole numbers, dates, or else texts.

    >>> infer_partitions("/d", ["/d/year=2024/month=03/a.csv", "/d/year=2025/month=x/b.csv"])
    {'year': Int64, 'month': String}
    """
    rows = [folder_names(below(folder, file) or "") for file in files]
    names: Mapping[str, None] = dict.fromkeys(name for row in rows for name in row)
    return {name: _kind([row[name] for row in rows if name in row]) for name in names}


def _kind(texts: Sequence[str]) -> pl.DataType:
    values = pl.Series([text for text in texts if text != _NULL], dtype=pl.String)
    whole = values.str.contains(r"^-?(0|[1-9]\d*)$").all()
    for dtype in ([pl.Int64()] if whole else []) + [pl.Date()]:
        if not fit(values, dtype, parse=True).misfits.any():
            return dtype
    return pl.String()
