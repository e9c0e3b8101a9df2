"""The ON clause of a JOIN, taken apart: equal keys, time bands, and the rest.

Law: the pairs that have equal keys, lie in the band and fulfil the rest are exactly the pairs for
which the ON clause is true.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from penstock.sql.bands import Band, Moment, find_band
from penstock.sql.places import Mistakes
from penstock.sql.scalars import check, has_aggregate, refuse_parts, renamed
from penstock.sql.scope import Scope, Table

Key = tuple[exp.Expr, exp.Expr]
_LEFT, _RIGHT = "left:", "right:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What an ON clause asks for; keys are over the columns of the left and the right stream."""

    keys: tuple[Key, ...] = ()
    bands: tuple[tuple[Band, exp.Expr], ...] = ()
    rest: tuple[exp.Expr, ...] = ()


def take_apart_on(
    on: exp.Expr | None, left: Scope, right: Scope, mistakes: Mistakes
) -> Conditions | None:
    """Return the parts of an ON clause, or note what is wrong with it."""
    sides = _Sides(left, right, mistakes)
    keys: list[Key] = []
    bands: list[tuple[Band, exp.Expr]] = []
    rest: list[exp.Expr] = []
    before = len(mistakes)
    for condition in _conjuncts(on):
        if not sides.sound(condition):
            continue
        key, band = sides.key(condition), sides.band(condition)
        if key and any(key[0] == left or key[1] == right for left, right in keys):
            key = None  # a join takes a column as a key once
        keys += [key] if key else []
        bands += [(band, condition)] if band else []
        rest += [] if key or band else [condition]
    if len(mistakes) > before:
        return None
    return Conditions(keys=tuple(keys), bands=tuple(bands), rest=tuple(rest))


def _conjuncts(on: exp.Expr | None) -> Iterator[exp.Expr]:
    if isinstance(on, exp.And | exp.Paren):
        yield from _conjuncts(on.this)
        yield from _conjuncts(on.args.get("expression"))
    elif on is not None and not (isinstance(on, exp.Boolean) and on.this):
        yield on


class _Sides:
    """Both sides of a join; a column is told apart by a prefix to its name."""

    def __init__(self, left: Scope, right: Scope, mistakes: Mistakes) -> None:
        tables = [_marked(t, _LEFT) for t in left.tables] + [
            _marked(t, _RIGHT) for t in right.tables
        ]
        self.left, self.right = left, right
        self.both = Scope(stream=left.stream, tables=tuple(tables))
        self.mistakes = mistakes

    def sound(self, condition: exp.Expr) -> bool:
        before = len(self.mistakes)
        refuse_parts(condition, self.mistakes)
        if has_aggregate(condition):
            self.mistakes.refuse("an aggregate in ON", condition)
        self._names(condition)
        return len(self.mistakes) == before

    def _names(self, node: exp.Expr) -> list[str | None]:
        return [self.both.resolve(c, self.mistakes) for c in node.find_all(exp.Column)]

    def _side(self, node: exp.Expr) -> str:
        sides = {str(name).split(":")[0] for name in self._names(node)}
        return sides.pop() if len(sides) == 1 else ""

    def key(self, condition: exp.Expr) -> Key | None:
        if not isinstance(condition, exp.EQ):
            return None
        parts = {self._side(part): part for part in (condition.this, condition.expression)}
        if set(parts) != {"left", "right"}:
            return None
        return self._plain(parts["left"], self.left), self._plain(parts["right"], self.right)

    def _plain(self, node: exp.Expr, side: Scope) -> exp.Expr:
        """Return the expression of a key over the columns of its side."""
        plain = renamed(
            node, lambda column: str(self.both.resolve(column, self.mistakes)).split(":", 1)[1]
        )
        check(node, plain, side.stream.schema, self.mistakes)
        return plain

    def band(self, condition: exp.Expr) -> Band | None:
        try:
            return find_band(condition, self._moment)
        except ValueError as error:
            self.mistakes.add(str(error), condition)
            return None

    def _moment(self, column: exp.Column) -> Moment | None:
        name = str(self.both.resolve(column, self.mistakes))
        side, plain = name.split(":", 1)
        is_time = any(t.columns.get(time) == name for t in self.both.tables for time in t.times)
        return (side, plain) if is_time else None


def _marked(table: Table, mark: str) -> Table:
    return replace(table, columns={sql: mark + name for sql, name in table.columns.items()})
