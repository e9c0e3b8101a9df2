"""Joins in a count window: a row meets the last rows of the other side before it that have its key.

Rows are numbered by their turn in stream order as they become final; the numbers are new after a
restart, since only their order counts. Laws: what a row meets depends on stream order alone; the
work of an epoch grows with its rows and pairs, not with the rows kept; of each key and side, the
last rows are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.base.columns import ORDER
from penstock.operators.kernel import FOREVER, SIDE, UNTIL, Advanced, Emit
from penstock.operators.pairs.join import join_columns
from penstock.operators.pairs.results import Found, Pairs, StateRows
from penstock.operators.pairs.turns import Turns
from penstock.operators.stores.bands import Band, add_latest
from penstock.operators.stores.pieces import Piece
from penstock.operators.stores.runs import run_pieces
from penstock.operators.stores.waiting import Waiting, waiting_of
from penstock.query.joins import Join
from penstock.query.windows import CountWindow

_TURN = "__turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountJoinState:
    """Rows that wait; of each side the last rows of each key, older bands first; the next turn."""

    waiting: Waiting
    sides: tuple[tuple[Band, ...], ...]
    turn: int = 0


class CountJoinKernel:
    """The join of one operator in a count window."""

    def __init__(
        self,
        node: Join,
        operator: int,
        ordered: bool,
        wanted: frozenset[str],
        emit: Emit | None = None,
    ) -> None:
        """Prepare the columns of a join."""
        assert isinstance(node.within, CountWindow)
        self.node, self.size = node, node.within.size
        self.keys = list(node.stored)
        columns, given = join_columns(node, wanted)
        self.rows = StateRows(columns, ORDER)
        self.turns = Turns(node, self.rows)
        self.pairs = Pairs(node, given, wanted, operator, ordered, emit)

    def pieces(self, state: CountJoinState) -> Iterable[Piece]:
        """Return what a state is made of."""
        return (
            *run_pieces(state.waiting),
            *[piece for bands in state.sides for band in bands for piece in band.pieces],
        )

    def prepare(self, rows: pl.LazyFrame, port: int = 0) -> pl.LazyFrame:
        """Return the columns that are kept; rows that can match nothing go."""
        known = pl.all_horizontal(pl.col(key).is_not_null() for key in self.keys)
        return self.rows.prepare(rows, port).filter(known)

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they are."""
        return prepared

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of an epoch; how long they are needed, no watermark tells."""
        return self.turns.delta(arrived)

    def compact(
        self, deltas: Sequence[pl.DataFrame], watermark: int, whole: bool = False
    ) -> pl.DataFrame:
        """Return one delta with the rows that wait and the last ones of each key and side."""
        had, waiting = self.turns.split(deltas, watermark)
        last = had.group_by(*self.keys, SIDE, maintain_order=True).tail(self.size)
        until = pl.lit(FOREVER, dtype=pl.Int64).alias(UNTIL)
        return pl.concat([last.select(waiting.columns), waiting]).with_columns(until)

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> CountJoinState:
        """Return the rows that wait at a watermark, and the last ones of each key and side."""
        had, waiting = self.turns.split(deltas, watermark)
        sides = self._bands(had, 0)
        return CountJoinState(
            waiting=waiting_of(waiting),
            sides=tuple(tuple(band.latest(self.size) for band in bands) for bands in sides),
            turn=had.height,
        )

    def _bands(self, ready: pl.DataFrame, turn: int) -> tuple[tuple[Band, ...], ...]:
        """Return the rows of each side by key and turn as a band, or none."""
        turns = pl.int_range(turn, turn + pl.len(), dtype=pl.Int64).alias(_TURN)
        numbered = ready.with_columns(turns)
        sides = [numbered.filter(pl.col(SIDE) == s) for s in range(len(self.node.inputs))]
        return tuple((Band.of(rows, self.keys, _TURN),) if rows.height else () for rows in sides)

    def advance(
        self, state: CountJoinState, arrived: Sequence[pl.DataFrame], watermark: int
    ) -> Advanced:
        """Pair the rows whose turn has come with the last ones before them."""
        ready, waiting = self.turns.take(state.waiting, arrived, watermark)
        fresh, found = self._bands(ready, state.turn), self.pairs.found()
        for side in (0, 1):
            for asking in fresh[-side]:
                self._join(found, side, asking, [*state.sides[side - 1], *fresh[side - 1]])
        sides = tuple(
            add_latest(kept, new[0], self.size) if new else kept
            for kept, new in zip(state.sides, fresh, strict=True)
        )
        return Advanced(
            state=CountJoinState(waiting=waiting, sides=sides, turn=state.turn + ready.height),
            results=self.pairs.all_of(found),
            refusals=tuple(found.refusals),
        )

    def _join(self, found: Found, side: int, asking: Band, offered: Sequence[Band]) -> None:
        """Pair rows with the last ones before them, the latest bands first."""
        wanted = np.full(asking.height, self.size, dtype=np.int64)
        for band in reversed(offered):
            got = np.zeros(asking.height, dtype=np.int64)
            for mine, theirs in band.last(asking, wanted):
                got += np.bincount(mine, minlength=asking.height)
                if side == 0:
                    self.pairs.add(found, asking.rows, band.rows, mine, theirs)
                else:
                    self.pairs.add(found, band.rows, asking.rows, theirs, mine)
            wanted = wanted - got
