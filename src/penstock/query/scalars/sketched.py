"""The approximate aggregates, which Polars' SQL does not know."""

from __future__ import annotations

import polars as pl
from sqlglot import exp

from penstock.query.scalars.translate import Builder, Translator
from penstock.query.sketches import approx_distinct, approx_quantile


def _distinct(t: Translator, node: exp.Expr) -> pl.Expr | None:
    return approx_distinct(t.value(node.expressions[0])) if len(node.expressions) == 1 else None


def _quantile(t: Translator, node: exp.Expr) -> pl.Expr | None:
    if len(node.expressions) != 2:
        return None
    return approx_quantile(t.value(node.expressions[0]), float(node.expressions[1].name))


NODES: dict[type[exp.Expr], Builder] = {}
CALLS: dict[str, Builder] = {
    "approx_count_distinct": _distinct,
    "approx_distinct": _distinct,
    "approx_percentile": _quantile,
    "approx_quantile": _quantile,
}
