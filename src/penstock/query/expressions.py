"""Expressions: SQL text or Polars expressions, checked against a schema.

Law: an expression that passes here is row-wise (its value for a row depends on that row alone),
or, in an aggregate, is one value per group. So it means the same however rows are batched.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

import polars as pl

from penstock.query.functions import WrongCall
from penstock.query.row_wise import is_row_wise
from penstock.query.scalars.reading import read_text
from penstock.query.wording import in_plain_words

Schema = Mapping[str, pl.DataType]
ExpressionLike = str | pl.Expr
UNKNOWN: pl.DataType = pl.Unknown()


class ExpressionProblem(Exception):  # noqa: N818  # a finding that the front end collects
    """Why an expression cannot be used; the front end collects these."""


def parse(expression: ExpressionLike, schema: Schema) -> pl.Expr:
    """Return a Polars expression from SQL text over a schema, or the expression itself.

    >>> str(parse('"end" - start', {"start": pl.Float64(), "end": pl.Float64()}))
    '[(col("end")) - (col("start"))]'
    """
    if isinstance(expression, pl.Expr):
        return expression
    if not isinstance(expression, str):
        raise ExpressionProblem(
            f"an expression is SQL text or a Polars expression; got {type(expression).__name__}"
        )
    try:
        return read_text(expression, schema)
    except WrongCall as error:
        raise ExpressionProblem(str(error)) from error
    except (pl.exceptions.PolarsError, ValueError) as error:
        said = in_plain_words(first_line(error))
        raise ExpressionProblem(f"cannot read {expression!r}: {said}") from error


def infer(expression: pl.Expr, schema: Schema) -> pl.DataType:
    """Return the type of an expression over a schema.

    Columns of unknown type (an earlier mistake) give an unknown type and no new complaint.

    Raises:
        ExpressionProblem: A column is unknown or the types do not fit.
    """
    if expression.meta.has_multiple_outputs():
        raise ExpressionProblem("an expression must give one column; write one for each column")
    roots = expression.meta.root_names()
    missing = [name for name in roots if name not in schema]
    if missing:
        raise ExpressionProblem("; ".join(unknown_column(name, schema) for name in missing))
    if any(schema[name] == UNKNOWN for name in roots):
        return UNKNOWN
    known = {name: dtype for name, dtype in schema.items() if dtype != UNKNOWN}
    frame = pl.LazyFrame(schema=known or {"__none": pl.Null()})
    try:
        resolved = frame.select(expression.alias("__value")).collect_schema()["__value"]
        frame.select(expression.alias("__value")).collect()
    except pl.exceptions.PolarsError as error:
        raise ExpressionProblem(in_plain_words(first_line(error))) from error
    return resolved


def infer_row_wise(expression: pl.Expr, schema: Schema) -> pl.DataType:
    """Return the type of an expression that must be row-wise.

    >>> infer_row_wise(pl.col("x").sum(), {"x": pl.Int64()})
    Traceback (most recent call last):
    ...
    penstock.query.expressions.ExpressionProblem: not row-wise; use aggregate for sums and the like
    """
    dtype = infer(expression, schema)
    if not is_row_wise(expression, schema):
        raise ExpressionProblem("not row-wise; use aggregate for sums and the like")
    return dtype


def check(
    verb: str,
    expression: ExpressionLike,
    schema: Schema,
    infer: Callable[[pl.Expr, Schema], pl.DataType],
    found: list[str],
) -> tuple[pl.Expr, pl.DataType]:
    """Return an expression and its type; what is wrong with it is added to ``found``."""
    try:
        value = parse(expression, schema)
        return value, infer(value, schema)
    except ExpressionProblem as problem:
        found.append(f"{verb}: {problem}")
        return pl.lit(None), UNKNOWN


def reserved(verb: str, name: str) -> list[str]:
    """Return the complaint about a name that is not the user's to give.

    >>> reserved("map", "__x")
    ["map: column names that begin with '__' are reserved; name='__x'"]
    """
    if not name.startswith("__"):
        return []
    return [f"{verb}: column names that begin with '__' are reserved; name={name!r}"]


def unknown_column(name: str, schema: Schema) -> str:
    """Return the complaint about a column that does not exist.

    >>> unknown_column("duratoin", {"duration": pl.Int64(), "src": pl.String()})
    "unknown column 'duratoin'; did you mean 'duration'?"
    """
    near = find_nearest(name, list(schema))
    hint = f"did you mean {near!r}?" if near else f"columns: {', '.join(schema)}"
    return f"unknown column {name!r}; {hint}"


def find_nearest(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that was probably meant: in another case, or misspelled.

    >>> find_nearest("X", ["k", "x"]), find_nearest("scr", ["dst", "src"]), find_nearest("q", ["k"])
    ('x', 'src', None)
    """
    alike = [other for other in known if other.lower() == name.lower()]
    return next(iter(alike or difflib.get_close_matches(name, known, n=1)), None)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, without an ending full stop."""
    text = str(error).strip().splitlines()
    return text[0].rstrip(".") if text else type(error).__name__
