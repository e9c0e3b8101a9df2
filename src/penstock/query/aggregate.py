"""Aggregates as a user writes them: groups, a window, and named values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from penstock.query.aggregates import infer_aggregate, take_apart, value_types
from penstock.query.expressions import UNKNOWN, ExpressionLike, check, reserved
from penstock.query.keys import Names, key_problems, names_of
from penstock.query.nodes import Aggregate, Node
from penstock.query.windows import WINDOW_COLUMNS, Window, bounds_of
from penstock.query.words import in_words


def aggregate_node(
    stream: Node, *, by: Names, window: Window, values: Mapping[str, ExpressionLike], sound: bool
) -> tuple[Node, list[str]]:
    """Return the operator that aggregates, and what is wrong with it.

    Args:
        stream: Its input.
        by: The grouping columns.
        window: The window.
        values: Named aggregate expressions.
        sound: Whether nothing is wrong with the input, so that types can be told.
    """
    keys, schema = names_of(by), stream.schema
    found = [f"aggregate: {problem}" for problem in window.problems()]
    found += key_problems("aggregate by", keys, schema, nested=True)
    if not values:
        found.append("aggregate: no values given; for example calls='count(*)'")
    said = tuple(v if isinstance(v, str) else in_words(v) for v in values.values())
    aggregation = replace(take_apart(_parse(schema, keys, values, found), schema), said=said)
    output: dict[str, pl.DataType] = {key: schema.get(key, UNKNOWN) for key in keys}
    output |= bounds_of(window, stream.zone)
    known = sound and not found
    output |= value_types(aggregation, schema) if known else dict.fromkeys(values, UNKNOWN)
    node = Aggregate(
        inputs=(stream,), schema=output, by=keys, window=window, aggregation=aggregation
    )
    return node, found


def _parse(
    schema: Mapping[str, pl.DataType],
    keys: tuple[str, ...],
    values: Mapping[str, ExpressionLike],
    found: list[str],
) -> dict[str, pl.Expr]:
    parsed = {}
    for name, expression in values.items():
        found += reserved("aggregate", name)
        if name in keys or name in WINDOW_COLUMNS:
            found.append(f"aggregate: value {name!r} clashes with a column of the result")
        value, dtype = check(f"aggregate {name}", expression, schema, infer_aggregate, found)
        if dtype != UNKNOWN:
            parsed[name] = value
    return parsed
