"""By key: rows go to the owner of their key's bucket.

Law: rows of one key all go to one instance.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from penstock.operators.windows.spans import buckets_of
from penstock.plan.buckets import BucketMap, BucketSet
from penstock.plan.tails import Lineage

_TARGET = "__target"


@dataclass(frozen=True, slots=True, kw_only=True)
class ByKey:
    """Rows by the owners of their keys' buckets.

    >>> route = ByKey(keys=("k",), owners=BucketMap.even(1024, 2))
    >>> [part["k"].to_list() for part in route.split(pl.DataFrame({"k": ["a", "b", "a"]}))]
    [[], ['a', 'b', 'a']]
    """

    keys: tuple[str, ...]
    owners: BucketMap

    @property
    def bucket_keys(self) -> tuple[str, ...] | None:
        """The columns that a row's bucket is made of."""
        return self.keys

    def split(self, rows: pl.DataFrame) -> list[pl.DataFrame]:
        """Return the rows of each instance, in the order in which they are."""
        if self.owners.instances == 1:
            return [rows]
        owner = pl.Series(self.owners.owners, dtype=pl.Int32)
        bucket = buckets_of(rows, self.keys, len(self.owners.owners))
        targeted = rows.with_columns(owner.gather(bucket).alias(_TARGET))
        parts = targeted.partition_by(_TARGET, as_dict=True, include_key=False)
        return [parts.get((i,), rows.clear()) for i in range(self.owners.instances)]

    def rows_for(self, rows: pl.DataFrame, lineage: Lineage, buckets: BucketSet) -> pl.DataFrame:
        """Return the rows of some buckets."""
        bucket = buckets_of(rows, self.keys, len(self.owners.owners))
        return rows.filter(bucket.is_in(list(buckets)))
