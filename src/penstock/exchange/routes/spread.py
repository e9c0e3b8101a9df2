"""Spread: rows for operators that do not care which instance they run on.

Laws: every row goes to exactly one instance; each instance gets a run of neighbouring rows, as long
as its weight says, to within one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

import polars as pl

from penstock.plan.buckets import BucketSet
from penstock.plan.tails import Lineage


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Rows in runs, one for each instance, in proportion to weights; weight 0 gets none.

    >>> rows = pl.DataFrame({"x": range(5)})
    >>> [part.height for part in Spread(weights=(1, 1)).split(rows)]
    [2, 3]
    >>> [part["x"].to_list() for part in Spread(weights=(3, 0, 2)).split(rows)]
    [[0, 1, 2], [], [3, 4]]
    """

    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        total = sum(self.weights)
        if not 0 < total < float("inf") or not min(self.weights) >= 0:
            raise ValueError(f"weights are 0 or more and some are more; weights={self.weights!r}")

    @property
    def bucket_keys(self) -> tuple[str, ...] | None:
        """None: rows have no bucket."""
        return None

    def split(self, rows: pl.DataFrame) -> list[pl.DataFrame]:
        """Return the rows of each instance, in the order in which they are."""
        ends = list(accumulate(self.weights, initial=0.0))
        cuts = [self._cut(rows.height, end, ends[-1]) for end in ends]
        return [rows[low:high] for low, high in pairwise(cuts)]

    @staticmethod
    def _cut(height: int, end: float, total: float) -> int:
        # Where weights end, rows end too: a product of floats may fall short of the last row.
        return height if end == total else int(height * end // total)

    def rows_for(self, rows: pl.DataFrame, lineage: Lineage, buckets: BucketSet) -> pl.DataFrame:
        """Return the rows as they are: all that came are the instance's."""
        return rows
