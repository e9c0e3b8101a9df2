"""Aggregate expressions: taken apart into calls that can be merged, or kept as they are."""

from __future__ import annotations

import polars as pl
import pytest

from penstock.query.aggregates import Aggregation, infer_aggregate, take_apart, value_types
from penstock.query.expressions import ExpressionProblem, parse

SCHEMA: dict[str, pl.DataType] = {
    "x": pl.Int32(),
    "y": pl.Float64(),
    "s": pl.String(),
    "d": pl.Duration("us"),
    "l": pl.List(pl.Int64()),
}


def apart(*texts: str | pl.Expr) -> Aggregation:
    return take_apart({f"v{i}": parse(text, SCHEMA) for i, text in enumerate(texts)}, SCHEMA)


def calls(*texts: str | pl.Expr) -> list[str]:
    return [call.function for call in apart(*texts).calls or ()]


@pytest.mark.parametrize(
    ("text", "functions"),
    [
        ("count(*)", ["len"]),
        ("count(x)", ["count"]),
        ("sum(x)", ["count", "sum"]),
        ("avg(x) + max(y)", ["mean", "max"]),
        ("count(distinct s)", ["distinct"]),
        ("stddev(y)", ["std"]),
        ("approx_count_distinct(s)", ["approx_distinct"]),
        ("approx_quantile(y, 0.5)", ["approx_quantile"]),
        ("first(s)", ["first"]),
        ("sum(x) filter (where y > 1)", ["count", "sum"]),
        (pl.col("x").len(), ["size"]),
        ((pl.col("x") * 2).max() - pl.len(), ["max", "len"]),
    ],
    ids=str,
)
def test_calls(text: str | pl.Expr, functions: list[str]) -> None:
    assert calls(text) == functions


@pytest.mark.parametrize(
    "text",
    ["median(x)", pl.col("x").implode(), pl.col("x").sort().first(), pl.col("l").max(),
     pl.col("x").filter(pl.col("y") > 1).first(), pl.col("s").str.join("-"),
     (pl.col("x") - pl.col("x").mean()).pow(2).sum(), pl.col("x").quantile(0.5)],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_merged_keeps_its_rows(text: str | pl.Expr) -> None:
    kept = apart("count(*)", text)
    assert not kept.mergeable
    assert kept.needs_order


def test_equal_calls_are_made_once() -> None:
    assert calls("sum(x) / count(x)", "sum(x)", "avg(x)") == ["count", "sum", "mean"]
    assert calls("sum(x)", "sum(x + 1)") == ["count", "sum", "count", "sum"]


def test_types() -> None:
    made = apart("sum(x)", "avg(x)", "count(*)", "avg(d)", "max(s)", "sum(y) / count(*)")
    assert list(value_types(made, SCHEMA).values()) == [
        pl.Int64(), pl.Float64(), pl.Int64(), pl.Duration("us"), pl.String(), pl.Float64(),
    ]  # fmt: skip


def test_a_plain_column_is_no_aggregate() -> None:
    with pytest.raises(ExpressionProblem, match="not an aggregate"):
        infer_aggregate(pl.col("x") + 1, SCHEMA)
