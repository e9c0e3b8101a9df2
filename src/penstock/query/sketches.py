"""The approximate aggregates, as Polars expressions that the decomposer knows again.

Polars has no mergeable quantile, so ``approx_quantile`` is written as a quantile over a marked
column. SQL text that names an ``approx_`` function is rewritten with sqlglot: each call becomes a
placeholder column, the rest is parsed by Polars, and the placeholder is replaced.
"""

from __future__ import annotations

import io
import json
from typing import Any

import polars as pl
import sqlglot
from sqlglot import exp

QUANTILE_MARK = "__approx_quantile"


def approx_quantile(column: str | pl.Expr, q: float) -> pl.Expr:
    """Return the q-quantile of a column within 1 % of its value, from a mergeable sketch.

    >>> import penstock as ps
    >>> p99 = ps.approx_quantile("latency", 0.99)
    """
    if not 0 <= q <= 1:
        raise ValueError(f"q must be between 0 and 1; q={q!r}")
    expression = pl.col(column) if isinstance(column, str) else column
    return expression.alias(QUANTILE_MARK).quantile(q)


def approx_distinct(column: str | pl.Expr) -> pl.Expr:
    """Return the number of distinct values within about 2 %, from a mergeable sketch.

    >>> import penstock as ps
    >>> callees = ps.approx_distinct("dst")
    """
    expression = pl.col(column) if isinstance(column, str) else column
    return expression.approx_n_unique()


def parse_sql(text: str) -> pl.Expr:
    """Return the Polars expression of an SQL expression, ``approx_`` functions included.

    >>> str(parse_sql("approx_count_distinct(dst)"))
    'col("dst").approx_n_unique()'
    """
    if "approx_" not in text.lower():
        return pl.sql_expr(text)
    found: dict[str, pl.Expr] = {}

    def placeholder(node: exp.Expression) -> exp.Expression:
        sketch = _sketch(node)
        if sketch is None:
            return node
        name = f"__sketch{len(found)}"
        found[name] = sketch
        return exp.column(exp.to_identifier(name, quoted=True))

    try:
        tree = sqlglot.parse_one(text, read="postgres").transform(placeholder)
    except sqlglot.errors.ParseError as error:
        raise ValueError(str(error)) from error
    return _substitute(pl.sql_expr(tree.sql(dialect="postgres")), found)


def _sketch(node: exp.Expression) -> pl.Expr | None:
    if isinstance(node, exp.ApproxDistinct):
        return approx_distinct(pl.sql_expr(node.this.sql(dialect="postgres")))
    if isinstance(node, exp.ApproxQuantile):
        q = float(node.args["quantile"].name)
        return approx_quantile(pl.sql_expr(node.this.sql(dialect="postgres")), q)
    if isinstance(node, exp.Anonymous):
        return _named_sketch(
            node.name.lower(), [a.sql(dialect="postgres") for a in node.expressions]
        )
    return None


def _named_sketch(name: str, arguments: list[str]) -> pl.Expr | None:
    if name in ("approx_distinct", "approx_count_distinct") and len(arguments) == 1:
        return approx_distinct(pl.sql_expr(arguments[0]))
    if name in ("approx_quantile", "approx_percentile") and len(arguments) == 2:
        return approx_quantile(pl.sql_expr(arguments[0]), float(arguments[1]))
    return None


def _substitute(expression: pl.Expr, values: dict[str, pl.Expr]) -> pl.Expr:
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


def to_tree(expression: pl.Expr) -> Any:
    """Return an expression as the nested values of Polars' JSON form."""
    return json.loads(expression.meta.serialize(format="json"))


def from_tree(tree: Any) -> pl.Expr:
    """Return the expression of a tree made by `to_tree`."""
    return pl.Expr.deserialize(io.StringIO(json.dumps(tree)), format="json")
