"""The event time that a source is given: a column, or an expression over its columns.

Law: an expression that is one column is that column, so a source means the same however its time is
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from penstock.query.expressions import (
    UNKNOWN,
    ExpressionLike,
    check,
    infer_row_wise,
    unknown_column,
)

Schema = Mapping[str, pl.DataType]


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """An event time: the column or the expression's text, the expression and its type if any."""

    text: str
    expression: pl.Expr | None = None
    dtype: pl.DataType | None = None


def read_time(time: ExpressionLike, schema: Schema, found: list[str]) -> Moment:
    """Return the event time that a user gives; what is wrong with it is added to ``found``.

    >>> read_time("to_timestamp(sec)", {"sec": pl.Int64()}, []).dtype
    Datetime(time_unit='us', time_zone='UTC')
    >>> problems = []
    >>> read_time("sec", {"sec": pl.Int64()}, problems).text, problems[0][:54]
    ('sec', "time column 'sec' must be a timestamp or a date; it is")
    """
    if isinstance(time, str) and (time in schema or time.isidentifier()):
        return _column(time, schema, found)
    before = len(found)
    expression, dtype = check("time", time, schema, infer_row_wise, found)
    text = str(time)
    if len(found) > before or dtype == UNKNOWN:
        return Moment(text=text)
    if expression.meta.is_column():
        return _column(expression.meta.output_name(), schema, found)
    if not expression.meta.root_names():
        found.append(f"time {text!r} is the same for every row; it must read a column")
    if not _is_time(dtype):
        found.append(
            f"time {text!r} must give a timestamp or a date; it gives {dtype}{_remedy(text, dtype)}"
        )
    return Moment(text=text, expression=expression, dtype=dtype)


def _column(name: str, schema: Schema, found: list[str]) -> Moment:
    if name not in schema:
        found.append(f"time column: {unknown_column(name, schema)}")
    elif not _is_time(schema[name]):
        quoted = name if name.isidentifier() else f'"{name}"'
        found.append(
            f"time column {name!r} must be a timestamp or a date; it is {schema[name]}"
            f"{_remedy(quoted, schema[name])}"
        )
    return Moment(text=name)


def _is_time(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Datetime) or dtype in (pl.Date(), UNKNOWN)


def _remedy(value: str, dtype: pl.DataType) -> str:
    """Return what to write for a value that is no time, after a semicolon; nothing if unknown."""
    if dtype.is_numeric():
        return (
            f"; write time='to_timestamp({value})' if it counts seconds, "
            f"time='epoch_ms({value})' if milliseconds"
        )
    if dtype == pl.String():
        return (
            f"""; write time="strptime({value}, '%Y-%m-%d %H:%M:%S')" in the format of its texts"""
        )
    return ""
