"""Read SQL text: which function makes what of the SQL that Polars would read in another way."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import sqlglot
from sqlglot import exp

from penstock.query.dialect import PenstockSql
from penstock.query.functions import AGGREGATE_NAMES, check_call
from penstock.query.scalars import (
    arithmetic,
    casts,
    choices,
    counts,
    fields,
    floats,
    grouped,
    joined,
    lists,
    logic,
    parts,
    rounding,
    sketched,
    slices,
    strings,
    times,
    zones,
)
from penstock.query.scalars.translate import Builder, Schema, Translator

_MODULES = (
    arithmetic, casts, choices, counts, fields, floats, grouped, joined, lists, logic, parts,
    rounding, sketched, slices, strings, times, zones,
)  # fmt: skip
_NODES: Mapping[type[exp.Expr], Builder] = {
    kind: builder for module in _MODULES for kind, builder in module.NODES.items()
}
_CALLS: Mapping[str, Builder] = {
    name: builder for module in _MODULES for name, builder in module.CALLS.items()
}
_OF_TWO = frozenset(
    {"arg_max", "arg_min", "corr", "covar", "covar_pop", "covar_samp", "max_by", "min_by"}
)


def read_text(text: str, schema: Schema) -> pl.Expr:
    """Return the Polars expression of SQL text over the columns of a schema.

    Raises:
        WrongCall: It calls a function that there is not, or with a wrong number of arguments.
        ValueError: It is not an expression of SQL, or not one that Penstock knows.
        PolarsError: Polars cannot read it.

    >>> str(read_text("a LIKE 'x%'", {"a": pl.String()}))
    'col("a").str.starts_with(["x"])'
    """
    try:
        node = sqlglot.parse_one(text, read=PenstockSql)
    except (sqlglot.errors.ParseError, sqlglot.errors.TokenError) as error:
        raise ValueError(str(error).splitlines()[0].rstrip(".")) from error
    for call in node.find_all(exp.Anonymous):
        check_call(call.name, len(call.expressions))
    if schema:
        _spread_constants(node, next(iter(schema)))
    names = {part.name for part in node.find_all(exp.Identifier)}
    known = {name: dtype for name, dtype in schema.items() if name in names}
    return Translator(schema=known, builder_of=_builder_of).value(node)


def _spread_constants(node: exp.Expr, column: str) -> None:
    """Put a constant that is aggregated into every row; to Polars it is one value.

    Polars itself counts and sums literals as SQL does.
    """
    every = exp.column(exp.to_identifier(column, quoted=True))
    there = exp.or_(every.is_(exp.null()), exp.not_(every.is_(exp.null())))
    for call in list(node.find_all(exp.Anonymous)):
        for argument in _find_aggregated(call):
            if not any(argument.find_all(exp.Column, exp.Star)):
                argument.replace(exp.Case().when(there.copy(), argument.copy()))
    for filtered in list(node.find_all(exp.Filter)):
        condition = filtered.expression.this
        if not any(condition.find_all(exp.Column)):
            condition.replace(exp.Case().when(there.copy(), condition.copy()))


def _find_aggregated(call: exp.Anonymous) -> list[exp.Expr]:
    """Return the arguments of an aggregate that are to stand in every row."""
    name = call.name.lower()
    if name not in AGGREGATE_NAMES or not call.expressions:
        return []
    first: exp.Expr = call.expressions[0]
    if isinstance(first, exp.Order):
        first = first.this
    if isinstance(first, exp.Distinct):
        first = first.expressions[0]
    if name in ("count", "sum") and isinstance(first, exp.Literal | exp.Null):
        return []
    return [first, *call.expressions[1:]] if name in _OF_TWO else [first]


def _builder_of(node: exp.Expr) -> Builder | None:
    """Return what makes the expression of a node; None if Polars' own SQL does."""
    if isinstance(node, exp.Anonymous):
        return _CALLS.get(node.name.lower())
    return _NODES.get(type(node))
