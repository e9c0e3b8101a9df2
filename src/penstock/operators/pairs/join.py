"""Joins in a time window: new rows find their partners among the rows that are kept.

A pair is made when its second row comes. A row of an outer join that has no partner is written when
the watermark says that none can come: its partners are looked for once more, so whether it was
alone depends on no epoch. Laws: the work of an epoch grows with its rows, its pairs and the rows
whose time is over, not with the rows kept; a row is paired with itself only if the query says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import polars as pl

from penstock.base.columns import TIME
from penstock.base.hashing import key_columns
from penstock.base.times import NOT_STARTED
from penstock.operators.kernel import SIDE, UNTIL, Advanced, Emit
from penstock.operators.pairs.results import (
    Columns,
    Found,
    Given,
    Pairs,
    Places,
    StateRows,
    stored_columns,
)
from penstock.operators.stores.bands import Band, add_band, drop_until, near
from penstock.operators.stores.pieces import Piece
from penstock.query.joins import Join

_TWIN = "__twin"
_COPY = "__copy"


Sides = tuple[tuple[Band, ...], ...]
"""The bands of each side; one side if a stream joins itself on the same keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinState:
    """The rows that may still find partners."""

    sides: Sides
    watermark: int = NOT_STARTED


def join_columns(node: Join, wanted: Iterable[str]) -> tuple[list[Columns], Given]:
    """Return the columns of a join's state rows, and where those of the results come from."""
    return stored_columns(node, wanted, [_keys(node, on) for on in (node.left_on, node.right_on)])


def _keys(node: Join, on: Sequence[str]) -> Columns:
    """Return the keys of a side by the names that both sides have in the state."""
    hashed = key_columns(on, dict(zip(on, node.key_types, strict=True)))
    return {
        name: (expression.cast(dtype), dtype)
        for name, expression, dtype in zip(node.stored, hashed, node.key_types, strict=True)
    }


