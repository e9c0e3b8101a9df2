"""Spans: which windows of an operator's buckets an instance writes, while others write the rest.

Law: the spans of the lineages of a bucket share no window, and together they have all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from penstock.base.hashing import BUCKET, bucket_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Windows by their start.

    Attributes:
        since_us: For some buckets, the start of the first window that is written.
        before_us: The start from which on windows are not written; None if all are.
        buckets: How many buckets there are.
    """

    since_us: Mapping[int, int]
    before_us: int | None
    buckets: int

    def select_written(
        self, rows: pl.DataFrame, start_us: pl.Expr, keys: Sequence[str]
    ) -> pl.DataFrame:
        """Return the rows, of any windows, whose windows are written here.

        >>> rows = pl.DataFrame({"start": [0, 10, 20]})
        >>> span = Span(since_us={0: 10}, before_us=20, buckets=4)
        >>> span.select_written(rows, pl.col("start"), ())
        shape: (1, 1)
        ┌───────┐
        │ start │
        │ ---   │
        │ i64   │
        ╞═══════╡
        │ 10    │
        └───────┘
        """
        if self.before_us is not None:
            rows = rows.filter(start_us < self.before_us)
        if self.since_us and rows.height:
            rows = rows.filter(start_us >= self._since(rows, keys))
        return rows

    def _since(self, rows: pl.DataFrame, keys: Sequence[str]) -> pl.Series:
        return first_of(buckets_of(rows, keys, self.buckets), self.since_us, self.buckets)


_ALWAYS = -(1 << 63)


def buckets_of(rows: pl.DataFrame, keys: Sequence[str], buckets: int) -> pl.Series:
    """Return the bucket of each row.

    >>> buckets_of(pl.DataFrame({"k": ["a", "b"]}), (), 8).to_list()
    [0, 0]
    """
    found = rows.select(bucket_of(keys, buckets, rows.schema))[BUCKET]
    if keys:
        return found
    return pl.repeat(0, rows.height, dtype=pl.Int32, eager=True)  # the one bucket is a literal


def first_of(bucket: pl.Series, since: Mapping[int, int], buckets: int) -> pl.Series:
    """Return for each row the value that its bucket has, or one below all others."""
    table = pl.Series([since.get(b, _ALWAYS) for b in range(buckets)], dtype=pl.Int64)
    return table.gather(bucket)
