"""Texts put together: ``||``, concat, concat_ws.

Law: what is no text becomes the one that CAST would make of it.
"""

from __future__ import annotations

import polars as pl
from sqlglot import exp

from penstock.query.scalars.translate import Builder, Translator


def _join(t: Translator, node: exp.Expr) -> pl.Expr | None:
    made = node.copy()
    parts = made.expressions or [made.this, made.expression]
    for part, (_, dtype) in zip(parts, t.values(*parts), strict=True):
        if isinstance(dtype, pl.List | pl.Array):
            return None
        if dtype not in (None, pl.String(), pl.Null()):
            part.replace(exp.cast(part.copy(), exp.DataType.build("varchar")))
    return t.as_polars_reads(made)


NODES: dict[type[exp.Expr], Builder] = {exp.DPipe: _join}
CALLS: dict[str, Builder] = {"concat": _join, "concat_ws": _join}
