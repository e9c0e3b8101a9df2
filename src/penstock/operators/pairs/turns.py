"""Turns: rows of both sides wait until they are final, and then have their turn in stream order.

Law: rows have their turn by event time, source, position; at the same place left rows come before
right ones, and rows of one side by their columns from left to right. Rows that wait cost nothing in
the epochs between.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from penstock.base.columns import ORDER, TIME
from penstock.operators.kernel import FOREVER, SIDE, UNTIL
from penstock.operators.pairs.results import StateRows
from penstock.operators.stores.waiting import Waiting, take_final
from penstock.query.joins import Join, Pairing


class Turns:
    """Puts the rows of a pairing into stream order."""

    def __init__(self, node: Pairing, rows: StateRows) -> None:
        """Prepare the columns by which rows at the same place are told apart."""
        self.rows = rows
        self.ties = [_ties(node, side) for side in range(len(node.inputs))]

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return arrived rows as they are kept; how long they are needed, no watermark tells."""
        return self.rows.delta(arrived, pl.lit(FOREVER))

    def split(
        self, deltas: Sequence[pl.DataFrame], watermark: int
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the rows of deltas that have had their turn, in order, and those that wait."""
        rows = pl.concat([self._empty(), *[delta.drop(UNTIL) for delta in deltas]])
        had = rows.filter(pl.col(TIME) < watermark)
        return self._in_order([had]), rows.filter(pl.col(TIME) >= watermark)

    def take(
        self, waiting: Waiting, arrived: Sequence[pl.DataFrame], watermark: int
    ) -> tuple[pl.DataFrame, Waiting]:
        """Return the rows whose turn has come, in order, and those that wait on."""
        fresh = [self.rows.whole(frame) for frame in arrived if frame.height]
        taken = take_final(waiting, fresh, watermark)
        return self._in_order(taken.final), taken.waiting

    def _in_order(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        rows = pl.concat([self._empty(), *frames])
        sides = [
            rows.filter(pl.col(SIDE) == side).sort(*ORDER, *ties)
            for side, ties in enumerate(self.ties)
        ]
        merged = pl.concat(sides, rechunk=True)
        return merged if len(sides) == 1 else merged.sort(*ORDER, SIDE, maintain_order=True)

    def _empty(self) -> pl.DataFrame:
        return pl.DataFrame(schema=self.rows.schema)


def _ties(node: Pairing, side: int) -> list[str]:
    """Return the columns of state rows that tell apart rows of a side at the same place."""
    schema, renamed = node.inputs[side].schema, dict(node.renamed)
    if isinstance(node, Join) and node.shared:
        renamed |= {key: key for key in node.right_on}
    return [
        name if side == 0 else renamed[name]
        for name, dtype in schema.items()
        if not dtype.is_nested()
    ]
