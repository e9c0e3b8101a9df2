"""On a grid: rows of a product go to the cells in which they meet the others.

Law: any two rows of different sides meet at the owner of exactly one cell.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from penstock.operators.windows.spans import buckets_of
from penstock.plan.buckets import BucketMap, BucketSet
from penstock.plan.grid import Grid
from penstock.plan.tails import Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class OnGrid:
    """Rows by the owners of the cells of their row, their column or both.

    ``way`` says which (`penstock.query.nodes.Node.grid`).

    >>> grid = Grid(rows=2, columns=2)
    >>> route = OnGrid(keys=("n",), way="row", grid=grid, owners=grid.owners(4))
    >>> [part["n"].to_list() for part in route.split(pl.DataFrame({"n": [1, 2, 3, 4]}))]
    [[1, 3], [1, 3], [2, 4], [2, 4]]
    """

    keys: tuple[str, ...]
    way: str
    grid: Grid
    owners: BucketMap

    @property
    def bucket_keys(self) -> tuple[str, ...] | None:
        """None: a row goes to many cells."""
        return None

    def split(self, rows: pl.DataFrame) -> list[pl.DataFrame]:
        """Return the rows of each instance: those of the rows or columns in which it has cells."""
        if self.owners.instances == 1:
            return [rows]
        cells = [self.owners.owned_by(instance) for instance in range(self.owners.instances)]
        if self.way == "all":
            return [rows if mine else rows.clear() for mine in cells]
        row = buckets_of(rows, self.keys, self.grid.rows)
        column = buckets_of(rows, self.keys, self.grid.columns)
        return [rows.filter(self._mark_wanted(row, column, mine)) for mine in cells]

    def _mark_wanted(self, row: pl.Series, column: pl.Series, mine: BucketSet) -> pl.Series:
        in_row = row.is_in(list(self.grid.rows_of(mine)))
        in_column = column.is_in(list(self.grid.columns_of(mine)))
        return {"row": in_row, "column": in_column, "cross": in_row | in_column}[self.way]

    def rows_for(self, rows: pl.DataFrame, lineage: Lineage, buckets: BucketSet) -> pl.DataFrame:
        """Return the rows as they are: the cells of an instance stand at one mark."""
        return rows
