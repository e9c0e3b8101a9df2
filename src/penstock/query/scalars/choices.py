"""Choices between values: CASE, COALESCE, NULLIF, GREATEST, LEAST.

Law: what is not chosen is not computed, so that it cannot fail.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
from sqlglot import exp

from penstock.query.scalars.logic import make_alike
from penstock.query.scalars.translate import Builder, Translator
from penstock.query.scalars.zones import same_times


def _case(t: Translator, node: exp.Expr) -> pl.Expr | None:
    branches: list[tuple[pl.Expr, pl.Expr]] = []
    rest = t
    for branch in node.args["ifs"]:
        condition = _condition(rest, node.this, branch.this)
        held = condition.fill_null(False)
        branches.append((condition, rest.where(held).value(branch.args["true"])))
        rest = rest.where(~held)
    default = node.args.get("default") or exp.Null()
    nodes = [*[branch.args["true"] for branch in node.args["ifs"]], default]
    *chosen, other = _same(t, nodes, [*[value for _, value in branches], rest.value(default)])
    conditions = [condition for condition, _ in branches]
    return _choose(list(zip(conditions, chosen, strict=True)), other)


def _same(t: Translator, nodes: Sequence[exp.Expr], values: Sequence[pl.Expr]) -> list[pl.Expr]:
    """Return values of which one is chosen: times of one zone, decimals with room for all."""
    return _make_room(t, same_times(nodes, [(value, t.dtype(value)) for value in values]))


def _condition(t: Translator, subject: exp.Expr | None, wanted: exp.Expr) -> pl.Expr:
    if subject is None:
        return t.value(wanted)
    left, right = make_alike(t, subject, wanted)
    return left == right


def _choose(branches: Sequence[tuple[pl.Expr, pl.Expr]], default: pl.Expr) -> pl.Expr:
    value = default
    for condition, chosen in reversed(branches):
        value = pl.when(condition).then(chosen).otherwise(value)
    return value


def _make_room(t: Translator, values: Sequence[pl.Expr]) -> list[pl.Expr]:
    """Return values of one type; unsigned and signed integers of 64 bits meet in 128.

    Polars would put them into a signed type of 64 bits, which the largest do not fit.
    """
    types = [t.dtype(value) for value in values]
    signed = any(dtype is not None and dtype.is_signed_integer() for dtype in types)
    if pl.UInt64() not in types or not signed:
        return list(values)
    return [
        value.cast(pl.Int128, strict=False) if dtype is not None and dtype.is_integer() else value
        for value, dtype in zip(values, types, strict=True)
    ]


def _if(t: Translator, node: exp.Expr) -> pl.Expr | None:
    if len(node.expressions) != 3:
        return None
    condition, yes, no = node.expressions
    held = t.value(condition)
    chosen = t.where(held.fill_null(False)).value(yes)
    left = t.where(~held.fill_null(False)).value(no)
    chosen, left = _same(t, (yes, no), (chosen, left))
    return _choose([(held, chosen)], left)


def _coalesce(t: Translator, node: exp.Expr) -> pl.Expr | None:
    values: list[pl.Expr] = []
    rest = t
    for part in node.expressions:
        values.append(rest.value(part))
        rest = rest.where(values[-1].is_null())
    return pl.coalesce(_same(t, node.expressions, values)) if values else None


def _nullif(t: Translator, node: exp.Expr) -> pl.Expr | None:
    if len(node.expressions) != 2:
        return None
    value, other = make_alike(t, *node.expressions)
    same = (value == other).fill_null(False)
    return pl.when(~same).then(value)


def _extreme(sign: Callable[[Any, Any], Any]) -> Builder:
    """Return what picks the greatest or the least; nulls are passed over, NaN is the greatest."""

    def build(t: Translator, node: exp.Expr) -> pl.Expr | None:
        found, *others = _make_room(t, make_alike(t, *node.expressions))
        for other in others:
            better = sign(other, found) | found.is_null()
            found = pl.when(better.fill_null(False)).then(other).otherwise(found)
        return found

    return build


NODES: dict[type[exp.Expr], Builder] = {exp.Case: _case}
CALLS: dict[str, Builder] = {
    "coalesce": _coalesce,
    "greatest": _extreme(operator.gt),
    "if": _if,
    "ifnull": _coalesce,
    "least": _extreme(operator.lt),
    "nullif": _nullif,
}
