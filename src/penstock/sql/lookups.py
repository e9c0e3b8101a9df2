"""JOIN with a table that stands still: the columns of at most one of its rows, by key.

Law: the result has the pairs for which ON is true, and for LEFT JOIN the rows without one, as the
stream's own `enrich` gives them. The keys of the table are unique, or the query is refused.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import polars as pl
from sqlglot import exp

from penstock.query.dialect import to_text
from penstock.query.expressions import parse
from penstock.query.stream import Stream
from penstock.sql.conditions import Conditions, Key, take_apart_on
from penstock.sql.places import Mistakes
from penstock.sql.scalars import check_predicate, rename_columns
from penstock.sql.scope import Scope, Still

_HOW = {"": "inner", "LEFT": "left"}


def join_still(left: Scope, right: Still, join: exp.Join, mistakes: Mistakes) -> Scope | None:
    """Return the scope of a join of what was there with a table that stands still."""
    alias = right.tables[0].alias
    kind = " ".join(part for part in (join.method, join.side, join.kind) if part)
    if join.method or join.side not in _HOW or join.kind not in ("", "INNER", "OUTER", "CROSS"):
        mistakes.refuse(f"{kind} JOIN with the table {alias!r}", join, "write JOIN or LEFT JOIN")
        return None
    conditions = take_apart_on(join.args.get("on"), left, right, mistakes)
    if conditions is None:
        return None
    if not conditions.keys:
        example = f"{left.tables[0].alias}.id = {alias}.id"
        mistakes.add(f"a JOIN with the table {alias!r} needs an equality, such as {example}", join)
        return None
    return _Lookup(left, right, join, conditions, mistakes).scope()


class _Lookup:
    """One join on its way to a scope."""

    def __init__(
        self, left: Scope, right: Still, join: exp.Join, conditions: Conditions, mistakes: Mistakes
    ) -> None:
        self.left, self.right, self.node = left, right, join
        self.conditions, self.mistakes = conditions, mistakes
        self.how = _HOW[join.side]

    def scope(self) -> Scope | None:
        before = len(self.mistakes)
        frame, rest = self._filter()
        stream, keys = self._give_keys()
        names = self._names(stream, keys)
        stream = stream.enrich(self._table(frame, stream, keys, names), on=keys, how=self.how)
        for problem in stream._problems:
            self.mistakes.add(problem, self.node)
        if len(self.mistakes) > before:
            return None
        table = replace(self.right.tables[0], columns=names)
        scope = replace(self.left, stream=stream, tables=(*self.left.tables, table))
        return self._where(scope, rest)

    def _filter(self) -> tuple[pl.DataFrame, list[exp.Expr]]:
        """Return the rows of the table that ON lets through, and what else ON asks for."""
        frame, rest = self.right.frame, []
        for node in self.conditions.rest:
            if not all(self._is_right(column) for column in node.find_all(exp.Column)):
                rest.append(node)
                continue
            resolved = rename_columns(node, lambda c: c.name)
            if check_predicate("ON", node, resolved, frame.schema, self.mistakes):
                frame = frame.filter(parse(to_text(resolved), frame.schema))
        if rest and self.how == "left":
            hint = "compute a key before, or filter in WHERE"
            self.mistakes.refuse("such a condition in ON of a LEFT JOIN", rest[0], hint)
        return frame, rest

    def _is_right(self, column: exp.Column) -> bool:
        alias = self.right.tables[0].alias
        return column.table == alias or not any(column.name in t.columns for t in self.left.tables)

    def _give_keys(self) -> tuple[Stream, list[str]]:
        """Return the stream with a column for each key."""
        stream = self.left.stream
        used = {*stream.schema, *self.right.schema}
        free = (name for i in count(1) if (name := f"sql_key_{i}") not in used)
        keys = [
            k.name if isinstance(k, exp.Column) else next(free) for k, _ in self.conditions.keys
        ]
        pairs = zip(keys, self.conditions.keys, strict=True)
        added = {n: to_text(k) for n, (k, _) in pairs if not isinstance(k, exp.Column)}
        return (stream.map(**added) if added else stream), keys

    def _names(self, stream: Stream, keys: list[str]) -> dict[str, str]:
        """Return what the columns of the table are called in the result."""
        pairs = list(zip(keys, self.conditions.keys, strict=True))
        shared = {
            key
            for key, (_, right) in pairs
            if self.how == "inner" and isinstance(right, exp.Column) and right.name == key
        }
        taken = {*stream.schema, *self.right.schema}
        names = {}
        for name in self.right.schema:
            new = name
            if name in stream.schema and name not in shared:
                endings = ("_right", *[f"_right{i}" for i in range(2, 100)])
                new = next(n for ending in endings if (n := name + ending) not in taken)
            names[name] = new
        return names

    def _table(
        self, frame: pl.DataFrame, stream: Stream, keys: list[str], names: dict[str, str]
    ) -> pl.DataFrame:
        found = [
            _make_alike(pair, frame, stream.schema[key]).alias(key)
            for key, pair in zip(keys, self.conditions.keys, strict=True)
        ]
        others = [pl.col(old).alias(new) for old, new in names.items() if new not in keys]
        return frame.select(*found, *others)

    def _where(self, scope: Scope, rest: list[exp.Expr]) -> Scope | None:
        before = len(self.mistakes)
        stream = scope.stream
        for node in rest:
            resolved = rename_columns(node, lambda c: scope.resolve(c, self.mistakes))
            if check_predicate("ON", node, resolved, stream.schema, self.mistakes):
                stream = stream.filter(to_text(resolved))
        return replace(scope, stream=stream) if len(self.mistakes) == before else None


def _make_alike(key: Key, frame: pl.DataFrame, wanted: pl.DataType) -> pl.Expr:
    """Return a key of the table; integers get the type that the stream has, or match nothing."""
    value = parse(to_text(key[1]), frame.schema)
    found = frame.lazy().select(value.alias("key")).collect_schema()["key"]
    if found != wanted and found.is_integer() and wanted.is_integer():
        return value.cast(wanted, strict=False)
    return value
