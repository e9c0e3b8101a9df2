"""Can an operator fail on a row?

Polars leaves out work that it sees no use for: it filters before it computes, and does not compute
what nobody reads. A row that would have failed then passes, or not, depending on the plan. Law: an
operator that is called safe fails on no row, so what the optimiser does to it cannot be seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import polars as pl

from penstock.query.enrich import Lookup
from penstock.query.nodes import Explode, Filter, Map, Node, Sink, Spread, Union
from penstock.query.trees import to_tree

_LOGIC = frozenset({
    "And", "Or", "Xor", "LogicalAnd", "LogicalOr", "Eq", "NotEq", "Lt", "LtEq", "Gt", "GtEq",
    "EqValidity", "NotEqValidity",
})  # fmt: skip
_ARITHMETIC = frozenset({"Plus", "Minus", "Multiply", "TrueDivide"})
_SQL_ARITHMETIC = frozenset({"Add", "Sub", "Mul", "Div"})
_SAFE_FUNCTIONS = frozenset({
    "Abs", "Ceil", "Coalesce", "FillNull", "Floor", "MaxHorizontal", "MinHorizontal", "Negate",
    "Boolean.AllHorizontal", "Boolean.AnyHorizontal", "Boolean.IsBetween", "Boolean.IsFinite",
    "Boolean.IsIn", "Boolean.IsNan", "Boolean.IsNotNan", "Boolean.IsNotNull", "Boolean.IsNull",
    "Boolean.Not", "StringExpr.EndsWith", "StringExpr.LenBytes", "StringExpr.LenChars",
    "StringExpr.Lowercase", "StringExpr.StartsWith", "StringExpr.Uppercase", "TemporalExpr.Day",
    "TemporalExpr.Hour", "TemporalExpr.Minute", "TemporalExpr.Month", "TemporalExpr.Second",
    "TemporalExpr.TotalSeconds", "TemporalExpr.WeekDay", "TemporalExpr.Year",
})  # fmt: skip


@lru_cache(maxsize=1024)
def may_fail(node: Node) -> bool:
    """Return whether a stateless operator could raise for some row.

    >>> import penstock as ps
    >>> s = ps.from_rows([{"a": "1", "n": 1, "ts": ps.at("2024-01-01")}], time="ts")
    >>> [may_fail(s.map(b=e)._node) for e in ("n / 2", "coalesce(n, 0) > 2", "cast(a as bigint)")]
    [False, False, True]
    """
    if isinstance(node, Union | Sink | Explode | Lookup | Spread):
        return False
    if isinstance(node, Map):
        return not _all_safe(node, (expression for _, expression in node.columns))
    if isinstance(node, Filter):
        return not _all_safe(node, [node.predicate])
    return True


def _all_safe(node: Node, expressions: Iterable[pl.Expr]) -> bool:
    exact = any(dtype.is_decimal() for dtype in node.inputs[0].schema.values())
    try:
        trees = [to_tree(expression) for expression in expressions]
    except pl.exceptions.PolarsError:  # a Python function has no JSON form
        return False
    return all(_is_safe(tree, exact or "'Decimal'" in str(tree)) for tree in trees)


def _is_safe(tree: Any, exact: bool) -> bool:
    """Return whether a tree is safe; with ``exact`` it may have decimals, which can overflow."""
    if not isinstance(tree, dict) or len(tree) != 1:
        return False
    ((kind, body),) = tree.items()
    if kind in ("Column", "Literal"):
        return True
    if kind == "Alias":
        return _is_safe(body[0], exact)
    if kind == "Ternary":
        return all(_is_safe(body[part], exact) for part in ("predicate", "truthy", "falsy"))
    if kind == "Cast":
        return body["options"] == "NonStrict" and _is_safe(body["expr"], exact)
    if kind == "BinaryExpr":
        known = _LOGIC if exact else _LOGIC | _ARITHMETIC
        return (
            body["op"] in known and _is_safe(body["left"], exact) and _is_safe(body["right"], exact)
        )
    if kind == "Function":
        safe = _is_safe_function(body["function"], exact)
        return safe and all(_is_safe(e, exact) for e in body["input"])
    return False


def _is_safe_function(function: Any, exact: bool) -> bool:
    if isinstance(function, str):
        return function in _SAFE_FUNCTIONS
    ((group, name),) = function.items()
    if isinstance(name, dict) and len(name) == 1:
        ((name, body),) = name.items()
        if (group, name) == ("Sql", "Binary"):
            return body in _LOGIC or (body in _SQL_ARITHMETIC and not exact)
    return f"{group}.{name}" in _SAFE_FUNCTIONS
