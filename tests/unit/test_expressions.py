"""Expressions: checked against the schema, and row-wise or refused."""

from __future__ import annotations

import polars as pl
import pytest

from penstock.operators.rowwise.fallible import may_fail
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
        infer(parse("duratoin + 1", SCHEMA), SCHEMA)
    with pytest.raises(ExpressionProblem, match="unknown column 'zzz'; columns: duration, src, ok"):
        infer(parse("zzz", SCHEMA), SCHEMA)


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
        pl.col("src").reverse(),
        pl.col("src").str.join("-"),
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
    assert is_row_wise(parse(expression, SCHEMA), SCHEMA)


def test_an_earlier_mistake_makes_no_new_complaint() -> None:
    assert infer(parse("broken + 1", {}), {"broken": pl.Unknown()}) == pl.Unknown()


BASE = Node(schema=SCHEMA)


@pytest.mark.parametrize("text", ["cast(src as bigint)", "duration / 0.5", "price * price"])
def test_what_can_fail_is_computed_with_care(text: str) -> None:
    value = parse(text, SCHEMA).alias("v")
    node = Map(inputs=(BASE,), schema={}, columns=(("v", value),), keep=True, texts=(text,))
    assert may_fail(node)


@pytest.mark.parametrize("text", ["duration > 1.5", "ok and src = 'a'", "duration / 2 < 7"])
def test_what_cannot_fail_is_left_to_the_optimiser(text: str) -> None:
    plain = Node(schema={name: dtype for name, dtype in SCHEMA.items() if name != "price"})
    value = parse(text, plain.schema)
    assert not may_fail(Filter(inputs=(plain,), schema={}, predicate=value, text=text))


EXTREMES = pl.DataFrame(
    {
        "i": [-(2**63), 2**63 - 1, 0, None],
        "f": [float("nan"), float("inf"), -0.0, None],
        "b": [True, False, None, None],
        "s": ["", "ü", "9" * 99, None],
        "t": pl.Series([-(2**63), 2**63 - 1, 0, None], dtype=pl.Int64).cast(pl.Datetime("us")),
        "d": pl.Series([-(2**63), 2**63 - 1, 0, None], dtype=pl.Int64).cast(pl.Duration("us")),
    }
)


@pytest.mark.parametrize(
    "expression",
    ["i + i", "i - 1", "i * i", "i * f", "t - t", "d + d", "d > interval '1 minute'", "i > 1.5",
     "f = 0.0", "s = 'a' and b", "coalesce(i, 0)", "abs(i)", "floor(f)", "greatest(i, 3)",
     "i between 1 and 2", "case when b then i else 0 end", "i is null or not b", "upper(s)",
     "s like 'a%'", "length(s)", pl.col("i") / pl.col("i"), pl.col("d") / 2,
     pl.col("t") + pl.col("d"), "i / i", "i * 1.5", "4.0 / i", "-i", "f / f",
     pl.col("i").is_in([1, 2]), pl.col("s").cast(pl.Int64, strict=False), -pl.col("i"),
     pl.col("f").is_nan(), pl.col("t").dt.hour(), pl.col("t").dt.year(), pl.col("t").dt.weekday(),
     pl.col("d").dt.total_seconds(), pl.col("f").ceil(), pl.col("i").eq_missing(2)],
    ids=str,
)  # fmt: skip
def test_what_is_called_safe_fails_on_no_value(expression: str | pl.Expr) -> None:
    value = parse(expression, dict(EXTREMES.schema)).alias("v")
    base = Node(schema=dict(EXTREMES.schema))
    node = Map(inputs=(base,), schema={}, columns=(("v", value),), keep=True, texts=("",))
    if not may_fail(node):
        assert EXTREMES.select(value).height == EXTREMES.height


def test_words_of_sql_are_names_of_columns_too() -> None:
    schema: dict[str, pl.DataType] = {"x": pl.Int64(), "limit": pl.Int64(), "order": pl.Int64()}
    text = "x > limit and order + 1 < abs(limit)"
    rows = pl.DataFrame({"x": [3, 1], "limit": [2, 2], "order": [0, 0]}, schema=schema)
    assert rows.select(parse(text, schema)).to_series().to_list() == [True, False]
