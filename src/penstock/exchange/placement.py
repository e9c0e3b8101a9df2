"""Placement: which state rows belong to which bucket, and which of them an instance has.

An operator with keys reads and writes the rows of the buckets that it owns. On a grid several
instances work with the same row, and one of them writes it: the owner of the first cell of the
row's bucket. Law: every state row is written by exactly one instance, and read by all that need it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from penstock.base.hashing import BUCKET, bucket_of
from penstock.operators.kernel import SIDE
from penstock.plan.buckets import BucketSet
from penstock.plan.grid import Grid
from penstock.query.nodes import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The state rows of one instance of an operator.

    ``keys`` are the columns that a row's bucket depends on, one tuple for each side of a grid.
    ``cells`` are the cells of a grid that the instance owns: instances that read the same buckets
    may still have different rows.
    """

    keys: tuple[tuple[str, ...], ...]
    buckets: int
    reads: BucketSet
    writes: BucketSet
    grid: Grid | None = None
    cells: BucketSet = field(default_factory=BucketSet)

    @property
    def shared(self) -> bool:
        """Whether other instances write rows that this one reads."""
        return self.reads != self.writes

    def bucket(self, rows: pl.DataFrame) -> pl.Expr:
        """Return the expression for the bucket of state rows."""
        if self.grid is None:
            return bucket_of(self.keys[0], self.buckets, rows.schema)
        left = bucket_of(self.keys[0], self.grid.rows, rows.schema)
        right = bucket_of(self.keys[-1], self.grid.columns, rows.schema) + self.grid.rows
        stored = pl.when(pl.col(SIDE) == 0).then(left).otherwise(right) % self.buckets
        return stored.cast(pl.Int32).alias(BUCKET)

    def select_written(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that this instance has to write."""
        if not self.shared or rows.is_empty():
            return rows
        return rows.filter(self.bucket(rows).is_in(list(self.writes)))


def placement_of(node: Node, buckets: int, mine: BucketSet) -> Placement:
    """Return which state rows of an operator belong to some buckets, or to cells of a grid."""
    if not node.ways:
        keyed = (tuple(node.keys(0) or ()),)
        return Placement(keys=keyed, buckets=buckets, reads=mine, writes=mine)
    grid = Grid.of(buckets)
    keys = tuple(node.keys(port) or () for port in range(len(node.inputs)))
    rows = [r for r in range(grid.rows) if r * grid.columns in mine]
    columns = [(grid.rows + c) % buckets for c in range(grid.columns) if c in mine]
    return Placement(
        keys=keys,
        buckets=buckets,
        reads=grid.stored_for(mine, node.ways, buckets),
        writes=BucketSet.of([*rows, *columns]),
        grid=grid,
        cells=mine,
    )
