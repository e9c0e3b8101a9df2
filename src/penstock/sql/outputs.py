"""The SELECT list: what its columns are called, and the operator that gives exactly those.

Law: the result has the columns of the SELECT list, in its order, each once; a list that changes
nothing adds no operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from penstock.query.stream import Stream
from penstock.sql.places import Mistakes
from penstock.sql.scalars import as_argument, call_name, column
from penstock.sql.scope import Scope, unknown_table

Outputs = dict[str, exp.Expr]


def output_name(item: exp.Expr) -> str | None:
    """Return what a column of a SELECT list is called; None if it needs a name.

    >>> from penstock.sql.dialect import parse_statements
    >>> select = parse_statements("SELECT a.x, count(*), max(y) AS top, x + 1 FROM a")[1][0]
    >>> [output_name(item) for item in select.expressions]
    ['x', 'count', 'top', None]
    """
    if isinstance(item, exp.Alias):
        return item.alias
    if isinstance(item, exp.Column):
        return item.name
    if isinstance(item, exp.Dot):
        return str(item.expression.name)
    if isinstance(item, exp.Cast | exp.Filter | exp.Paren):
        return output_name(item.this)
    return call_name(item) or None


def remove_alias(item: exp.Expr) -> exp.Expr:
    """Return the expression of a column of a SELECT list."""
    return item.this if isinstance(item, exp.Alias) else item


def is_star(item: exp.Expr) -> bool:
    """Return whether an item is ``*`` or ``a.*``."""
    return isinstance(item, exp.Star) or (
        isinstance(item, exp.Column) and isinstance(item.this, exp.Star)
    )


def expand_star(item: exp.Expr, scope: Scope, mistakes: Mistakes) -> list[str]:
    """Return the columns of the stream that a star stands for."""
    star = item if isinstance(item, exp.Star) else item.this
    for word in ("except_", "replace", "rename"):
        if star.args.get(word):
            mistakes.refuse(f"* {word.strip('_').upper()}", item, "name the columns")
    tables = scope.tables
    if isinstance(item, exp.Column):
        table = scope.table(item.table)
        if table is None:
            mistakes.add(unknown_table(item.table, [t.alias for t in tables]), item)
        tables = (table,) if table else ()
    return list(dict.fromkeys(name for table in tables for name in table.columns.values()))


def add_output(
    outputs: Outputs,
    name: str | None,
    value: exp.Expr,
    item: exp.Expr,
    mistakes: Mistakes,
) -> None:
    """Put one more column into the outputs, or note that its name is missing or taken."""
    if name is None:
        mistakes.add("an expression needs a name; write AS and a name after it", item)
    elif name in outputs:
        mistakes.add(f"two columns are called {name!r}; give one another name with AS", item)
    elif name == "self" or name.startswith("__"):
        mistakes.add(f"a column cannot be called {name!r}: the name is reserved", item)
    else:
        outputs[name] = value


def project(stream: Stream, outputs: Mapping[str, exp.Expr]) -> Stream:
    """Return the stream with exactly these columns: by no operator, by map, or by select."""
    arguments: dict[str, Any] = {name: as_argument(value) for name, value in outputs.items()}
    same = [name for name, value in outputs.items() if value == column(name)]
    columns = list(stream.schema)
    if same == columns == list(outputs):
        return stream
    if same == columns == list(outputs)[: len(columns)]:
        return stream.map(**{name: arguments[name] for name in list(outputs)[len(columns) :]})
    return stream.select(**arguments)
