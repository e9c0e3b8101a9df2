"""Products in a count window: a row is compared with the last rows of the other side before it.

This is StreamCloud's window of fixed size. Every instance gets all rows, since it has to count them
all, and compares the pairs of its cells. Laws: what a row is compared with depends on stream order
alone; of each side, the last rows are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.base.columns import ORDER
from penstock.operators.kernel import FOREVER, SIDE, UNTIL, Advanced, Emit
from penstock.operators.pairs.blocks import Ranges, compare
from penstock.operators.pairs.cells import Cells
from penstock.operators.pairs.results import Found, Pairs, Places, StateRows, stored_columns
from penstock.operators.pairs.turns import Turns
from penstock.operators.stores.pieces import Piece
from penstock.operators.stores.runs import run_pieces
from penstock.operators.stores.waiting import Waiting, waiting_of
from penstock.plan.buckets import BucketSet
from penstock.plan.grid import Grid
from penstock.query.joins import Product
from penstock.query.windows import CountWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class CountProductState:
    """Rows that wait, and the last rows of each side in stream order."""

    waiting: Waiting
    sides: tuple[pl.DataFrame, ...]


class CountProductKernel:
    """The product of one operator in a count window, for some cells of the grid."""

    def __init__(
        self,
        node: Product,
        operator: int,
        ordered: bool,
        wanted: frozenset[str],
        grid: Grid,
        mine: BucketSet | None,
        emit: Emit | None = None,
    ) -> None:
        """Prepare the columns of a product."""
        assert isinstance(node.within, CountWindow)
        self.node, self.size = node, node.within.size
        columns, given = stored_columns(node, wanted)
        self.rows = StateRows(columns, ORDER)
        self.turns = Turns(node, self.rows)
        self.pairs = Pairs(node, given, wanted, operator, ordered, emit)
        self.cells = Cells(grid, mine, [node.keys(s * (len(columns) - 1)) or () for s in (0, 1)])

    def pieces(self, state: CountProductState) -> Iterable[Piece]:
        """Return what a state is made of."""
        return (*run_pieces(state.waiting), *state.sides)

    def prepare(self, rows: pl.LazyFrame, port: int = 0) -> pl.LazyFrame:
        """Return the columns that are kept."""
        return self.rows.prepare(rows, port)

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they are."""
        return prepared

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of an epoch; how long they are needed, no watermark tells."""
        return self.turns.delta(arrived)

    def compact(
        self, deltas: Sequence[pl.DataFrame], watermark: int, whole: bool = False
    ) -> pl.DataFrame:
        """Return one delta with the rows that wait and the last ones of each side."""
        had, waiting = self.turns.split(deltas, watermark)
        last = [side.tail(self.size) for side in had.partition_by(SIDE)]
        until = pl.lit(FOREVER, dtype=pl.Int64).alias(UNTIL)
        return pl.concat([*last, waiting]).with_columns(until)

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> CountProductState:
        """Return the rows that wait at a watermark, and the last ones of each side."""
        had, waiting = self.turns.split(deltas, watermark)
        return CountProductState(
            waiting=waiting_of(waiting),
            sides=tuple(side.tail(self.size) for side in self._sides(had)),
        )

    def _sides(self, rows: pl.DataFrame) -> list[pl.DataFrame]:
        """Return the rows of each side, with their places on the grid."""
        count = len(self.node.inputs)
        return [
            self.cells.placed(
                rows.filter(pl.col(SIDE) == side), (0, 1) if self.node.itself else (side,)
            )
            for side in range(count)
        ]

    def advance(
        self, state: CountProductState, arrived: Sequence[pl.DataFrame], watermark: int
    ) -> Advanced:
        """Compare the rows whose turn has come with the last ones before them."""
        ready, waiting = self.turns.take(state.waiting, arrived, watermark)
        found, sides = self.pairs.found(), state.sides
        if ready.height:
            fresh = self._sides(ready)
            whole = [pl.concat([a, b]) for a, b in zip(sides, fresh, strict=True)]
            for side in (0, 1):
                self._compare(found, side, ready, sides, whole)
            sides = tuple(rows.tail(self.size).rechunk() for rows in whole)
        return Advanced(
            state=CountProductState(waiting=waiting, sides=sides),
            results=self.pairs.all_of(found),
            refusals=tuple(found.refusals),
        )

    def _compare(
        self,
        found: Found,
        side: int,
        ready: pl.DataFrame,
        kept: Sequence[pl.DataFrame],
        whole: Sequence[pl.DataFrame],
    ) -> None:
        """Compare the new rows of a side with the last ones of the other before each of them."""
        before = kept[side - 1].height + self._before(side, ready)
        first = np.maximum(before - self.size, 0)
        new = kept[-side].height
        left, right = whole[0], whole[-1]
        for parts in self.cells.parts(left, right):
            asking, offered = parts[side], parts[1 - side]
            asking = asking[np.searchsorted(asking, new) :]
            ranges = Ranges(
                side=side,
                asking=asking,
                offered=offered,
                low=np.searchsorted(offered, first[asking - new]),
                high=np.searchsorted(offered, before[asking - new]),
            )
            if ranges.pairs:
                compare(self.pairs, found, left, right, ranges)

    def _before(self, side: int, ready: pl.DataFrame) -> Places:
        """Return how many new rows of the other side come before each new row of a side."""
        if self.node.itself:
            return np.arange(ready.height)
        sides = ready[SIDE].to_numpy()
        others: Places = np.cumsum(sides != side)
        return others[np.flatnonzero(sides == side)]
