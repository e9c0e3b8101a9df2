"""The grid of a product: cells of left buckets by right buckets (StreamCloud, section IV-A).

A left row goes to all cells of its row of the grid, a right row to all cells of its column. Law:
any two rows meet in exactly one cell, and a cell has exactly one owner, so a pair is compared once.

State is stored once, not by cell: in buckets for the rows of the grid and then for its columns. An
instance holds all that its cells need, so instances hold some of it several times.
"""

from __future__ import annotations

from collections.abc import Sequence
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

    def stored_for(self, cells: BucketSet, ways: Sequence[str], buckets: int) -> BucketSet:
        """Return the buckets in which the state that some cells need is stored.

        Args:
            cells: The cells.
            ways: How the rows of each input go on the grid (`penstock.query.nodes.Node.grid`).
            buckets: How many buckets there are.

        >>> Grid(rows=2, columns=2).stored_for(BucketSet.of([1]), ("row", "column"), 4).ranges
        ((0, 1), (3, 4))
        """
        if not cells:
            return BucketSet()
        if tuple(ways) != ("row", "column"):  # a row may be needed wherever it is stored
            return BucketSet.of({b % buckets for b in range(self.rows + self.columns)})
        columns = [(self.rows + column) % buckets for column in self.columns_of(cells)]
        return BucketSet.of([*self.rows_of(cells), *columns])


def bytes_held(
    owners: BucketMap, bucket_bytes: Sequence[float], ways: Sequence[str] = ()
) -> list[float]:
    """Return how much state each instance holds.

    Args:
        owners: Who owns each bucket, or each cell of a grid.
        bucket_bytes: How much is stored in each bucket.
        ways: On a grid, how the rows of each input go there.

    >>> bytes_held(BucketMap.even(4, 2), [1, 2, 3, 4])
    [3, 7]
    >>> cells = Grid(rows=2, columns=2).owners(2)  # each owns a column, and so needs both rows
    >>> bytes_held(cells, [1, 2, 3, 4], ("row", "column"))
    [6, 7]
    """
    grid = Grid.of(len(bucket_bytes))
    held = []
    for instance in range(owners.instances):
        mine = owners.owned_by(instance)
        stored = grid.stored_for(mine, ways, len(bucket_bytes)) if ways else mine
        held.append(sum(bucket_bytes[bucket] for bucket in stored))
    return held