class JoinKernel:
    """The join of one operator in a time window."""

    def __init__(
        self,
        node: Join,
        operator: int,
        ordered: bool,
        wanted: frozenset[str],
        emit: Emit | None = None,
    ) -> None:
        """Prepare the columns of a join."""
        assert isinstance(node.within, int)
        self.node, self.within = node, node.within
        self.keys = list(node.stored)
        columns, given = join_columns(node, wanted)
        self.rows = StateRows(columns, [TIME])
        self.pairs = Pairs(node, given, wanted, operator, ordered, emit)
        self.one = len(node.inputs) == 1
        self.outer = {"inner": (), "left": (0,), "full": (0, 1)}[node.how]
        self.kept_us = [self._kept_us(side) for side in range(len(node.inputs))]

    def _kept_us(self, side: int) -> int:
        """Return how long after its time a row is needed."""
        others = (0, 1) if self.one else (1 - side,)
        return 2 * self.within if any(s in self.outer for s in others) else self.within

    def pieces(self, state: JoinState) -> Iterable[Piece]:
        """Return what a state is made of."""
        return (piece for bands in state.sides for band in bands for piece in band.pieces)

    def prepare(self, rows: pl.LazyFrame, port: int = 0) -> pl.LazyFrame:
        """Return the columns that are kept; rows that can neither match nor be alone go."""
        found = self.rows.prepare(rows, port)
        if port in self.outer or (self.one and self.outer):
            return found
        return found.filter(pl.all_horizontal(pl.col(key).is_not_null() for key in self.keys))

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they are."""
        return prepared

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of an epoch with the watermark up to which they are needed."""
        kept = pl.when(pl.col(SIDE) == 0).then(self.kept_us[0]).otherwise(self.kept_us[-1])
        return self.rows.delta(arrived, pl.col(TIME) + kept)

    def compact(
        self, deltas: Sequence[pl.DataFrame], watermark: int, whole: bool = False
    ) -> pl.DataFrame:
        """Return one delta with the rows that are still needed."""
        return pl.concat([delta.filter(pl.col(UNTIL) > watermark) for delta in deltas])

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> JoinState:
        """Return the rows that are needed at a watermark."""
        live = [delta.filter(pl.col(UNTIL) > watermark).drop(UNTIL) for delta in deltas]
        return JoinState(sides=self._bands(live), watermark=watermark)

    def unfold(self, state: JoinState) -> list[pl.DataFrame]:
        """Return the rows of a state as deltas."""
        return [
            self.delta([band.rows.with_columns(pl.lit(side, dtype=pl.Int8).alias(SIDE))])
            for side, bands in enumerate(state.sides)
            for band in bands
        ]

    def catch_up(
        self, state: JoinState, deltas: Sequence[pl.DataFrame], watermark: int
    ) -> JoinState:
        """Return the state at a watermark from an older one and the deltas since then."""
        added = self.restore(deltas, watermark)
        sides = tuple(
            _grow(kept, new, watermark - kept_us)
            for kept, new, kept_us in zip(state.sides, added.sides, self.kept_us, strict=True)
        )
        return JoinState(sides=sides, watermark=watermark)

    def _bands(self, frames: Sequence[pl.DataFrame]) -> tuple[tuple[Band, ...], ...]:
        """Return the rows of each side as a band, or none."""
        sides = [self.rows.of_side(frames, side) for side in range(len(self.node.inputs))]
        if self.node.apart and not self.one:
            sides = _with_twins(sides[0], sides[1], but=self.keys)
        timed = bool(self.outer)
        return tuple(
            (Band.of(rows, self.keys, by_time=timed),) if rows.height else () for rows in sides
        )

    def advance(
        self, state: JoinState, arrived: Sequence[pl.DataFrame], watermark: int
    ) -> Advanced:
        """Pair the rows of an epoch with those kept and with each other."""
        watermark = max(watermark, state.watermark)
        fresh, found = self._bands(arrived), self.pairs.found()
        if self.one:
            self._join_itself(found, fresh[0], state.sides[0])
        else:
            self._join(found, fresh, state.sides)
        for side in self.outer:
            self._add_alone(found, side, fresh, state, watermark)
        sides = tuple(
            _grow(kept, new, watermark - kept_us)
            for kept, new, kept_us in zip(state.sides, fresh, self.kept_us, strict=True)
        )
        return Advanced(
            state=JoinState(sides=sides, watermark=watermark),
            results=self.pairs.all_of(found),
            refusals=tuple(found.refusals),
        )

    def _join(self, found: Found, fresh: Sides, kept: Sides) -> None:
        """Pair new rows with those kept on the other side, and with each other."""
        for left, right in [*product(fresh[0], kept[1]), *product(kept[0], fresh[1])]:
            for li, ri in near(left, right, self.within):
                self.pairs.add(found, left.rows, right.rows, li, ri)
        for left, right in product(fresh[0], fresh[1]):
            for li, ri in near(left, right, self.within):
                self.pairs.add(found, left.rows, right.rows, *self._not_twins(left, right, li, ri))

    def _not_twins(self, left: Band, right: Band, li: Places, ri: Places) -> tuple[Places, Places]:
        if not self.node.apart:
            return li, ri
        apart = left.rows[_TWIN].to_numpy()[li] != right.rows[_TWIN].to_numpy()[ri]
        return li[apart], ri[apart]

    def _join_itself(self, found: Found, fresh: Sequence[Band], kept: Sequence[Band]) -> None:
        """Pair new rows with those kept, in both orders, and with each other."""
        for new, old in product(fresh, kept):
            for i, j in near(new, old, self.within):
                self.pairs.add(found, new.rows, old.rows, i, j)
                self.pairs.add(found, old.rows, new.rows, j, i)
        for new in fresh:
            for i, j in near(new, new, self.within):
                if self.node.apart:
                    apart = i != j
                    i, j = i[apart], j[apart]
                self.pairs.add(found, new.rows, new.rows, i, j)

    def _add_alone(
        self, found: Found, side: int, fresh: Sides, state: JoinState, watermark: int
    ) -> None:
        """Add the rows of a side whose time is over and that have no partner."""
        since, until = state.watermark - self.within, watermark - self.within
        over = [band.between(since, until) for band in state.sides[-side]]
        over += [band.between(NOT_STARTED, until) for band in fresh[-side]]
        rows = pl.concat(over) if over else pl.DataFrame()
        if not rows.height:
            return
        lonely = self._without_partner(side, rows, [*state.sides[side - 1], *fresh[side - 1]])
        if lonely.height:
            keys = dict(zip(self.keys, self.keys, strict=True)) if self.node.shared else {}
            at = pl.col(TIME) + self.within
            found.add(self.pairs.alone(lonely, side, at, keys))

    def _without_partner(
        self, side: int, rows: pl.DataFrame, others: Sequence[Band]
    ) -> pl.DataFrame:
        asked = Band.of(rows, self.keys)
        partners = np.zeros(asked.height, dtype=np.int64)
        for band in others:
            for mine, theirs in near(asked, band, self.within):
                passed = self._find_passing(side, asked.rows, band.rows, mine, theirs)
                partners += np.bincount(passed, minlength=asked.height)
        if self.node.apart:
            partners[self._partners_of_themselves(asked)] -= 1
        return asked.rows.filter(pl.Series(partners == 0))

    def _find_passing(
        self, side: int, mine: pl.DataFrame, theirs: pl.DataFrame, i: Places, j: Places
    ) -> Places:
        """Return my places in the pairs for which the predicate is true; failures are no match."""
        if side == 0:
            return self.pairs.passing(mine, theirs, i, j, [])[0]
        return self.pairs.passing(theirs, mine, j, i, [])[1]

    def _partners_of_themselves(self, asked: Band) -> Places:
        """Return the places of rows that count themselves as a partner."""
        keys = zip(self.node.left_on, self.node.right_on, strict=True)
        same = asked.rows.select(pl.all_horizontal(pl.col(a) == pl.col(b) for a, b in keys))
        places = np.flatnonzero(same.to_series().fill_null(False).to_numpy())
        return self.pairs.passing(asked.rows, asked.rows, places, places, [])[0]


def _grow(kept: Sequence[Band], fresh: Sequence[Band], after: int) -> tuple[Band, ...]:
    """Return the rows that are needed on, those after a time, with the new ones."""
    bands = drop_until(kept, after)
    for band in drop_until(fresh, after):
        bands = add_band(bands, band, after)
    return bands


def _with_twins(left: pl.DataFrame, right: pl.DataFrame, but: Sequence[str]) -> list[pl.DataFrame]:
    """Return rows of a stream in both roles with a number that tells which are the same row.

    Both roles of a row come in the same epoch. Rows that are equal in all columns can stand for
    one another, so the first such row of one side is the first one of the other.
    """
    names = [n for n, t in left.schema.items() if n not in but and not t.is_nested()]
    copy = pl.int_range(pl.len()).over(names).alias(_COPY)
    numbered = (
        left.with_columns(copy).with_row_index(_TWIN).with_columns(pl.col(_TWIN).cast(pl.Int64))
    )
    known = numbered.select(*names, _COPY, _TWIN)
    found = right.with_columns(copy).join(
        known, on=[*names, _COPY], how="left", nulls_equal=True, maintain_order="left"
    )
    return [numbered.drop(_COPY), found.with_columns(pl.col(_TWIN).fill_null(-1)).drop(_COPY)]
