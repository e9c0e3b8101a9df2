"""Comparisons and logic, with SQL's three truth values.

NaN equals itself and is greater than every other number, as it is in Polars. A quoted text beside
a number or a time is read as one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import polars as pl
from sqlglot import exp

from penstock.query.functions import WrongCall
from penstock.query.scalars.translate import Builder, Translator
from penstock.query.scalars.zones import is_text, is_time, same_times

_FEW = 4
"""As many values of IN are compared one by one."""


def _paren(t: Translator, node: exp.Expr) -> pl.Expr | None:
    return t.value(node.this)


def _and(t: Translator, node: exp.Expr) -> pl.Expr | None:
    left = t.value(node.this)
    return left & t.where(left.fill_null(True)).value(node.expression)


def _or(t: Translator, node: exp.Expr) -> pl.Expr | None:
    left = t.value(node.this)
    return left | t.where(~left.fill_null(False)).value(node.expression)


def _not(t: Translator, node: exp.Expr) -> pl.Expr | None:
    return ~t.value(node.this)


def _comparison(sign: Callable[[Any, Any], Any]) -> Builder:
    def build(t: Translator, node: exp.Expr) -> pl.Expr | None:
        left, right = make_alike(t, node.this, node.expression)
        found: pl.Expr = sign(left, right)
        return found

    return build


def make_alike(t: Translator, *nodes: exp.Expr) -> list[pl.Expr]:
    """Return the values of nodes that are compared; quoted texts get the type of the others."""
    found = t.values(*nodes)
    types = [
        dtype
        for node, (_, dtype) in zip(nodes, found, strict=True)
        if not is_text(node) and dtype not in (None, pl.Null())
    ]
    if any(is_time(dtype) for dtype in types):
        return same_times(nodes, found)
    if not types or types[0] == pl.String():
        return [value for value, _ in found]
    for node in nodes:
        if is_text(node) and types[0].is_numeric():
            _check_number(node.name, types[0])
    return [
        t.value(_cast_text(node, types[0])) if is_text(node) else value
        for node, (value, _) in zip(nodes, found, strict=True)
    ]


def _check_number(text: str, dtype: pl.DataType) -> None:
    try:
        float(text)
    except ValueError:
        raise WrongCall(f"{text!r} is not a number; it stands beside {dtype}") from None


def _cast_text(node: exp.Expr, dtype: pl.DataType | None) -> exp.Expr:
    if isinstance(dtype, pl.Duration):
        return exp.Interval(this=node.copy())
    name = _SQL_TYPES.get(type(dtype)) if dtype is not None else None
    return node if name is None else exp.cast(node.copy(), exp.DataType.build(name))


_SQL_TYPES: dict[type[pl.DataType], str] = {
    pl.Int8: "BIGINT", pl.Int16: "BIGINT", pl.Int32: "BIGINT", pl.Int64: "BIGINT",
    pl.UInt8: "BIGINT", pl.UInt16: "BIGINT", pl.UInt32: "BIGINT",
    pl.Float32: "DOUBLE PRECISION", pl.Float64: "DOUBLE PRECISION",
    pl.Time: "TIME", pl.Boolean: "BOOLEAN",
}  # fmt: skip


def _between(t: Translator, node: exp.Expr) -> pl.Expr | None:
    value, low, high = make_alike(t, node.this, node.args["low"], node.args["high"])
    if node.args.get("symmetric"):
        return ((value >= low) & (value <= high)) | ((value >= high) & (value <= low))
    return (value >= low) & (value <= high)


def _in(t: Translator, node: exp.Expr) -> pl.Expr | None:
    if any(isinstance(part, exp.Query) for part in node.expressions) or node.args.get("query"):
        return None
    if not node.expressions:
        raise WrongCall("IN needs values in parentheses: x IN (1, 2)")
    many = len(node.expressions) > _FEW and all(
        isinstance(part, exp.Literal) for part in node.expressions
    )
    if many and not is_time(t.dtype(t.value(node.this))):
        return None  # a set is faster, and literals have no types that differ
    value, *choices = make_alike(t, node.this, *node.expressions)
    found = [value == choice for choice in choices]
    return pl.any_horizontal(found) if len(found) > 1 else found[0]


def _is(t: Translator, node: exp.Expr) -> pl.Expr | None:
    value, wanted = t.value(node.this), node.expression
    if isinstance(wanted, exp.Boolean):
        found = value.fill_null(False) if wanted.this else ~value.fill_null(True)
        return ~found if node.args.get("negate") else found
    if isinstance(wanted, exp.Null):
        return value.is_not_null() if node.args.get("negate") else value.is_null()
    return None


def _same(t: Translator, node: exp.Expr) -> pl.Expr | None:
    left, right = make_alike(t, node.this, node.expression)
    return left.eq_missing(right)


def _other(t: Translator, node: exp.Expr) -> pl.Expr | None:
    left, right = make_alike(t, node.this, node.expression)
    return left.ne_missing(right)


NODES: dict[type[exp.Expr], Builder] = {
    exp.Paren: _paren,
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
    exp.EQ: _comparison(operator.eq),
    exp.NEQ: _comparison(operator.ne),
    exp.LT: _comparison(operator.lt),
    exp.LTE: _comparison(operator.le),
    exp.GT: _comparison(operator.gt),
    exp.GTE: _comparison(operator.ge),
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.NullSafeEQ: _same,
    exp.NullSafeNEQ: _other,
}
CALLS: dict[str, Builder] = {}
