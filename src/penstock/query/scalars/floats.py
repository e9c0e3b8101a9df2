"""Numbers that are floats: literals with an exponent, and the functions of analysis.

Law: they are of 64 bits, whatever stands beside them or goes into them.
"""

from __future__ import annotations

import math

import polars as pl
from sqlglot import exp

from penstock.query.scalars.translate import Builder, Translator

_NAMES = (
    "acos", "acosd", "asin", "asind", "atan", "atan2", "atan2d", "atand", "cbrt", "cos", "cosd",
    "cot", "cotd", "degrees", "erf", "exp", "ln", "log", "log10", "log1p", "log2", "radians", "sin",
    "sind", "sqrt", "tan", "tand",
)  # fmt: skip


def _in_doubles(t: Translator, node: exp.Expr) -> pl.Expr | None:
    made = node.copy()
    given = t.values(*made.expressions)
    for part, (_, dtype) in zip(made.expressions, given, strict=True):
        if dtype is not None and dtype.is_numeric() and dtype != pl.Float64():
            part.replace(exp.cast(part.copy(), exp.DataType.build("double")))
    found = t.as_polars_reads(made)
    plain = all(value.meta.root_names() for value, _ in given)
    return found if plain else found.cast(pl.Float64, strict=False)  # a literal has no type yet


def _literal(t: Translator, node: exp.Expr) -> pl.Expr | None:
    if isinstance(node, exp.Literal) and not node.is_string and "e" in node.name.lower():
        return pl.lit(float(node.name), pl.Float64)
    return None


def _pi(t: Translator, node: exp.Expr) -> pl.Expr | None:
    return pl.lit(math.pi, pl.Float64)


NODES: dict[type[exp.Expr], Builder] = {exp.Literal: _literal}
CALLS: dict[str, Builder] = {**dict.fromkeys(_NAMES, _in_doubles), "pi": _pi}
