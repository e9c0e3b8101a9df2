"""The order buffer: rows wait until the watermark says that no earlier row can come.

Laws: rows leave in stream order (event time, source, position, then their columns from left to
right), within an epoch and across epochs; rows that wait cost nothing in the epochs between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl

from penstock.base.columns import ORDER, TIME
from penstock.operators.kernel import UNTIL, Advanced, empty_results
from penstock.operators.stores.pieces import Piece
from penstock.operators.stores.runs import run_pieces
from penstock.operators.stores.waiting import Waiting, take_final
from penstock.query.nodes import Sink


class OrderKernel:
    """Puts the rows of an ordered sink into stream order."""

    def __init__(self, node: Sink) -> None:
        """Prepare the sort for the columns of a sink."""
        self.node = node
        self.columns = [*node.schema, *ORDER]
        told_apart = [c for c, dtype in node.schema.items() if not isinstance(dtype, pl.Array)]
        self.sort = [*ORDER, *told_apart]

    def pieces(self, state: Waiting) -> Iterable[Piece]:
        """Return what a state is made of."""
        return run_pieces(state)

    def prepare(self, rows: pl.LazyFrame, port: int = 0) -> pl.LazyFrame:
        """Return the columns of the sink, and the order."""
        return rows.select(self.columns)

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they are."""
        return prepared

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> Waiting:
        """Return the rows that still wait at a watermark."""
        return self.catch_up((), deltas, watermark)

    def catch_up(self, state: Waiting, deltas: Sequence[pl.DataFrame], watermark: int) -> Waiting:
        """Return the rows that wait at a watermark, from older ones and the deltas since then."""
        return take_final(state, [d.drop(UNTIL) for d in deltas], watermark).waiting

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of an epoch with the watermark at which they have left."""
        fresh = [frame.select(self.columns) for frame in arrived if frame.height]
        if not fresh:
            return pl.DataFrame()
        return pl.concat(fresh).with_columns((pl.col(TIME) + 1).alias(UNTIL))

    def advance(self, state: Waiting, arrived: Sequence[pl.DataFrame], watermark: int) -> Advanced:
        """Take the rows of an epoch and let go, in order, of those below the watermark."""
        fresh = [frame.select(self.columns) for frame in arrived if frame.height]
        taken = take_final(state, fresh, watermark)
        empty = empty_results(self.node.schema, ordered=True)
        results = pl.concat([empty, *taken.final]).sort(self.sort)
        return Advanced(state=taken.waiting, results=results)

    def compact(
        self, deltas: Sequence[pl.DataFrame], watermark: int, whole: bool = False
    ) -> pl.DataFrame:
        """Return one delta with the rows that still wait."""
        return pl.concat([d.filter(pl.col(UNTIL) > watermark) for d in deltas])
