"""Rows by lineage: who gets a row while some buckets are on their way.

Law: a row goes to every instance that has a window with it, once, and there to every lineage with
such a window; so no window misses a row and none has it twice.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from penstock.operators.stores.chunks import PANE
from penstock.operators.windows.panes import Panes
from penstock.operators.windows.spans import buckets_of, first_of
from penstock.plan.tails import Lineage

_ROW, _TARGET = "__row", "__target"


def split_by_lineage(
    rows: pl.DataFrame,
    keys: Sequence[str],
    lineages: Sequence[Lineage],
    *,
    instances: int,
    panes: Panes,
) -> list[pl.DataFrame]:
    """Return the rows that each instance gets, each row at most once.

    >>> rows = pl.DataFrame({PANE: [0, 1, 2, 3]})
    >>> panes = Panes(width_us=10, per_window=2, step=1)
    >>> main = Lineage(name="a", owners=(1,), since_us={0: 20})
    >>> tail = Lineage(name="a~1", owners=(0,), since_us={}, before_us=20, until_us=30)
    >>> parts = split_by_lineage(rows, (), [main, tail], instances=2, panes=panes)
    >>> [part[PANE].to_list() for part in parts]
    [[0, 1, 2], [2, 3]]
    """
    if instances == 1:
        return [rows]
    bucket = buckets_of(rows, keys, len(lineages[0].owners))
    number = pl.int_range(rows.height, dtype=pl.UInt32, eager=True).alias(_ROW)
    pairs = [
        pl.DataFrame([number, _owner(lineage, rows, bucket, panes)]).drop_nulls()
        for lineage in lineages
    ]
    by_target = pl.concat(pairs).unique().sort(_ROW).partition_by(_TARGET, as_dict=True)
    return [
        rows[by_target[(instance,)][_ROW]] if (instance,) in by_target else rows.clear()
        for instance in range(instances)
    ]


def rows_of_lineage(
    rows: pl.DataFrame, keys: Sequence[str], lineage: Lineage, *, panes: Panes
) -> pl.DataFrame:
    """Return those of the rows of buckets of a lineage that have a window there."""
    bucket = buckets_of(rows, keys, len(lineage.owners))
    return rows.filter(_owner(lineage, rows, bucket, panes).is_not_null())


def _owner(lineage: Lineage, rows: pl.DataFrame, bucket: pl.Series, panes: Panes) -> pl.Series:
    """Return which instance needs each row for a lineage; null if none does."""
    owner = pl.Series(lineage.owners, dtype=pl.Int32).gather(bucket)
    time = rows.select(panes.start_of(pl.col(PANE))).to_series()
    needed = owner >= 0
    if lineage.until_us is not None:
        needed &= time < lineage.until_us
    if lineage.since_us:
        needed &= time >= first_of(bucket, lineage.since_us, len(lineage.owners))
    return owner.zip_with(needed, pl.Series([None], dtype=pl.Int32)).alias(_TARGET)
