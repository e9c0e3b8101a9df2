"""Event time in SQL: which columns of a stream hold it, durations, and the windows over it.

Law: a window is over the event time of its stream. SQL names a column there, so the column must be
the event time; any other is refused, with the names of the right ones.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypedDict

import polars as pl
from sqlglot import exp

from penstock.base.durations import parse_duration
from penstock.query import nodes
from penstock.query.dedup import Dedup
from penstock.query.dialect import to_text
from penstock.query.enrich import Enrich, Lookup
from penstock.query.expressions import ExpressionProblem, parse
from penstock.query.top import Top
from penstock.query.windows import Window, count_window, session, sliding, tumbling
from penstock.sql.places import Mistakes
from penstock.sql.scalars import WINDOWS, call_name, rename_columns
from penstock.sql.scope import Scope, Times

_FORMS = {
    "tumble": "TUMBLE(time, size[, zone][, offset])",
    "hop": "HOP(time, size, advance[, zone][, offset])",
    "session": "SESSION(time, gap)",
    "count_window": "COUNT_WINDOW(rows[, every])",
}
_PASSING = (nodes.Filter, nodes.Spread, nodes.Apply, nodes.Explode, Top, Dedup, Lookup, Enrich)
"""Nodes whose rows keep the event time of their first input, and its columns."""


def time_columns(node: nodes.Node) -> Times:
    """Return the columns of a node that hold its event time, as far as the query tells.

    After `apply` a column that has the name of the event time is taken to be it.

    >>> import penstock as ps
    >>> s = ps.from_rows([{"a": 1, "ts": ps.at("2024-01-01")}], time="ts")
    >>> sorted(time_columns(s.select("a", at="ts")._node))
    ['at']
    """
    if isinstance(node, nodes.Source):
        return frozenset({node.time}) if node.moment is None else frozenset()
    if isinstance(node, nodes.Aggregate) or (isinstance(node, Top) and node.window):
        return frozenset({"window_end"})
    if isinstance(node, nodes.Union):
        return frozenset.intersection(*[time_columns(n) for n in node.inputs])
    if isinstance(node, nodes.Map):
        return _map(node)
    if isinstance(node, _PASSING):
        return time_columns(node.inputs[0]) & frozenset(node.schema)
    return frozenset()


def _map(node: nodes.Map) -> Times:
    before = time_columns(node.inputs[0])
    given = dict(node.columns)
    copies = {
        name
        for name, value in given.items()
        if set(value.meta.root_names()) <= before and value.meta.undo_aliases().meta.is_column()
    }
    return frozenset(copies | (before - set(given) if node.keep else set()))


def duration_us(node: exp.Expr) -> int | None:
    """Return the microseconds of an interval or of a text such as ``'1 minute'``; None if neither.

    Raises:
        ValueError: It is an interval, but not of a fixed length.
    """
    if isinstance(node, exp.Paren):
        return duration_us(node.this)
    if isinstance(node, exp.Cast) and node.to.is_type("interval"):
        return duration_us(node.this)
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        return parse_duration(f"{node.this.name} {node.text('unit')}".strip())
    if isinstance(node, exp.Literal) and node.is_string:
        return parse_duration(node.name)
    return None


def is_window(node: exp.Expr) -> bool:
    """Return whether a node is one of the window functions."""
    return call_name(node) in WINDOWS


def read_window(
    node: exp.Expr,
    scope: Scope,
    resolve: Callable[[exp.Column], str | None],
    mistakes: Mistakes,
) -> Window | None:
    """Return the window of a window function, or note what is wrong with it."""
    name, arguments = call_name(node), list(node.expressions)
    if name == "count_window":
        return _count_window(node, arguments, mistakes)
    needed = 3 if name == "hop" else 2
    arguments, more = arguments[:needed], arguments[needed:]
    if len(arguments) < needed or len(more) > (0 if name == "session" else 2):
        mistakes.add(f"{name.upper()} takes other arguments: {_FORMS[name]}", node)
        return None
    aligned = _alignment(more, node, mistakes)
    sizes = [_duration(argument, mistakes) for argument in arguments[1:]]
    if not is_event_time(arguments[0], scope, resolve, mistakes) or None in sizes:
        return None
    if aligned is None:
        return None
    spans = [timedelta(microseconds=size) for size in sizes if size is not None]
    made: dict[str, Callable[[], Window]] = {
        "tumble": lambda: tumbling(spans[0], **aligned),
        "hop": lambda: sliding(spans[0], every=spans[1], **aligned),
        "session": lambda: session(spans[0]),
    }
    return _check_window(made[name](), node, mistakes)


class Alignment(TypedDict, total=False):
    """Where windows begin."""

    zone: str
    offset: timedelta


def _alignment(arguments: list[exp.Expr], node: exp.Expr, mistakes: Mistakes) -> Alignment | None:
    """Return the zone and the offset of a window: a text that begins with a letter is a zone."""
    found = Alignment()
    before = len(mistakes)
    for argument in arguments:
        text = argument.name if isinstance(argument, exp.Literal) and argument.is_string else None
        if text is not None and text[:1].isalpha():
            again, found["zone"] = "zone" in found, text
        else:
            again, micros = "offset" in found, _duration(argument, mistakes)
            found["offset"] = timedelta(microseconds=micros or 0)
        if again:
            name = call_name(node)
            mistakes.add(f"{name.upper()} takes a zone and an offset once: {_FORMS[name]}", node)
    return found if len(mistakes) == before else None


def _check_window(window: Window, node: exp.Expr, mistakes: Mistakes) -> Window | None:
    for problem in window.problems():
        mistakes.add(f"{call_name(node).upper()}: {problem}; {_FORMS[call_name(node)]}", node)
    return None if window.problems() else window


def _duration(node: exp.Expr, mistakes: Mistakes) -> int | None:
    try:
        found = duration_us(node)
    except ValueError as error:
        mistakes.add(str(error), node)
        return None
    if found is None:
        mistakes.add(f"not a duration: {to_text(node)}; write it like INTERVAL '1 minute'", node)
    return found


def _count_window(node: exp.Expr, arguments: list[exp.Expr], mistakes: Mistakes) -> Window | None:
    plain = [a for a in arguments if isinstance(a, exp.Literal) and a.is_int]
    if len(plain) != len(arguments) or not 1 <= len(arguments) <= 2:
        mistakes.add(f"COUNT_WINDOW takes whole numbers: {_FORMS['count_window']}", node)
        return None
    numbers = [int(a.name) for a in plain]
    return _check_window(count_window(numbers[0], every=numbers[-1]), node, mistakes)


def is_event_time(
    node: exp.Expr,
    scope: Scope,
    resolve: Callable[[exp.Column], str | None],
    mistakes: Mistakes,
) -> bool:
    """Return whether an expression is the event time of a scope; note it as a mistake if not."""
    if call_name(node) == "event_time" and not node.expressions:
        return True
    before = len(mistakes)
    if names_event_time(node, scope, resolve):
        return True
    if len(mistakes) == before:
        right = " or ".join([*scope.time_names(), "EVENT_TIME()"])
        mistakes.add(
            f"a window is over the event time, which is {right}; found {to_text(node)}", node
        )
    return False


def names_event_time(
    node: exp.Expr, scope: Scope, resolve: Callable[[exp.Column], str | None]
) -> bool:
    """Return whether an expression is a column, or the GREATEST of columns, of the event time.

    Where the event time of a source is an expression, that expression is it, too.
    """
    moment = _moment(scope.stream._node)
    if moment is not None and not isinstance(node, exp.Column):
        return _is_same(to_text(rename_columns(node, resolve)), moment, scope)
    parts = node.expressions if call_name(node) == "greatest" else [node]
    names = {resolve(part) for part in parts if isinstance(part, exp.Column)}
    fits = len(parts) == len(scope.times) == len(names)
    return fits and all(names & group for group in scope.times)


def _moment(node: nodes.Node) -> pl.Expr | None:
    """Return the expression that is the event time of a stream, over the columns that it has."""
    while isinstance(node, nodes.Filter | nodes.Spread | Dedup):
        node = node.inputs[0]
    return node.moment if isinstance(node, nodes.Source) else None


def _is_same(text: str, moment: pl.Expr, scope: Scope) -> bool:
    try:
        return parse(text, scope.stream.schema).meta.eq(moment)
    except ExpressionProblem:
        return False
