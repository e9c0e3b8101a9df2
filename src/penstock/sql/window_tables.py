"""Flink's window table functions: ``FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), size))``.

Law: a SELECT over one that groups by ``window_start`` and ``window_end`` is the SELECT over the
table that groups by the window. Nothing else can be done with one.
"""

from __future__ import annotations

from sqlglot import exp

from penstock.query.dialect import to_text
from penstock.query.windows import WINDOW_COLUMNS
from penstock.sql.places import Mistakes
from penstock.sql.scalars import call_name

_SIZES = {"tumble": ("size",), "hop": ("size", "slide"), "session": ("gap",)}
"""What GROUP BY has after the time, in its order."""
_ORDER = {
    "tumble": ("timecol", "size"),
    "hop": ("timecol", "slide", "size"),
    "session": ("timecol", "gap"),
}
"""The arguments after the table, in Flink's order."""


def group_by_window(select: exp.Select, mistakes: Mistakes) -> bool:
    """Put the window of a window table function into GROUP BY; return whether that is possible."""
    tables = _tables(select)
    windowed = [table for table in tables if table.args.get("window")]
    if not windowed:
        return True
    table = windowed[0]
    call = table.args["window"]
    window = _window(call)
    if window is None:
        _refuse(call, mistakes)
        return False
    if len(tables) > 1:
        mistakes.refuse("a JOIN of a window table function", call, "join the tables by a time band")
        return False
    table.set("window", None)
    _drop_owner(select, table.alias_or_name)
    return _regroup(select, call, window, mistakes)


def _refuse(call: exp.Expr, mistakes: Mistakes) -> None:
    word, sizes = call.name.upper(), _SIZES.get(call_name(call))
    if sizes is None:
        mistakes.refuse(word, call, "use TUMBLE, HOP or SESSION")
        return
    given = ", ".join(_ORDER[call_name(call)][1:])
    mistakes.add(
        f"{word} in FROM takes other arguments: {word}(TABLE t, DESCRIPTOR(time), {given}); "
        f"or write GROUP BY {word}(time, {', '.join(sizes)})",
        call,
    )


def _tables(select: exp.Select) -> list[exp.Expr]:
    clause = select.args.get("from_")
    joins = select.args.get("joins") or ()
    return [part.this for part in (clause, *joins) if part is not None]


def _window(call: exp.Expr) -> exp.Expr | None:
    """Return a window as GROUP BY has it; None if it is another."""
    name, given = call_name(call), _arguments(call)
    time = given.get("timecol")
    inside = time.expressions if time is not None and call_name(time) == "descriptor" else []
    sizes = _SIZES.get(name)
    if sizes is None or len(inside) != 1 or set(given) != {"timecol", *sizes}:
        return None
    arguments = [inside[0], *[given[size] for size in sizes]]
    made = exp.Anonymous(this=call.name, expressions=[a.copy() for a in arguments])
    made.meta.update(call.meta)
    return made


def _arguments(call: exp.Expr) -> dict[str, exp.Expr]:
    """Return arguments by their names."""
    order = _ORDER.get(call_name(call), ())
    found: dict[str, exp.Expr] = {}
    for place, argument in enumerate(call.expressions):
        if isinstance(argument, exp.Kwarg):
            found[argument.this.name.lower()] = argument.expression
        else:
            found[order[place] if place < len(order) else f"argument {place}"] = argument
    return found


def _drop_owner(select: exp.Select, alias: str) -> None:
    """Let ``w.window_start`` be ``window_start``."""
    for column in list(select.find_all(exp.Column)):
        if column.name in WINDOW_COLUMNS and column.table == alias:
            column.set("table", None)


def _regroup(select: exp.Select, call: exp.Expr, window: exp.Expr, mistakes: Mistakes) -> bool:
    group = select.args.get("group")
    items = list(group.expressions) if group is not None else []
    bounds = [i for i in items if isinstance(i, exp.Column) and i.name in WINDOW_COLUMNS]
    if group is None or {bound.name for bound in bounds} != set(WINDOW_COLUMNS):
        mistakes.add(
            f"{call.name.upper()} in FROM needs GROUP BY window_start, window_end; or write "
            f"GROUP BY {to_text(window)}",
            call,
        )
        return False
    keys = [item for item in items if item not in bounds]
    if call_name(call) == "session" and not _has_same_keys(keys, call.args.get("partition") or []):
        mistakes.add(
            "SESSION in FROM needs PARTITION BY with the columns of GROUP BY; or write "
            f"GROUP BY {to_text(window)}",
            call,
        )
        return False
    group.set("expressions", [*keys, window])
    return True


def _has_same_keys(keys: list[exp.Expr], partition: list[exp.Expr]) -> bool:
    return {key.name for key in keys} == {part.name for part in partition} and all(
        isinstance(part, exp.Column) for part in (*keys, *partition)
    )
