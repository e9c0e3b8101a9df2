"""Routes: for every edge of an epoch, one value that says who gets which rows.

The kinds are in `penstock.exchange.routes`, one file each. Laws: a row goes to every instance that
needs it, once; a task asks the route of an edge and nothing else.
"""

from __future__ import annotations

from typing import Protocol

import polars as pl

from penstock.plan.buckets import BucketSet
from penstock.plan.tails import Lineage


class Route(Protocol):
    """Who gets which rows of an edge: a value of the plan, which every task gets."""

    @property
    def bucket_keys(self) -> tuple[str, ...] | None:
        """The columns that a row's bucket is made of; None where a row has no single bucket."""
        ...

    def split(self, rows: pl.DataFrame) -> list[pl.DataFrame]:
        """Return the rows of each instance, in the order in which they are."""
        ...

    def rows_for(self, rows: pl.DataFrame, lineage: Lineage, buckets: BucketSet) -> pl.DataFrame:
        """Return those of the rows that came to an instance that some of its buckets need.

        Args:
            rows: Rows that were sent to the instance, or handed over to it in memory.
            lineage: The lineage that the buckets belong to.
            buckets: Buckets of the instance that stand at one mark.
        """
        ...
