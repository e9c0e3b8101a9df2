"""SQL expressions over the columns of a stream, as text that Polars reads.

Law: an expression that passes here parses in Polars, has a type over the stream's schema, and means
what the SQL says; anything else is a mistake at its line and column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl
import sqlglot
from sqlglot import exp

from penstock.query.dialect import PenstockSql, to_text
from penstock.query.expressions import ExpressionProblem, infer_row_wise, parse
from penstock.query.functions import AGGREGATE_NAMES, WrongCall, check_call
from penstock.sql.places import CLOCKS, Mistakes

WINDOWS = ("tumble", "hop", "session", "count_window")
_CLOCK_NAMES = frozenset({"now", "random", "rand", "uuid", "gen_random_uuid"})
Infer = Callable[[pl.Expr, Mapping[str, pl.DataType]], pl.DataType]


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether a node is a call of an aggregate, perhaps with FILTER."""
    if isinstance(node, exp.Filter):
        return is_aggregate(node.this)
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATE_NAMES


def has_aggregate(node: exp.Expr) -> bool:
    """Return whether an aggregate is called anywhere in a node."""
    return any(is_aggregate(n) for n in node.walk(prune=_is_closed))


def _is_closed(node: exp.Expr) -> bool:
    return isinstance(node, exp.Window | exp.Query | exp.Exists)


def call_name(node: exp.Expr) -> str:
    """Return the name of the function that a node calls, in lower case; empty if none."""
    return node.name.lower() if isinstance(node, exp.Anonymous) else ""


def is_of_window(name: str) -> bool:
    """Return whether a function is about windows: TUMBLE, TUMBLE_END, EVENT_TIME and so on."""
    base, _, end = name.rpartition("_")
    return name in (*WINDOWS, "event_time") or (base in WINDOWS and end in ("start", "end"))


def refuse_parts(node: exp.Expr, mistakes: Mistakes) -> bool:
    """Note the parts of an expression that can't be translated; return whether there are any."""
    before = len(mistakes)
    for part in node.walk(prune=_is_closed):
        if isinstance(part, exp.Query | exp.Exists):
            mistakes.refuse("a subquery in an expression", part, "write a JOIN")
        elif isinstance(part, exp.Window):
            mistakes.refuse("OVER", mistakes.text.after(part, "OVER"), "use GROUP BY with a window")
        elif isinstance(part, exp.Distinct) and (len(part.expressions) > 1 or part.find(exp.Star)):
            hint = "write one column, such as concat_ws('|', a, b)"
            mistakes.refuse("DISTINCT of several columns", part, hint)
        elif isinstance(part, exp.Star) and call_name(part.parent or part) not in ("", "count"):
            mistakes.refuse(f"{call_name(part.parent or part)}(*)", part, "name a column")
        elif isinstance(part, exp.Parameter | exp.Placeholder):
            mistakes.refuse("a parameter", part, "put the value into the text")
        elif type(part) in CLOCKS or call_name(part) in _CLOCK_NAMES:
            name = CLOCKS.get(type(part), call_name(part).upper())
            mistakes.refuse(
                name, part, "a continuous query gives the same rows when it is replayed"
            )
        elif (name := call_name(part)) and not is_of_window(name):
            _note_wrong_call(name, part, mistakes)
    return len(mistakes) > before


def _note_wrong_call(name: str, call: exp.Expr, mistakes: Mistakes) -> None:
    try:
        check_call(name, len(call.expressions))
    except WrongCall as problem:
        mistakes.add(str(problem), call)


def rename_columns(node: exp.Expr, name: Callable[[exp.Column], str | None]) -> exp.Expr:
    """Return an expression with its columns renamed; columns named None stay."""

    def change(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Column) and not isinstance(part.this, exp.Star):
            found = name(part)
            return part if found is None else column(found)
        return part

    return node.copy().transform(change, copy=False)


def column(name: str) -> exp.Column:
    """Return the column of a name, in quotes if Polars needs them."""
    return exp.column(exp.to_identifier(name, quoted=_needs_quotes(name)))


def _needs_quotes(name: str) -> bool:
    try:
        read = sqlglot.parse_one(name, read=PenstockSql)
        plain = pl.sql_expr(name).meta.is_column()
    except (sqlglot.errors.SqlglotError, pl.exceptions.PolarsError, ValueError):
        return True
    return not (plain and isinstance(read, exp.Column) and to_text(read) == name)


def check(
    node: exp.Expr,
    resolved: exp.Expr,
    schema: Mapping[str, pl.DataType],
    mistakes: Mistakes,
    infer: Infer = infer_row_wise,
) -> pl.DataType | None:
    """Return the type of a resolved expression, or note what is wrong with it at its place."""
    try:
        return infer(parse(to_text(resolved), schema), schema)
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
    if dtype is not None and dtype != pl.Boolean():
        mistakes.add(f"{clause} must be true or false; it is {dtype}", node)
    return dtype == pl.Boolean()
