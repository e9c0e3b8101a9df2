"""SQL expressions over the columns of a stream, as text that Polars reads.

Law: an expression that passes here parses in Polars, has a type over the stream's schema, and means
what the SQL says; anything else is a mistake at its line and column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl
from sqlglot import exp

from penstock.query.expressions import ExpressionProblem, infer_row_wise, parse
from penstock.sql.dialect import to_text
from penstock.sql.places import CLOCKS, Mistakes

AGGREGATES = frozenset(
    {
        "approx_count_distinct",
        "approx_distinct",
        "approx_percentile",
        "approx_quantile",
        "array_agg",
        "avg",
        "corr",
        "count",
        "covar",
        "covar_pop",
        "covar_samp",
        "first",
        "first_value",
        "last",
        "last_value",
        "max",
        "median",
        "min",
        "quantile_cont",
        "quantile_disc",
        "stddev",
        "stddev_samp",
        "stdev",
        "stdev_samp",
        "string_agg",
        "sum",
        "var",
        "var_samp",
        "variance",
    }
)
_CLOCK_NAMES = frozenset({"now", "random", "rand", "uuid", "gen_random_uuid"})
Infer = Callable[[pl.Expr, Mapping[str, pl.DataType]], pl.DataType]


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether a node is a call of an aggregate, perhaps with FILTER."""
    if isinstance(node, exp.Filter):
        return is_aggregate(node.this)
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES


def has_aggregate(node: exp.Expr) -> bool:
    """Return whether an aggregate is called anywhere in a node."""
    return any(is_aggregate(n) for n in node.walk(prune=_is_closed))


def _is_closed(node: exp.Expr) -> bool:
    return isinstance(node, exp.Window | exp.Query | exp.Exists)


def call_name(node: exp.Expr) -> str:
    """Return the name of the function that a node calls, in lower case; empty if none."""
    return node.name.lower() if isinstance(node, exp.Anonymous) else ""


def refuse_parts(node: exp.Expr, mistakes: Mistakes) -> bool:
    """Note the parts of an expression that can't be translated; return whether there are any."""
    before = len(mistakes)
    for part in node.walk(prune=_is_closed):
        if isinstance(part, exp.Query | exp.Exists):
            mistakes.refuse("a subquery in an expression", part, "write a JOIN")
        elif isinstance(part, exp.Window):
            mistakes.refuse("OVER", mistakes.text.after(part, "OVER"), "use GROUP BY with a window")
        elif isinstance(part, exp.Parameter | exp.Placeholder):
            mistakes.refuse("a parameter", part, "put the value into the text")
        elif type(part) in CLOCKS or call_name(part) in _CLOCK_NAMES:
            name = CLOCKS.get(type(part), call_name(part).upper())
            mistakes.refuse(
                name, part, "a continuous query gives the same rows when it is replayed"
            )
    return len(mistakes) > before


def renamed(node: exp.Expr, name: Callable[[exp.Column], str | None]) -> exp.Expr:
    """Return an expression with its columns renamed; columns named None stay."""

    def change(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
            found = name(part)
            return part if found is None else column(found)
        return part

    return _plain(node).transform(change, copy=False)


def column(name: str) -> exp.Column:
    """Return the column of a name, in quotes if Polars needs them."""
    return exp.column(exp.to_identifier(name, quoted=_needs_quotes(name)))


def _needs_quotes(name: str) -> bool:
    try:
        read = pl.sql_expr(name)
    except (pl.exceptions.PolarsError, ValueError):
        return True
    return not (read.meta.is_column() and read.meta.output_name() == name)


def _plain(node: exp.Expr) -> exp.Expr:
    """Return an expression without what Polars reads in another way than the standard.

    ``x IS TRUE`` is null for null there, and ``x IS DISTINCT FROM y OR z`` ends after ``z``.
    """
    holder = exp.Paren(this=node.copy())
    odd = list(holder.find_all(exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ))
    for part in reversed(odd):  # the inner ones come last
        if not isinstance(part, exp.Is):
            part.replace(exp.Paren(this=part.copy()))
        elif isinstance(part.expression, exp.Boolean):
            part.replace(_is_truth(part, bool(part.expression.this)))
    found: exp.Expr = holder.this
    return found


def _is_truth(part: exp.Is, wanted: bool) -> exp.Expr:
    other = exp.Boolean(this=not wanted)
    filled = exp.Anonymous(this="coalesce", expressions=[part.this.copy(), other])
    return filled if wanted else exp.Paren(this=exp.Not(this=filled))


def check(
    node: exp.Expr,
    resolved: exp.Expr,
    schema: Mapping[str, pl.DataType],
    mistakes: Mistakes,
    infer: Infer = infer_row_wise,
) -> pl.DataType | None:
    """Return the type of a resolved expression, or note what is wrong with it at its place."""
    try:
        return infer(parse(to_text(resolved)), schema)
    except ExpressionProblem as problem:
        mistakes.add(str(problem), node)
        return None


def as_argument(resolved: exp.Expr) -> str | pl.Expr:
    """Return a resolved expression as an argument for a stream: a bare column, or text."""
    if isinstance(resolved, exp.Column):
        return pl.col(resolved.name)
    return to_text(resolved)


def check_predicate(
    clause: str,
    node: exp.Expr,
    resolved: exp.Expr,
    schema: Mapping[str, pl.DataType],
    mistakes: Mistakes,
) -> bool:
    """Return whether a resolved expression is a predicate, or note what is wrong with it."""
    dtype = check(node, resolved, schema, mistakes)
    if dtype is not None and dtype not in (pl.Boolean(), pl.Null()):
        mistakes.add(f"{clause} must be true or false; it is {dtype}", node)
    return dtype == pl.Boolean()
