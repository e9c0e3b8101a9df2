"""Is an expression row-wise?

Law: an expression that is called row-wise gives the same column for a frame as for its rows one by
one. Two checks guard it: the names of the operations that look at more than one row, and a trial
on a few sample rows, for operations whose names are not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta
from typing import Any

import polars as pl

from penstock.query.trees import to_tree

_WHOLE_COLUMN_NODES = frozenset(
    {
        "Agg",
        "Len",
        "Over",
        "Rolling",
        "Sort",
        "SortBy",
        "Gather",
        "Filter",
        "Slice",
        "Explode",
    }
)
_WHOLE_COLUMN_FUNCTIONS = frozenset(
    {
        "All",
        "Any",
        "ApproxNUnique",
        "ArgMax",
        "ArgMin",
        "ArgSort",
        "ArgUnique",
        "ArgWhere",
        "BottomK",
        "BottomKBy",
        "ConcatVertical",
        "Correlation",
        "CumCount",
        "CumMax",
        "CumMin",
        "CumProd",
        "CumSum",
        "Diff",
        "DropNans",
        "DropNulls",
        "Entropy",
        "EwmMean",
        "EwmStd",
        "EwmVar",
        "FillNullWithStrategy",
        "GatherEvery",
        "Hist",
        "Interpolate",
        "InterpolateBy",
        "IsDuplicated",
        "IsFirstDistinct",
        "IsLastDistinct",
        "IsUnique",
        "Kurtosis",
        "Mode",
        "PctChange",
        "PeakMax",
        "PeakMin",
        "QCut",
        "Quantile",
        "RLE",
        "RLEID",
        "Random",
        "Range",
        "Rank",
        "Repeat",
        "Reverse",
        "RollingExpr",
        "RollingExprBy",
        "Shift",
        "ShiftAndFill",
        "Skew",
        "TopK",
        "TopKBy",
        "Unique",
        "UniqueCounts",
        "ValueCounts",
    }
)


_NAMING = frozenset({"function", "Boolean"})
_OF_ONE_VALUE = frozenset({"StringExpr", "TemporalExpr"})
"""Families of functions of one value; some share their names with operations on whole columns."""


def is_row_wise(expression: pl.Expr, schema: Mapping[str, pl.DataType]) -> bool:
    """Return whether each value of an expression depends on its own row alone.

    >>> is_row_wise(pl.col("x") + 1, {"x": pl.Int64()})
    True
    >>> is_row_wise(pl.col("x") - pl.col("x").mean(), {"x": pl.Int64()})
    False
    """
    return not any(looks_around(expression)) and _is_same_row_by_row(expression, schema)


def looks_around(expression: pl.Expr) -> Iterator[bool]:
    """Return, operation by operation, whether it looks at more than one row."""
    try:
        tree = to_tree(expression)
    except pl.exceptions.PolarsError:  # a Python function has no JSON form: the trial decides
        return
    yield from (name in _WHOLE_COLUMN_NODES | _WHOLE_COLUMN_FUNCTIONS for name in _names(tree))


def _names(node: Any) -> Iterator[str]:
    if node == "Len":
        yield node
    elif isinstance(node, list):
        for child in node:
            yield from _names(child)
    elif isinstance(node, dict):
        for key, child in node.items():
            if key in ("Column", "Literal"):
                continue
            if key == "Eval" and child.get("variant") == "List":  # it looks around within one list
                yield from _names(child["expr"])
                continue
            if key in _OF_ONE_VALUE:
                yield from (name for name in ("ConcatVertical",) if name in str(child))
                continue
            yield key
            if isinstance(child, str) and key in _NAMING:
                yield child
            yield from _names(child)


def _is_same_row_by_row(expression: pl.Expr, schema: Mapping[str, pl.DataType]) -> bool:
    names = expression.meta.root_names()
    if not names:
        return True
    frame = pl.DataFrame({name: _samples(schema[name]) for name in names})
    try:
        whole = _beside(frame, expression)
        parts = [_beside(frame[i : i + 1], expression) for i in range(frame.height)]
    except pl.exceptions.PolarsError:  # the samples do not fit, so the trial says nothing
        return True
    return whole.equals(pl.concat(parts, how="vertical_relaxed"))


def _beside(frame: pl.DataFrame, expression: pl.Expr) -> pl.DataFrame:
    """Return the values of an expression, one for each row even where Polars finds a constant."""
    return frame.with_columns(expression.alias("__value")).select("__value")


def _samples(dtype: pl.DataType) -> pl.Series:
    values: list[Any] = [None, None, None, None]
    if dtype.is_numeric():
        values = [1, 3, 3, 2]
    elif dtype == pl.String:
        values = ["b", "1", "a", "b"]
    elif dtype == pl.Boolean:
        values = [True, False, True, True]
    elif isinstance(dtype, pl.Datetime):
        values = [datetime(2024, 1, day) for day in (1, 3, 3, 2)]
    elif dtype == pl.Date:
        values = [date(2024, 1, day) for day in (1, 3, 3, 2)]
    elif isinstance(dtype, pl.Duration):
        values = [timedelta(hours=n) for n in (1, 3, 3, 2)]
    elif dtype == pl.Time:
        values = [time(hour) for hour in (1, 3, 3, 2)]
    return pl.Series(values, dtype=dtype, strict=False)
