"""Aggregates that Polars' SQL does not know, and FILTER on them."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
from sqlglot import exp

from penstock.query.scalars.translate import Builder, Translator

Values = tuple[pl.Expr, ...]
Make = Callable[[Values], pl.Expr]


def _spread(values: Values) -> pl.Expr:
    return values[0].cast(pl.Float64, strict=False).var(ddof=0)


def _deviation(values: Values) -> pl.Expr:
    return values[0].cast(pl.Float64, strict=False).std(ddof=0)


def _count_if(values: Values) -> pl.Expr:
    return values[0].cast(pl.Int64, strict=False).sum()


def _every(values: Values) -> pl.Expr:
    return values[0].min()


def _any(values: Values) -> pl.Expr:
    return values[0].max()


def _first_by(extreme: Callable[[pl.Expr], pl.Expr]) -> Make:
    """Return what gives x of the row with the greatest or the least y, the first where they tie.

    Nothing is sorted: Polars 2.1 gives any row for ``sort_by(…, maintain_order=True).first()`` of
    some expressions.
    """

    def make(values: Values) -> pl.Expr:
        wanted, by = values
        return wanted.filter(by == extreme(by)).first()

    return make


_MADE: dict[str, Make] = {
    "arg_max": _first_by(pl.Expr.max),
    "arg_min": _first_by(pl.Expr.min),
    "bool_and": _every,
    "bool_or": _any,
    "count_if": _count_if,
    "countif": _count_if,
    "every": _every,
    "max_by": _first_by(pl.Expr.max),
    "min_by": _first_by(pl.Expr.min),
    "stddev_pop": _deviation,
    "var_pop": _spread,
}
_CONDITIONS = frozenset({"bool_and", "bool_or", "count_if", "countif", "every"})


def _call(t: Translator, node: exp.Expr, where: exp.Expr | None = None) -> pl.Expr | None:
    name = node.name.lower()
    given = t.values(*node.expressions)
    if name in _CONDITIONS and given[0][1] not in (None, pl.Boolean(), pl.Null()):
        raise ValueError(f"{name} takes a condition; it is {given[0][1]}")
    values = tuple(value for value, _ in given)
    if where is not None:
        kept = t.value(where)
        values = tuple(value.filter(kept) for value in values)
    return _MADE[name](values)


def _filter(t: Translator, node: exp.Expr) -> pl.Expr | None:
    called = node.this
    if not isinstance(called, exp.Anonymous) or called.name.lower() not in _MADE:
        return None
    return _call(t, called, node.expression.this)


NODES: dict[type[exp.Expr], Builder] = {exp.Filter: _filter}
CALLS: dict[str, Builder] = dict.fromkeys(_MADE, _call)
