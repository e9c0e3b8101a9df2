"""The order buffer: rows wait until the watermark says that no earlier row can come.

Laws: rows leave in stream order (event time, source, position, then their columns from left to
right), within an epoch and across epochs; rows that wait cost nothing in the epochs between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from penstock.operators.kernel import UNTIL, Advanced, empty_results
from penstock.operators.runs import Run, add_run, take_below
from penstock.query.nodes import ORDER, TIME, Sink


@dataclass(frozen=True, slots=True)
class Waiting:
    """Rows at or above the watermark, by event time."""

    runs: tuple[Run, ...] = ()


class OrderKernel:
    """Puts the rows of an ordered sink into stream order."""

    def __init__(self, node: Sink) -> None:
        """Prepare the sort for the columns of a sink."""
        self.node = node
        self.columns = [*node.schema, *ORDER]
        self.sort = [*ORDER, *[c for c, dtype in node.schema.items() if not dtype.is_nested()]]

    def prepare(self, rows: pl.LazyFrame, port: int = 0) -> pl.LazyFrame:
        """Return the columns of the sink, and the order."""
        return rows.select(self.columns)

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they are."""
        return prepared

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> Waiting:
        """Return the rows that still wait at a watermark."""
        rows = [d.filter(pl.col(UNTIL) > watermark).drop(UNTIL) for d in deltas]
        found = [frame for frame in rows if frame.height]
        return Waiting((_by_time(found),) if found else ())

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of an epoch with the watermark at which they have left."""
        fresh = [frame.select(self.columns) for frame in arrived if frame.height]
        if not fresh:
            return pl.DataFrame()
        return pl.concat(fresh).with_columns((pl.col(TIME) + 1).alias(UNTIL))

    def advance(self, state: Waiting, arrived: Sequence[pl.DataFrame], watermark: int) -> Advanced:
        """Take the rows of an epoch and let go, in order, of those below the watermark."""
        fresh = [frame.select(self.columns) for frame in arrived if frame.height]
        ready, runs = take_below(state.runs, TIME, watermark)
        ready += [frame.filter(pl.col(TIME) < watermark) for frame in fresh]
        waiting = [frame.filter(pl.col(TIME) >= watermark) for frame in fresh]
        if any(frame.height for frame in waiting):
            runs = add_run(runs, _by_time(waiting), _by_time)
        empty = empty_results(self.node.schema, ordered=True)
        return Advanced(state=Waiting(runs), results=pl.concat([empty, *ready]).sort(self.sort))

    def compact(
        self, deltas: Sequence[pl.DataFrame], watermark: int, whole: bool = False
    ) -> pl.DataFrame:
        """Return one delta with the rows that still wait."""
        return pl.concat([d.filter(pl.col(UNTIL) > watermark) for d in deltas])


def _by_time(frames: Sequence[pl.DataFrame]) -> Run:
    return Run.of(pl.concat(frames, rechunk=True), TIME)
