"""A whole SQL query: FROM, WHERE, the SELECT list, UNION ALL, subqueries and WITH.

Law: a part that is wrong gives no relation, and what depends on it is not complained about again;
all other parts are still checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
from sqlglot import exp

from penstock.query.dialect import to_text
from penstock.query.stream import Stream
from penstock.sql.aggregated import is_aggregated, select_groups
from penstock.sql.fields import split_fields
from penstock.sql.joins import join_scopes
from penstock.sql.lookups import join_still
from penstock.sql.outputs import (
    Outputs,
    add_output,
    expand_star,
    is_star,
    output_name,
    project,
    remove_alias,
)
from penstock.sql.places import Mistakes
from penstock.sql.refusals import refuse_clauses, refuse_from
from penstock.sql.scalars import (
    as_argument,
    check,
    check_predicate,
    column,
    has_aggregate,
    refuse_parts,
    rename_columns,
)
from penstock.sql.scope import Relation, Scope, Still, single, unknown_table
from penstock.sql.times import names_event_time
from penstock.sql.where import is_inner, take_from_where, use_as_on
from penstock.sql.window_tables import group_by_window

Tables = Mapping[str, Relation | pl.DataFrame | None]
"""What FROM can name: streams and tables that stand still; one that failed is None."""


def translate(
    node: exp.Expr, tables: Tables, mistakes: Mistakes, *, outermost: bool = True
) -> Relation | None:
    """Return the relation of a query, or note what is wrong with it."""
    tables = _with(node, tables, mistakes)
    if isinstance(node, exp.Subquery) and not node.alias:
        return translate(node.this, tables, mistakes, outermost=outermost)
    if isinstance(node, exp.Union):
        return _union(node, tables, mistakes)
    if isinstance(node, exp.Select):
        return _select(node, tables, mistakes, outermost)
    word = type(node).__name__.upper()
    joined = isinstance(node, exp.SetOperation)
    at = mistakes.text.before(node.expression, word) if joined else mistakes.text.start(node)
    mistakes.refuse(word, at, "write SELECT")
    return None


def _with(node: exp.Expr, tables: Tables, mistakes: Mistakes) -> Tables:
    with_ = node.args.get("with_")
    if with_ is None:
        return tables
    if with_.args.get("recursive"):
        mistakes.refuse("WITH RECURSIVE", with_)
    found = dict(tables)
    for part in with_.expressions:
        if part.args["alias"].columns:
            mistakes.refuse("a list of columns in WITH", part, "name them with AS in the SELECT")
        found[part.alias] = translate(part.this, found, mistakes, outermost=False)
    return found


def _select(
    select: exp.Select, tables: Tables, mistakes: Mistakes, outermost: bool
) -> Relation | None:
    if not group_by_window(select, mistakes):
        return None
    grouped = is_aggregated(select)
    refuse_clauses(select, mistakes, top=outermost and grouped)
    scope = _from(select, tables, mistakes)
    if scope is None:
        return None
    for part in _after_from(select):
        split_fields(part, scope.tables)
    scope = _where(select, scope, mistakes)
    return select_groups(select, scope, mistakes) if grouped else _plain(select, scope, mistakes)


def _after_from(select: exp.Select) -> list[exp.Expr]:
    """Return the parts of a SELECT that name columns of FROM."""
    clauses = [select.args.get(name) for name in ("where", "group", "having", "order")]
    return [*select.expressions, *[clause for clause in clauses if clause is not None]]


def _from(select: exp.Select, tables: Tables, mistakes: Mistakes) -> Scope | None:
    clause = select.args.get("from_")
    if clause is None:
        mistakes.add("SELECT needs a FROM", select)
        return None
    scope = _table(clause.this, tables, mistakes)
    if isinstance(scope, Still):
        alias = scope.tables[0].alias
        mistakes.add(f"{alias!r} is a table, not a stream; FROM a stream JOIN {alias}", clause.this)
        scope = None
    for join in select.args.get("joins") or ():
        right = _table(join.this, tables, mistakes)
        if scope is None or right is None:
            scope = None
        elif scope.table(right.tables[0].alias):
            alias = right.tables[0].alias
            mistakes.add(f"two tables are called {alias!r}; give one an alias", join.this)
            scope = None
        else:
            scope = _join(select, join, scope, right, mistakes)
    return scope


def _join(
    select: exp.Select, join: exp.Join, left: Scope, right: Scope | Still, mistakes: Mistakes
) -> Scope | None:
    before = len(mistakes)
    if is_inner(join) or isinstance(right, Still):
        use_as_on(join, left, right, mistakes)
    take_from_where(select, join, left, right, mistakes)
    if join.args.get("on") is not None:
        split_fields(join.args["on"], (*left.tables, *right.tables))
    if len(mistakes) > before:
        return None
    if isinstance(right, Still):
        return join_still(left, right, join, mistakes)
    return join_scopes(left, right, join, mistakes)


def _table(node: exp.Expr, tables: Tables, mistakes: Mistakes) -> Scope | Still | None:
    if refuse_from(node, mistakes):
        return None
    if isinstance(node, exp.Subquery):
        relation = translate(node.this, tables, mistakes, outermost=False)
        return single(node.alias, relation) if relation else None
    if node.name not in tables:
        mistakes.add(unknown_table(node.name, list(tables)), node)
        return None
    found = tables[node.name]
    return None if found is None else single(node.alias or node.name, found)


def _where(select: exp.Select, scope: Scope, mistakes: Mistakes) -> Scope:
    where = select.args.get("where")
    if where is None:
        return scope
    before = len(mistakes)
    if has_aggregate(where):
        mistakes.add("an aggregate is not allowed in WHERE; use HAVING", where)
    if not refuse_parts(where, mistakes):
        resolved = rename_columns(where.this, lambda c: scope.resolve(c, mistakes))
        if len(mistakes) == before:
            check_predicate("WHERE", where.this, resolved, scope.stream.schema, mistakes)
    if len(mistakes) > before:
        return scope
    stream = scope.stream.filter(to_text(resolved))
    return Scope(stream=stream, tables=scope.tables, times=scope.times)


def _plain(select: exp.Select, scope: Scope, mistakes: Mistakes) -> Relation | None:
    before = len(mistakes)
    if not select.expressions:
        mistakes.add("SELECT needs columns; write SELECT * for all", select)
    outputs: Outputs = {}
    for item in select.expressions:
        if is_star(item):
            for name in expand_star(item, scope, mistakes):
                add_output(outputs, name, column(name), item, mistakes)
        elif not refuse_parts(item, mistakes):
            known = len(mistakes)
            value = rename_columns(remove_alias(item), lambda c: scope.resolve(c, mistakes))
            if len(mistakes) == known:
                check(item, value, scope.stream.schema, mistakes)
            add_output(outputs, output_name(item), value, item, mistakes)
    if len(mistakes) > before:
        return None
    times = {
        name for name, value in outputs.items() if names_event_time(value, scope, lambda c: c.name)
    }
    return _check_stream(project(scope.stream, outputs), frozenset(times), select, mistakes)


def _union(node: exp.Union, tables: Tables, mistakes: Mistakes) -> Relation | None:
    head, *rest = _parts(node, mistakes)
    first = translate(head, tables, mistakes, outermost=False)
    names = list(first.stream.schema) if first else []
    parts = [translate(_name_outputs(p, names), tables, mistakes, outermost=False) for p in rest]
    others = [p for p in parts if p is not None]
    if first is None or len(others) < len(parts):
        return None
    width = len(names)
    for other in others:
        if len(other.stream.schema) != width:
            found = len(other.stream.schema)
            mistakes.add(f"UNION ALL of {width} and {found} columns", node.expression)
            return None
    named = [_like(first, other) for other in others]
    times = frozenset.intersection(first.times, *[other.times for other in named])
    stream = first.stream.union(*[other.stream for other in named])
    return _check_stream(stream, times, node.expression, mistakes)


def _parts(node: exp.Expr, mistakes: Mistakes) -> list[exp.Expr]:
    """Return the parts of a chain of UNION ALL, from left to right."""
    if not isinstance(node, exp.Union) or (node.args.get("with_") and node.parent):
        return [node]
    if node.args.get("distinct"):
        at = mistakes.text.before(node.expression, "UNION")
        mistakes.refuse("UNION", at, "write UNION ALL, and dedup in Python")
    refuse_clauses(node, mistakes, top=False)
    return [*_parts(node.this, mistakes), *_parts(node.expression, mistakes)]


def _name_outputs(part: exp.Expr, names: Sequence[str]) -> exp.Expr:
    """Return a later part of a union whose expressions have names; the first one's count anyway."""
    items = part.expressions if isinstance(part, exp.Select) else []
    if len(items) != len(names) or any(is_star(item) for item in items):
        return part
    for item, name in zip(list(items), names, strict=True):
        if output_name(item) is None:
            item.replace(exp.alias_(item.copy(), name, quoted=True))
    return part


def _like(first: Relation, other: Relation) -> Relation:
    """Return a relation with the column names of another, by position."""
    names = dict(zip(other.stream.schema, first.stream.schema, strict=True))
    outputs = {new: column(old) for old, new in names.items()}
    stream = other.stream
    if list(outputs) != list(stream.schema):
        stream = stream.select(**{new: as_argument(value) for new, value in outputs.items()})
    return Relation(stream=stream, times=frozenset(names[t] for t in other.times))


def _check_stream(
    stream: Stream, times: frozenset[str], node: exp.Expr, mistakes: Mistakes
) -> Relation | None:
    for problem in stream._problems:
        mistakes.add(problem, node)
    return None if stream._problems else Relation(stream=stream, times=times)
