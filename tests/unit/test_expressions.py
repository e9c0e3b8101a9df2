"""Expressions: checked against the schema, and row-wise or refused."""

from __future__ import annotations

import polars as pl
import pytest

from penstock.operators.fallible import may_fail
from penstock.query.expressions import ExpressionProblem, infer, infer_row_wise, parse
from penstock.query.nodes import Filter, Map, Node
from penstock.query.row_wise import is_row_wise

SCHEMA: dict[str, pl.DataType] = {
    "duration": pl.Int64(),
    "src": pl.String(),
    "ok": pl.Boolean(),
    "price": pl.Decimal(10, 2),
}


def test_an_unknown_column_names_the_nearest_one() -> None:
    with pytest.raises(
        ExpressionProblem, match="unknown column 'duratoin'; did you mean 'duration'"
    ):
        infer(parse("duratoin + 1"), SCHEMA)
    with pytest.raises(ExpressionProblem, match="unknown column 'zzz'; columns: duration, src, ok"):
        infer(parse("zzz"), SCHEMA)


@pytest.mark.parametrize(
    "expression",
    [
        pl.col("duration").sum(),
        pl.col("duration") - pl.col("duration").mean(),
        pl.col("duration").shift(1),
        pl.col("duration").cum_sum(),
        pl.col("duration").rank(),
        pl.col("src").is_duplicated(),
        pl.col("duration").sum().over("src"),
        pl.col("duration").sort(),
        pl.col("duration").fill_null(strategy="forward"),
        pl.len(),
    ],
    ids=str,
)
def test_what_looks_at_other_rows_is_not_row_wise(expression: pl.Expr) -> None:
    with pytest.raises(ExpressionProblem, match="not row-wise"):
        infer_row_wise(expression, SCHEMA)


@pytest.mark.parametrize(
    "expression",
    ["duration + 1", "upper(src)", "case when ok then duration else 0 end", "coalesce(src, '')",
     "duration is null", pl.col("src").str.len_chars(), pl.lit(3), pl.col("duration").clip(0, 5)],
    ids=str,
)  # fmt: skip
def test_what_looks_at_its_own_row_is_row_wise(expression: str | pl.Expr) -> None:
    assert is_row_wise(parse(expression), SCHEMA)


def test_an_earlier_mistake_makes_no_new_complaint() -> None:
    assert infer(parse("broken + 1"), {"broken": pl.Unknown()}) == pl.Unknown()


BASE = Node(schema=SCHEMA)


@pytest.mark.parametrize("text", ["cast(src as bigint)", "duration / 0.5", "price * price"])
def test_what_can_fail_is_computed_with_care(text: str) -> None:
    value = parse(text).alias("v")
    node = Map(inputs=(BASE,), schema={}, columns=(("v", value),), keep=True, texts=(text,))
    assert may_fail(node)


@pytest.mark.parametrize("text", ["duration > 1.5", "ok and src = 'a'", "duration + 1 < 7"])
def test_what_cannot_fail_is_left_to_the_optimiser(text: str) -> None:
    plain = Node(schema={name: dtype for name, dtype in SCHEMA.items() if name != "price"})
    assert not may_fail(Filter(inputs=(plain,), schema={}, predicate=parse(text), text=text))
