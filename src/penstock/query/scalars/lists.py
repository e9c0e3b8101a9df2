"""Lists: ARRAY[x, y], whose elements can be any expressions, and what looks into them.

Law: null is no element that is found or added up.
"""

from __future__ import annotations

import polars as pl
from sqlglot import exp

from penstock.query.scalars.translate import Builder, Translator


def _array(t: Translator, node: exp.Expr) -> pl.Expr | None:
    if all(isinstance(part, exp.Literal | exp.Null | exp.Boolean) for part in node.expressions):
        return None
    found = t.values(*node.expressions)
    return pl.concat_list([_typed(value, dtype) for value, dtype in found])


def _typed(value: pl.Expr, dtype: pl.DataType | None) -> pl.Expr:
    """Return a value whose type does not depend on what stands beside it; constants' does."""
    if dtype in (None, pl.Null()) or value.meta.root_names():
        return value
    return value.cast(dtype, strict=False)


def _contains(t: Translator, node: exp.Expr) -> pl.Expr | None:
    values, wanted = (t.value(part) for part in node.expressions)
    known = pl.when(wanted.is_not_null()).then(True)
    return values.list.contains(wanted) == known  # a ternary would leave out a list that fails


def _sum(t: Translator, node: exp.Expr) -> pl.Expr | None:
    values = t.value(node.expressions[0])
    return pl.when(values.list.drop_nulls().list.len() > 0).then(values.list.sum())


NODES: dict[type[exp.Expr], Builder] = {exp.Array: _array}
CALLS: dict[str, Builder] = {"array_contains": _contains, "array_sum": _sum}
