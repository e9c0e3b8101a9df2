"""Aggregates over kept rows: the same values as those of merged partials.

Where an expression cannot be taken apart, Polars computes it over all rows of a group. Its sums of
integers wrap, its averages of decimals are floats, and its maximum leaves NaN out. Law: a sum, an
average or a maximum gives what it gives where it is merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from penstock.query.sums import Total, mean_type, sum_type, width
from penstock.query.trees import from_tree, to_tree
from penstock.query.words import in_words

_SUMMED = {"Sum": "sum", "Mean": "avg"}


def exact(expression: pl.Expr, schema: Mapping[str, pl.DataType]) -> pl.Expr:
    """Return an aggregate expression with the aggregates of Penstock in place of Polars'.

    >>> rows = pl.DataFrame({"x": [2**62, 2**62, -(2**62)]})
    >>> rows.select(exact(pl.col("x").mean() + pl.col("x").median(), rows.schema)).item()
    6.148914691236517e+18
    """
    try:
        return from_tree(_walk(to_tree(expression), pl.LazyFrame(schema=schema)))
    except pl.exceptions.PolarsError:  # a Python function or a literal NaN has no JSON form
        return expression


def _walk(node: Any, frame: pl.LazyFrame) -> Any:
    if isinstance(node, list):
        return [_walk(child, frame) for child in node]
    if not isinstance(node, dict):
        return node
    inner = {
        key: child if key in ("Literal", "Column") else _walk(child, frame)
        for key, child in node.items()
    }
    return _changed(inner["Agg"], frame) or inner if set(inner) == {"Agg"} else inner


def _changed(call: dict[str, Any], frame: pl.LazyFrame) -> Any:
    """Return what stands for a call of an aggregate; None if it can stay."""
    ((name, body),) = call.items()
    if name not in ("Max", "Sum", "Mean"):
        return None
    values = from_tree(body["input"] if name == "Max" else body)
    try:
        dtype = frame.select(values.alias("_")).collect_schema()["_"]
    except pl.exceptions.PolarsError:  # it is about parts of lists, say
        return None
    if name == "Max":
        return to_tree(values.nan_max()) if dtype.is_float() else None
    made = _sum(name, values, dtype)
    return None if made is None else to_tree(made)


def _sum(name: str, values: pl.Expr, dtype: pl.DataType) -> pl.Expr | None:
    told = f"{_SUMMED[name]}({in_words(values)}) does not fit"
    if width(dtype) == "short":
        whole = (dtype.is_integer() and dtype != pl.UInt128()) or dtype == pl.Boolean()
        return values.cast(pl.Int64).sum() if whole and name == "Sum" else None
    total = Total.of(values, dtype)
    if name == "Sum":
        return total.sum(f"{told} {sum_type(dtype)}")
    count = values.count().cast(pl.Int64)
    mean = total.mean(count, f"{told} {mean_type(dtype)}")
    return pl.when(count > 0).then(mean)
