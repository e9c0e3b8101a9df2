"""Polars expressions as trees of plain values, and back."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import polars as pl


def to_tree(expression: pl.Expr) -> Any:
    """Return an expression as the nested values of Polars' JSON form."""
    return json.loads(expression.meta.serialize(format="json"))


def from_tree(tree: Any) -> pl.Expr:
    """Return the expression of a tree made by `to_tree`."""
    return pl.Expr.deserialize(io.StringIO(json.dumps(tree)), format="json")


def substitute(expression: pl.Expr, values: Mapping[str, pl.Expr]) -> pl.Expr:
    """Return an expression with other expressions in place of some columns.

    >>> str(substitute(pl.col("x") + 1, {"x": pl.col("a") * 2}))
    '[([(col("a")) * (dyn int: 2)]) + (dyn int: 1)]'
    """
    if not values:
        return expression
    trees = {name: to_tree(value) for name, value in values.items()}

    def walk(node: Any) -> Any:
        if isinstance(node, dict):
            if isinstance(node.get("Column"), str) and node["Column"] in trees:
                return trees[node["Column"]]
            return {key: walk(value) for key, value in node.items()}
        if isinstance(node, list):
            return [walk(value) for value in node]
        return node

    return from_tree(walk(to_tree(expression)))
