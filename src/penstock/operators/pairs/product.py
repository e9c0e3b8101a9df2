"""Products in a time window: every row is compared with every row that is close to it.

Rows are kept by time, so new rows meet a run of neighbours and nothing outside the window is looked
at, but for the ends of blocks. Laws: a pair is compared once, when its second row comes, by the
owner of its cell; a row is compared with itself only if the query says so; pairs are made in blocks
of bounded size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import polars as pl

from penstock.base.columns import TIME
from penstock.base.times import NOT_STARTED
from penstock.operators.kernel import UNTIL, Advanced, Emit
from penstock.operators.pairs.blocks import Ranges, compare
from penstock.operators.pairs.cells import Cells
from penstock.operators.pairs.results import Found, Pairs, StateRows, stored_columns
from penstock.operators.stores.pieces import Piece
from penstock.operators.stores.runs import Run, add_run, run_pieces, take_below
from penstock.operators.stores.waiting import by_time
from penstock.plan.buckets import BucketSet
from penstock.plan.grid import Grid
from penstock.query.joins import Product

Sides = tuple[tuple[Run, ...], ...]
"""The rows of each side, by time; one side if a stream is compared with itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductState:
    """The rows that may still be compared with others."""

    sides: Sides
    watermark: int = NOT_STARTED


class ProductKernel:
    """The product of one operator in a time window, for some cells of the grid."""

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
        assert isinstance(node.within, int)
        self.node, self.within = node, node.within
        columns, given = stored_columns(node, wanted)
        self.rows = StateRows(columns, [TIME])
        self.pairs = Pairs(node, given, wanted, operator, ordered, emit)
        self.cells = Cells(
            grid, mine, [node.keys(side * (len(columns) - 1)) or () for side in (0, 1)]
        )

    def pieces(self, state: ProductState) -> Iterable[Piece]:
        """Return what a state is made of."""
        return (piece for runs in state.sides for piece in run_pieces(runs))

    def prepare(self, rows: pl.LazyFrame, port: int = 0) -> pl.LazyFrame:
        """Return the columns that are kept."""
        return self.rows.prepare(rows, port)

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they are."""
        return prepared

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of an epoch with the watermark up to which they are needed."""
        return self.rows.delta(arrived, pl.col(TIME) + self.within)

    def compact(
        self, deltas: Sequence[pl.DataFrame], watermark: int, whole: bool = False
    ) -> pl.DataFrame:
        """Return one delta with the rows that are still needed."""
        return pl.concat([delta.filter(pl.col(UNTIL) > watermark) for delta in deltas])

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> ProductState:
        """Return the rows that are needed at a watermark."""
        live = [delta.filter(pl.col(UNTIL) > watermark).drop(UNTIL) for delta in deltas]
        return ProductState(sides=self._runs(live), watermark=watermark)

    def _runs(self, frames: Sequence[pl.DataFrame]) -> Sides:
        """Return the rows of each side as a run with their places on the grid, or none."""
        runs = []
        for side in range(len(self.node.inputs)):
            rows = self.rows.of_side(frames, side)
            placed = self.cells.placed(rows, (0, 1) if self.node.itself else (side,))
            runs.append((Run.of(placed, TIME),) if rows.height else ())
        return tuple(runs)

    def advance(
        self, state: ProductState, arrived: Sequence[pl.DataFrame], watermark: int
    ) -> Advanced:
        """Compare the rows of an epoch with those kept and with each other."""
        watermark = max(watermark, state.watermark)
        fresh, found = self._runs(arrived), self.pairs.found()
        for left, right in product(fresh[0], (*state.sides[-1], *fresh[-1])):
            self._compare(found, left, right, asking=0)
        for left, right in product(state.sides[0], fresh[-1]):
            self._compare(found, left, right, asking=1)
        frontier = watermark - self.within + 1
        sides = tuple(
            _grow(kept, new, frontier) for kept, new in zip(state.sides, fresh, strict=True)
        )
        return Advanced(
            state=ProductState(sides=sides, watermark=watermark),
            results=self.pairs.all_of(found),
            refusals=tuple(found.refusals),
        )

    def _compare(self, found: Found, left: Run, right: Run, asking: int) -> None:
        """Compare two runs; the rows of one of them, the smaller one, ask."""
        runs = (left, right)
        times = [run.rows[TIME].to_numpy() for run in runs]
        for parts in self.cells.parts(left.rows, right.rows):
            asks, offers = times[asking][parts[asking]], times[1 - asking][parts[1 - asking]]
            ranges = Ranges(
                side=asking,
                asking=parts[asking],
                offered=parts[1 - asking],
                low=np.searchsorted(offers, asks - self.within, side="right"),
                high=np.searchsorted(offers, asks + self.within, side="left"),
                apart=self.node.apart and left is right,
            )
            if ranges.pairs:
                compare(self.pairs, found, left.rows, right.rows, ranges)


def _grow(kept: Sequence[Run], fresh: Sequence[Run], frontier: int) -> tuple[Run, ...]:
    """Return the rows at or after a time, with the new ones."""
    _, runs = take_below(kept, TIME, frontier)
    _, later = take_below(fresh, TIME, frontier)
    for run in later:
        runs = add_run(runs, run, by_time)
    return runs
