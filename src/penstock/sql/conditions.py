"""The ON clause of a JOIN, taken apart: equal keys, time bands, and the rest.

Law: the pairs that have equal keys, lie in the band and fulfil the rest are exactly the pairs for
which the ON clause is true.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import polars as pl
from sqlglot import exp

from penstock.query.scalars.times import split_interval
from penstock.sql.bands import Band, Moment, find_band
from penstock.sql.places import Mistakes
from penstock.sql.scalars import check, has_aggregate, refuse_parts, rename_columns
from penstock.sql.scope import Names, Scope, Still, Table

Key = tuple[exp.Expr, exp.Expr]
_WIDE = (pl.Int64(), pl.UInt64(), pl.Int128(), pl.UInt128())
_LEFT, _RIGHT = "left:", "right:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What an ON clause asks for; keys are over the columns of the left and the right stream."""

    keys: tuple[Key, ...] = ()
    bands: tuple[tuple[Band, exp.Expr], ...] = ()
    rest: tuple[exp.Expr, ...] = ()


def take_apart_on(
    on: exp.Expr | None, left: Scope, right: Scope | Still, mistakes: Mistakes
) -> Conditions | None:
    """Return the parts of an ON clause, or note what is wrong with it."""
    sides = Sides(left, right, mistakes)
    keys: list[Key] = []
    bands: list[tuple[Band, exp.Expr]] = []
    rest: list[exp.Expr] = []
    before = len(mistakes)
    for condition in conjuncts(on):
        if not sides.is_sound(condition):
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


def conjuncts(on: exp.Expr | None) -> Iterator[exp.Expr]:
    """Return the conditions that AND connects."""
    if isinstance(on, exp.And | exp.Paren):
        yield from conjuncts(on.this)
        yield from conjuncts(on.args.get("expression"))
    elif on is not None and not (isinstance(on, exp.Boolean) and on.this):
        yield on


class Sides:
    """Both sides of a join; a column is told apart by a prefix to its name."""

    def __init__(self, left: Scope, right: Scope | Still, mistakes: Mistakes) -> None:
        tables = [_mark(t, _LEFT) for t in left.tables] + [_mark(t, _RIGHT) for t in right.tables]
        self.left, self.right = left, right
        self.both = Names(tables=tuple(tables))
        self.mistakes = mistakes

    def is_sound(self, condition: exp.Expr) -> bool:
        """Return whether a condition can be in ON; note what is wrong with it."""
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
        """Return the key of a condition, or None if it is none."""
        if not isinstance(condition, exp.EQ):
            return None
        parts = {self._side(part): part for part in (condition.this, condition.expression)}
        if set(parts) != {"left", "right"}:
            return None
        left, left_type = self._plain(parts["left"], self.left)
        right, right_type = self._plain(parts["right"], self.right)
        if left_type == right_type or isinstance(self.right, Still):
            return left, right
        if isinstance(left_type, pl.Datetime) and isinstance(right_type, pl.Datetime):
            return None  # equal as instants, not as keys
        return _widen(left, left_type), _widen(right, right_type)

    def _plain(self, node: exp.Expr, side: Scope | Still) -> tuple[exp.Expr, pl.DataType | None]:
        """Return the expression of a key over the columns of its side, and its type."""
        plain = rename_columns(
            node, lambda column: str(self.both.resolve(column, self.mistakes)).split(":", 1)[1]
        )
        return plain, check(node, plain, side.schema, self.mistakes)

    def band(self, condition: exp.Expr) -> Band | None:
        """Return the time band of a condition, or None if it is none."""
        try:
            found = find_band(condition, self._moment)
        except ValueError as error:
            self.mistakes.add(str(error), condition)
            return None
        if found is not None:
            self._check_zones(found, condition)
        return found

    def _check_zones(self, band: Band, condition: exp.Expr) -> None:
        """Note bands of which the length is not fixed: they depend on the clocks of a zone."""
        sides = ((self.left, band.left), (self.right, band.right))
        zones = [getattr(side.schema[name], "time_zone", None) for side, name in sides]
        if any(zones) and not all(zones):
            self.mistakes.add(
                "a time band needs two times with a zone or two without; "
                f"{band.left!r} has {zones[0] or 'none'}, {band.right!r} has {zones[1] or 'none'}; "
                "declare both with a zone in the schemas of their sources",
                condition,
            )
        elif any(zones) and _moves_days(condition):
            self.mistakes.add(
                "a day of a zone's clocks has 23 to 25 hours; write a time band in hours", condition
            )

    def _moment(self, column: exp.Column) -> Moment | None:
        name = str(self.both.resolve(column, self.mistakes))
        side, plain = name.split(":", 1)
        is_time = any(t.columns.get(time) == name for t in self.both.tables for time in t.times)
        return (side, plain) if is_time else None


def _widen(key: exp.Expr, dtype: pl.DataType | None) -> exp.Expr:
    """Return a key that can be compared with integers of other types."""
    narrow = dtype is not None and dtype.is_integer() and dtype not in _WIDE
    return exp.cast(key, exp.DataType.build("bigint")) if narrow else key


def _moves_days(condition: exp.Expr) -> bool:
    return any(
        isinstance(part, exp.Interval) and split_interval(part)[0]
        for node in condition.find_all(exp.Add, exp.Sub)
        for part in (node.this, node.expression)
    )


def _mark(table: Table, mark: str) -> Table:
    return replace(table, columns={sql: mark + name for sql, name in table.columns.items()})
