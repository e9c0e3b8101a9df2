"""GROUP BY: its keys and its window.

Law: there is exactly one window, over the event time; the keys are columns of the stream, and
those that are expressions are computed by a map before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from penstock.query.dialect import to_text
from penstock.query.windows import WINDOW_COLUMNS, Window
from penstock.sql.outputs import is_star, output_name, remove_alias
from penstock.sql.places import Mistakes
from penstock.sql.scalars import check, has_aggregate, refuse_parts, rename_columns
from penstock.sql.scope import Scope
from penstock.sql.times import is_window, read_window

_NO_END = "an aggregate over a stream has no end"
_WINDOW_HINT = (
    "GROUP BY needs a window: TUMBLE(time, size), HOP(time, size, advance), SESSION(time, gap) "
    "or COUNT_WINDOW(rows)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The keys by their text, the columns to compute for them, and the window if it is sound."""

    keys: dict[str, str]
    computed: dict[str, str]
    window: Window | None
    call: exp.Expr


def read_groups(select: exp.Select, scope: Scope, mistakes: Mistakes) -> Groups | None:
    """Return what a SELECT groups by, or note what is wrong with it."""
    group = select.args.get("group")
    if group is None:
        clause = select.args.get("having") or next(
            i for i in select.expressions if has_aggregate(i)
        )
        rows = isinstance(clause, exp.Having) and not has_aggregate(select)
        what = "HAVING is for groups; WHERE is for rows" if rows else _NO_END
        mistakes.add(f"{what}; {_WINDOW_HINT}", clause)
        return None
    _refuse_sets(group, mistakes)
    items = [_find_meant(item, select, scope, mistakes) for item in group.expressions]
    calls = [item for item in items if is_window(item)]
    window = _window(calls, group, scope, mistakes)
    keys, computed = _keys([i for i in items if not is_window(i)], select, scope, mistakes)
    call = calls[0] if calls else exp.Null()
    return Groups(keys=keys, computed=computed, window=window, call=call)


def _refuse_sets(group: exp.Group, mistakes: Mistakes) -> None:
    if group.args.get("all"):
        at = mistakes.text.after(group.parent or group, "GROUP BY")
        mistakes.refuse("GROUP BY ALL", at, "name the columns")
    for item in list(group.expressions):
        if isinstance(item, exp.Rollup | exp.Cube | exp.GroupingSets):
            mistakes.refuse(type(item).__name__.upper(), item)
            group.expressions.remove(item)


def at_position(item: exp.Expr, select: exp.Select, clause: str, mistakes: Mistakes) -> exp.Expr:
    """Return the expression of the SELECT list that a whole number stands for, or the item."""
    if not (isinstance(item, exp.Literal) and item.is_int):
        return item
    position = int(item.name)
    if 1 <= position <= len(select.expressions):
        return remove_alias(select.expressions[position - 1])
    mistakes.add(f"{clause} {position}: no such column in the SELECT list", item)
    return item


def _find_meant(item: exp.Expr, select: exp.Select, scope: Scope, mistakes: Mistakes) -> exp.Expr:
    """Return what an item of GROUP BY stands for, if it is a position or an alias."""
    item = at_position(item, select, "GROUP BY", mistakes)
    if isinstance(item, exp.Column) and not item.table and not scope.has(item.name):
        for output in select.expressions:
            if isinstance(output, exp.Alias) and output.alias == item.name:
                return remove_alias(output)
    return item


def _window(
    calls: list[exp.Expr], group: exp.Group, scope: Scope, mistakes: Mistakes
) -> Window | None:
    if not calls:
        mistakes.add(_WINDOW_HINT, group)
        return None
    for extra in calls[1:]:
        mistakes.add("GROUP BY has two windows; one is allowed", extra)
    return read_window(calls[0], scope, lambda c: scope.resolve(c, mistakes), mistakes)


def _keys(
    items: list[exp.Expr], select: exp.Select, scope: Scope, mistakes: Mistakes
) -> tuple[dict[str, str], dict[str, str]]:
    keys: dict[str, str] = {}
    computed: dict[str, str] = {}
    for item in items:
        if refuse_parts(item, mistakes):
            continue
        if has_aggregate(item):
            mistakes.refuse("an aggregate in GROUP BY", item)
            continue
        resolved = rename_columns(item, lambda c: scope.resolve(c, mistakes))
        text = to_text(resolved)
        if isinstance(resolved, exp.Column):
            name = resolved.name
        else:
            name = _free_name(text, select, scope, computed, mistakes)
            computed[name] = text
            check(item, resolved, scope.stream.schema, mistakes)
        if name in WINDOW_COLUMNS:
            mistakes.add(f"{name!r} names the new window; rename the column in a subquery", item)
        keys[text] = name
    return keys, computed


def _free_name(
    text: str, select: exp.Select, scope: Scope, taken: dict[str, str], mistakes: Mistakes
) -> str:
    """Return the alias that the SELECT list gives to a key, or a name of its own."""
    used = {*scope.stream.schema, *taken, *WINDOW_COLUMNS, "self"}
    quiet = Mistakes(text=mistakes.text)
    resolve: Callable[[exp.Column], str | None] = lambda c: scope.resolve(c, quiet)  # noqa: E731
    for output in select.expressions:
        name = None if is_star(output) else output_name(output)
        if (
            name
            and name not in used
            and to_text(rename_columns(remove_alias(output), resolve)) == text
        ):
            return name
    return next(n for i in range(1, 1000) if (n := f"sql_key_{i}") not in used)
