"""Rows that a program gives: checked where they are given, since they are part of the program."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from penstock.base.errors import QueryError
from penstock.query.expressions import first_line, unknown_column
from penstock.sources.exact import fit

_REFUSED = (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError)


def read_given_rows(
    rows: pl.DataFrame | Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None
) -> tuple[pl.DataFrame, list[str]]:
    """Return rows as a frame of the declared types, and what is wrong with them.

    Raises:
        QueryError: No frame can be made of them.

    >>> read_given_rows([{"x": 2.9}], {"x": pl.Int64})[1]
    ["from_rows: column 'x': 2.9 has no exact value of type Int64"]
    """
    if isinstance(rows, pl.DataFrame):
        return _fit_columns(rows, schema) if schema else (rows, [])
    try:
        frame = pl.DataFrame(list(rows), schema=dict(schema) if schema else None)
    except _REFUSED as error:
        raise QueryError(problems=(f"from_rows: {first_line(error)}",)) from error
    problems = []
    for name, dtype in frame.schema.items() if schema else ():
        if not dtype.is_nested():  # Polars takes a value for what it is meant to be, not as it is
            problems += _misfits(name, [row.get(name) for row in rows], dtype)
    return frame, problems


def find_same_but_for_case(names: Iterable[str]) -> list[str]:
    """Return a complaint about columns that Spark cannot tell apart.

    >>> find_same_but_for_case(["k", "x", "K"])
    ["from_spark: columns 'k' and 'K' differ in case alone, which Spark ignores; rename one"]
    """
    found: dict[str, str] = {}
    problems = []
    for name in names:
        first = found.setdefault(name.lower(), name)
        if first != name:
            problems.append(
                f"from_spark: columns {first!r} and {name!r} differ in case alone, which Spark "
                "ignores; rename one"
            )
    return problems


def _misfits(name: str, values: Sequence[Any], dtype: pl.DataType) -> list[str]:
    """Return the complaint about the first value that a type cannot hold, if there is one."""
    for kind in {type(value): None for value in values if value is not None}:
        some = [value for value in values if type(value) is kind]
        found = fit(pl.Series(some), dtype).misfits
        if found.any():
            return [_complaint(name, some[found.arg_true()[0]], dtype)]
    return []


def _fit_columns(frame: pl.DataFrame, schema: Mapping[str, Any]) -> tuple[pl.DataFrame, list[str]]:
    columns, problems = [], []
    for name, dtype in pl.DataFrame(schema=dict(schema)).schema.items():
        if name not in frame.columns:
            problems.append(f"from_rows: {unknown_column(name, frame.schema)}")
            columns.append(pl.Series(name, [None] * frame.height, dtype=dtype))
            continue
        fitted = fit(frame[name], dtype)
        if fitted.misfits.any():
            problems.append(_complaint(name, frame[name].filter(fitted.misfits)[0], dtype))
        columns.append(fitted.values.alias(name))
    return pl.DataFrame(columns), problems


def _complaint(name: str, value: Any, dtype: pl.DataType) -> str:
    return f"from_rows: column {name!r}: {value!r} has no exact value of type {dtype}"
