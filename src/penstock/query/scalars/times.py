"""Arithmetic of dates, times and intervals.

Dates count days, as in PostgreSQL: the difference of two is a number of days, and a number of days
can be added. A date with an interval is a time.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import polars as pl
from sqlglot import exp

from penstock.query.scalars.translate import Builder, Translator
from penstock.query.scalars.zones import in_one_zone, in_zone, is_time

_PART = re.compile(r"([+-]?[\d.]+)\s*([a-zA-Z]+)")
_LONG = ("d", "w", "mon", "q", "y")
Typed = tuple[pl.Expr, pl.DataType | None]


def with_interval(t: Translator, node: exp.Expr) -> pl.Expr:
    """Return a sum or difference with an interval that is written out."""
    left, right = node.this, node.expression
    if isinstance(left, exp.Interval) and isinstance(node, exp.Add):
        left, right = right, left
    dtype = t.dtype(t.value(left))
    if dtype == pl.Date():
        left = exp.cast(left.copy(), exp.DataType.build("timestamp"))
    if isinstance(dtype, pl.Datetime) and dtype.time_zone:
        return _on_clocks(t, node, left, right, dtype)
    return t.as_polars_reads(type(node)(this=left.copy(), expression=right.copy()))


def _on_clocks(
    t: Translator, node: exp.Expr, left: exp.Expr, right: exp.Expr, dtype: pl.Datetime
) -> pl.Expr:
    """Return a time with a zone, moved: days and months by its clocks, then hours as they last."""
    days, hours = split_interval(right)
    value = t.value(left)
    if days:
        wall = exp.AtTimeZone(this=left.copy(), zone=exp.Literal.string(dtype.time_zone))
        moved = type(node)(this=wall, expression=exp.Interval(this=exp.Literal.string(days)))
        value = in_zone(t.as_polars_reads(moved), str(dtype.time_zone))
    if not hours:
        return value.dt.cast_time_unit(dtype.time_unit)
    span = exp.Interval(this=exp.Literal.string(hours))
    lasting = t.as_polars_reads(span)
    return value + lasting if isinstance(node, exp.Add) else value - lasting


def split_interval(interval: exp.Expr) -> tuple[str, str]:
    """Return the parts of an interval that are days or longer, and the others.

    >>> import sqlglot
    >>> split_interval(sqlglot.parse_one("INTERVAL '1 month 2 hours'", read="postgres"))
    ('1 month', '2 hours')
    """
    text = f"{interval.name} {interval.text('unit')}"
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip(" ,"):
        return "", text.strip()  # of another form, which is read or refused as a whole
    long = [f"{number} {unit}" for number, unit in parts if unit.lower().startswith(_LONG)]
    short = [f"{number} {unit}" for number, unit in parts if not unit.lower().startswith(_LONG)]
    return " ".join(long), " ".join(short)


def with_dates(
    t: Translator, sign: Callable[[Any, Any], Any], left: Typed, right: Typed
) -> pl.Expr | None:
    """Return a sum or difference with a date; None if there is none."""
    (a, a_type), (b, b_type) = left, right
    if sign is operator.sub and is_time(a_type) and is_time(b_type) and a_type != b_type:
        one, other = in_one_zone((left, right))
        return one - other
    if b_type == pl.Date() and sign is operator.add:
        return with_dates(t, sign, right, left) if a_type != pl.Date() else None
    if a_type != pl.Date() or b_type is None:
        return None
    if b_type == pl.Date():
        return _days(a, pl.Int64()) - _days(b, pl.Int64())
    if b_type.is_integer():
        days = sign(_days(a, pl.Int128()), b.cast(pl.Int128, strict=False))
        return t.strict(days, pl.Int32()).cast(pl.Date)
    if isinstance(b_type, pl.Duration):
        total: pl.Expr = sign(a.cast(pl.Datetime("us"), strict=False), b)
        return total
    return None


def _days(date: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    return date.cast(pl.Int32, strict=False).cast(dtype, strict=False)


def _strptime(t: Translator, node: exp.Expr) -> pl.Expr | None:
    """Return the time of a text; Polars takes no hours without minutes."""
    text, form = node.expressions
    directives = set(re.findall("%(.)", form.name)) if isinstance(form, exp.Literal) else set()
    if not directives & set("HI") or directives & set("MRTX+"):
        return None
    full = exp.DPipe(this=exp.paren(text.copy()), expression=exp.Literal.string(" 00"))
    return t.as_polars_reads(
        exp.Anonymous(this=node.this, expressions=[full, exp.Literal.string(f"{form.name} %M")])
    )


NODES: dict[type[exp.Expr], Builder] = {}
CALLS: dict[str, Builder] = {
    "strptime": _strptime,
}
