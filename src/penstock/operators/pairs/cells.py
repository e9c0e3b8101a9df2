"""The cells of a grid that an instance owns: which of its rows it compares with which.

Law: of two rows that both come to several instances, exactly one instance compares them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from penstock.base.hashing import BUCKET, bucket_of
from penstock.operators.pairs.results import Places
from penstock.plan.buckets import BucketSet
from penstock.plan.grid import Grid

PLACES = ("__row", "__column")
"""The row and the column of the grid in which a row is, as a left row and as a right one."""


class Cells:
    """Some cells of a grid, as rectangles of rows and columns.

    ``keys`` has for each side the columns that a row's place on the grid depends on.
    """

    def __init__(self, grid: Grid, mine: BucketSet | None, keys: Sequence[Sequence[str]]) -> None:
        """Find the rectangles of the cells; None owns all."""
        self.grid, self.keys = grid, keys
        whole = mine is None or len(list(mine)) == grid.rows * grid.columns
        self.rectangles = None if mine is None or whole else grid.rectangles(mine)

    def placed(self, rows: pl.DataFrame, sides: Sequence[int]) -> pl.DataFrame:
        """Return rows with their places on the grid, for each side that they are on."""
        if self.rectangles is None:
            return rows
        sizes = (self.grid.rows, self.grid.columns)
        for side in sides:
            bucket = bucket_of(self.keys[side], sizes[side], rows.schema)
            rows = rows.with_columns(rows.select(bucket)[BUCKET].alias(PLACES[side]))
        return rows

    def parts(self, left: pl.DataFrame, right: pl.DataFrame) -> Iterator[tuple[Places, Places]]:
        """Yield the places of left and of right rows that are compared with one another."""
        if self.rectangles is None:
            yield np.arange(left.height), np.arange(right.height)
            return
        for rows, columns in self.rectangles:
            yield (
                _among(left[PLACES[0]], rows, self.grid.rows),
                _among(right[PLACES[1]], columns, self.grid.columns),
            )


def _among(buckets: pl.Series, wanted: Sequence[int], size: int) -> Places:
    mine = np.zeros(size, dtype=np.bool_)
    mine[list(wanted)] = True
    return np.flatnonzero(mine[buckets.to_numpy()])
