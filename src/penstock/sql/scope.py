"""What the names in a SELECT stand for.

Law: a name stands for one column of the stream at hand, or the query is refused: unknown and
ambiguous names are mistakes, never guesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
from sqlglot import exp

from penstock.query.expressions import find_nearest, unknown_column
from penstock.query.stream import Stream
from penstock.sql.places import Mistakes

Times = frozenset[str]
_BOUNDS = "; the bounds of a window are window_start and window_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A stream that SQL can name, and those of its columns that are its event time."""

    stream: Stream
    times: Times = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A relation in FROM: its alias, and what its columns are called in the stream at hand.

    ``times`` are the columns, by their SQL names, that were the table's event time; they are at
    most ``slack_us`` from the event time of the stream at hand.
    """

    alias: str
    columns: Mapping[str, str]
    times: Times = frozenset()
    slack_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The tables of a FROM clause."""

    tables: tuple[Table, ...]

    def resolve(self, column: exp.Column, mistakes: Mistakes) -> str | None:
        """Return the column of the stream that a name stands for, or note the mistake."""
        name, owner = column.name, column.table
        if column.args.get("db"):
            mistakes.refuse("a name of more than two parts", column)
            return None
        if owner:
            table = self.table(owner)
            if table is None:
                said = unknown_table(owner, [t.alias for t in self.tables])
                mistakes.add(said + (_BOUNDS if owner == "window" else ""), column)
                return None
            tables: tuple[Table, ...] = (table,)
        else:
            tables = self.tables
        found = {t.columns[name]: t.alias for t in tables if name in t.columns}
        if not found:
            mistakes.add(unknown_column(name, _names(tables)) + self._hint(column), column)
            return None
        if len(found) > 1:
            choices = " or ".join(f"{alias}.{name}" for alias in found.values())
            mistakes.add(f"column {name!r} is ambiguous; write {choices}", column)
            return None
        return next(iter(found))

    def _hint(self, column: exp.Column) -> str:
        """Return what may be behind a column that there is not."""
        owner = column.table
        if owner and self.has(owner):
            return f"; {owner!r} is a table here; the field of a column is ({owner}).{column.name}"
        if column.name == "window":
            return _BOUNDS
        quoted = column.this.args.get("quoted") and not owner
        return f"; a text has single quotes: {column.name!r}" if quoted else ""

    def table(self, alias: str) -> Table | None:
        """Return the table with an alias."""
        return next((t for t in self.tables if t.alias == alias), None)

    def has(self, name: str) -> bool:
        """Return whether a name without a table is a column."""
        return any(name in t.columns for t in self.tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class Still(Names):
    """A table that stands still: its rows are there when the query is built."""

    frame: pl.DataFrame

    @property
    def schema(self) -> Mapping[str, pl.DataType]:
        """The types of its columns."""
        return self.frame.schema


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope(Names):
    """The tables of a FROM clause over one stream.

    The event time of the stream is the greatest of one column of each set in ``times``; with no
    sets it has no name.
    """

    stream: Stream
    times: tuple[Times, ...] = ()

    @property
    def schema(self) -> Mapping[str, pl.DataType]:
        """The types of the stream's columns."""
        return self.stream.schema

    def time_names(self) -> list[str]:
        """Return how the event time can be written."""
        if not self.times or not all(self.times):
            return []
        if len(self.times) == 1:
            return [self._written(name) for name in sorted(self.times[0])]
        return [f"GREATEST({', '.join(self._written(min(names)) for names in self.times)})"]

    def _written(self, column: str) -> str:
        """Return how SQL names a column of the stream."""
        names = [(t.alias, sql) for t in self.tables for sql, c in t.columns.items() if c == column]
        alias, sql = names[0]
        return sql if len(self.tables) == 1 else f"{alias}.{sql}"


def single(alias: str, given: Relation | pl.DataFrame) -> Scope | Still:
    """Return the scope of one table."""
    if isinstance(given, pl.DataFrame):
        columns = {name: name for name in given.columns}
        return Still(frame=given, tables=(Table(alias=alias, columns=columns),))
    columns = {name: name for name in given.stream.schema}
    table = Table(alias=alias, columns=columns, times=given.times)
    return Scope(stream=given.stream, tables=(table,), times=(given.times,))


def unknown_table(name: str, known: list[str]) -> str:
    """Return the complaint about a table that does not exist.

    >>> unknown_table("cals", ["calls", "towers"])
    "unknown table 'cals'; did you mean 'calls'?"
    """
    near = find_nearest(name, known)
    hint = f"did you mean {near!r}?" if near else f"tables: {', '.join(known) or 'none'}"
    return f"unknown table {name!r}; {hint}"


def _names(tables: tuple[Table, ...]) -> dict[str, pl.DataType]:
    return {name: pl.Null() for table in tables for name in table.columns}
