"""The grid of a product: cells of left buckets by right buckets (StreamCloud, section IV-A).

A left row goes to all cells of its row of the grid, a right row to all cells of its column. Law:
any two rows meet in exactly one cell, and a cell has exactly one owner, so a pair is compared once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from penstock.plan.buckets import BucketMap, BucketSet

Rectangle = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A grid of ``rows`` by ``columns`` cells; cell (r, c) is bucket ``r * columns + c``."""

    rows: int
    columns: int

    @classmethod
    def of(cls, buckets: int) -> Grid:
        """Return the largest square grid that some buckets make.

        >>> Grid.of(1024)
        Grid(rows=32, columns=32)
        """
        return cls(rows=isqrt(buckets), columns=isqrt(buckets))

    def owners(self, instances: int) -> BucketMap:
        """Return the map that gives each instance a block of cells, as square as can be.

        >>> Grid(rows=2, columns=4).owners(4).owners
        (0, 0, 1, 1, 2, 2, 3, 3)
        """
        high = next(n for n in range(isqrt(instances), 0, -1) if instances % n == 0)
        wide = instances // high
        owners = tuple(
            (row * high // self.rows) * wide + column * wide // self.columns
            for row in range(self.rows)
            for column in range(self.columns)
        )
        return BucketMap(owners=owners, instances=instances)

    def rows_of(self, cells: BucketSet) -> BucketSet:
        """Return the rows in which there are some of the cells."""
        return BucketSet.of(cell // self.columns for cell in cells)

    def columns_of(self, cells: BucketSet) -> BucketSet:
        """Return the columns in which there are some of the cells."""
        return BucketSet.of(cell % self.columns for cell in cells)

    def rectangles(self, cells: BucketSet) -> list[Rectangle]:
        """Return disjoint rectangles, as rows and columns, that make up the cells.

        >>> Grid(rows=2, columns=2).rectangles(BucketSet.of([0, 1, 3]))
        [((0,), (0, 1)), ((1,), (1,))]
        """
        columns: dict[int, list[int]] = {}
        for cell in cells:
            columns.setdefault(cell // self.columns, []).append(cell % self.columns)
        alike: dict[tuple[int, ...], list[int]] = {}
        for row, found in columns.items():
            alike.setdefault(tuple(found), []).append(row)
        return [(tuple(rows), found) for found, rows in alike.items()]
