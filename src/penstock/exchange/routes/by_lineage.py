"""By lineage: who gets a row while some buckets are on their way.

Law: a row goes to every instance that has a window with it, once, and there to every lineage with
such a window; so no window misses a row and none has it twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from penstock.operators.stores.chunks import PANE
from penstock.operators.windows.panes import Panes
from penstock.operators.windows.spans import buckets_of, first_of
from penstock.plan.buckets import BucketSet
from penstock.plan.tails import Lineage

_ROW, _TARGET = "__row", "__target"


@dataclass(frozen=True, slots=True, kw_only=True)
class ByLineage:
    """Rows by the lineages of their keys' buckets that have a window with them.

    >>> main = Lineage(name="a", owners=(1,), since_us={0: 20})
    >>> tail = Lineage(name="a~1", owners=(0,), since_us={}, before_us=20, until_us=30)
    >>> panes = Panes(width_us=10, per_window=2, step=1)
    >>> route = ByLineage(keys=(), lineages=(main, tail), instances=2, panes=panes)
    >>> [part[PANE].to_list() for part in route.split(pl.DataFrame({PANE: [0, 1, 2, 3]}))]
    [[0, 1, 2], [2, 3]]
    """

    keys: tuple[str, ...]
    lineages: tuple[Lineage, ...]
    instances: int
    panes: Panes

    @property
    def bucket_keys(self) -> tuple[str, ...] | None:
        """The columns that a row's bucket is made of."""
        return self.keys

    def split(self, rows: pl.DataFrame) -> list[pl.DataFrame]:
        """Return the rows that each instance gets, each row at most once, in their order."""
        if self.instances == 1:
            return [rows]
        bucket = self._buckets(rows)
        number = pl.int_range(rows.height, dtype=pl.UInt32, eager=True).alias(_ROW)
        pairs = [
            pl.DataFrame([number, self._owner(lineage, rows, bucket)]).drop_nulls()
            for lineage in self.lineages
        ]
        by_target = pl.concat(pairs).unique().sort(_ROW).partition_by(_TARGET, as_dict=True)
        return [
            rows[by_target[(instance,)][_ROW]] if (instance,) in by_target else rows.clear()
            for instance in range(self.instances)
        ]

    def rows_for(self, rows: pl.DataFrame, lineage: Lineage, buckets: BucketSet) -> pl.DataFrame:
        """Return those of the rows of some buckets that have a window in a lineage."""
        bucket = self._buckets(rows)
        needed = self._owner(lineage, rows, bucket).is_not_null()
        return rows.filter(bucket.is_in(list(buckets)) & needed)

    def _buckets(self, rows: pl.DataFrame) -> pl.Series:
        return buckets_of(rows, self.keys, len(self.lineages[0].owners))

    def _owner(self, lineage: Lineage, rows: pl.DataFrame, bucket: pl.Series) -> pl.Series:
        """Return which instance needs each row for a lineage; null if none does."""
        owner = pl.Series(lineage.owners, dtype=pl.Int32).gather(bucket)
        time = rows.select(self.panes.start_of(pl.col(PANE))).to_series()
        needed = owner >= 0
        if lineage.until_us is not None:
            needed &= time < lineage.until_us
        if lineage.since_us:
            needed &= time >= first_of(bucket, lineage.since_us, len(lineage.owners))
        return owner.zip_with(needed, pl.Series([None], dtype=pl.Int32)).alias(_TARGET)
