"""The parts of an aggregate call: from rows to partials, from partials to fewer, and to the result.

Law: which of two ways partials of a frame are made in, the short or the long one, cannot be seen
in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from penstock.query.aggregates import Call

_SMALL = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortWay:
    """How a frame is summed up in which no sum of a column can wrap, nor has wrapped.

    Attributes:
        column: The column that is summed.
        high: The sums of the upper halves, if there are any yet.
        sums: Expressions from rows to partial columns.
        after: Expressions from these to the other partial columns.
    """

    column: str
    high: str | None = None
    sums: tuple[pl.Expr, ...]
    after: tuple[pl.Expr, ...]

    def suits(self, rows: pl.DataFrame) -> bool:
        """Return whether no sum of some of the rows leaves 64 bits."""
        if _greatest(rows[self.column]) * rows.height >= _SMALL:
            return False
        return self.high is None or _greatest(rows[self.high]) << 33 < _SMALL


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The three parts of one call; expressions are named by the columns they make."""

    partial: tuple[pl.Expr, ...]
    merge: tuple[pl.Expr, ...]
    finish: pl.Expr
    short_partial: ShortWay | None = None
    short_merge: ShortWay | None = None


Way = tuple[list[pl.Expr], list[pl.Expr]]
"""Expressions for a group-by, and expressions that add columns to what it gives."""


def partials_for(rows: pl.DataFrame, parts: Sequence[Parts]) -> Way:
    """Return how partials are made of some rows."""
    return _way(rows, [(one.partial, one.short_partial) for one in parts])


def merges_for(rows: pl.DataFrame, parts: Sequence[Parts]) -> Way:
    """Return how some partials are merged."""
    return _way(rows, [(one.merge, one.short_merge) for one in parts])


def _way(rows: pl.DataFrame, ways: Sequence[tuple[tuple[pl.Expr, ...], ShortWay | None]]) -> Way:
    sums: list[pl.Expr] = []
    after: list[pl.Expr] = []
    for long, short in ways:
        if short is not None and short.suits(rows):
            sums += short.sums
            after += short.after
        else:
            sums += long
    return sums, after


def _greatest(values: pl.Series) -> int:
    """Return the greatest size of some numbers."""
    plain = values.to_physical()
    low, high = plain.min(), plain.max()
    return max(-low, high) if isinstance(low, int) and isinstance(high, int) else 0


def partial_names(parts: Sequence[Parts]) -> list[str]:
    """Return the columns of partials, in order."""
    return [e.meta.output_name() for one in parts for e in one.partial]


def values_of(call: Call) -> pl.Expr:
    """Return the values that a call looks at."""
    assert call.argument is not None
    return call.argument if call.keep is None else call.argument.filter(call.keep)


def one_column(name: str, partial: pl.Expr, merge: Callable[[pl.Expr], pl.Expr]) -> Parts:
    """Return the parts of a call whose partials are one column."""
    return Parts(
        partial=(partial.alias(name),),
        merge=(merge(pl.col(name)).alias(name),),
        finish=pl.col(name),
    )
