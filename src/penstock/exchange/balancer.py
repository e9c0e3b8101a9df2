"""Load balancers: which instance of the next subquery gets which rows.

Law: rows with the same key go to the owner of the key's bucket, any two rows for a grid meet at the
owner of exactly one cell, and every instance gets a header in every epoch, with or without rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from penstock.base.hashing import BUCKET, bucket_of
from penstock.plan.buckets import BucketMap
from penstock.plan.grid import Grid

_TARGET = "__target"


def split_by_key(rows: pl.DataFrame, keys: Sequence[str], owners: BucketMap) -> list[pl.DataFrame]:
    """Return the rows of each instance by the owners of their keys' buckets.

    >>> parts = split_by_key(pl.DataFrame({"k": ["a", "b", "a"]}), ["k"], BucketMap.even(1024, 2))
    >>> [part["k"].to_list() for part in parts]
    [[], ['a', 'b', 'a']]
    """
    if owners.instances == 1:
        return [rows]
    owner = pl.Series(owners.owners, dtype=pl.Int32)
    buckets = rows.select(bucket_of(keys, len(owners.owners), rows.schema))[BUCKET]
    if buckets.len() != rows.height:  # no keys: the one bucket is a literal
        buckets = pl.repeat(
            buckets[0] if buckets.len() else 0, rows.height, dtype=pl.Int32, eager=True
        )
    targeted = rows.with_columns(owner.gather(buckets).alias(_TARGET))
    parts = {
        target[0]: part.drop(_TARGET)
        for target, part in targeted.partition_by(_TARGET, as_dict=True).items()
    }
    return [parts.get(i, rows.clear()) for i in range(owners.instances)]


def split_on_grid(
    rows: pl.DataFrame, keys: Sequence[str], way: str, grid: Grid, owners: BucketMap
) -> list[pl.DataFrame]:
    """Return the rows of each instance: those of the rows or columns in which it has cells.

    >>> grid = Grid(rows=2, columns=2)
    >>> numbers = pl.DataFrame({"n": [1, 2, 3, 4]})
    >>> parts = split_on_grid(numbers, ["n"], "row", grid, grid.owners(4))
    >>> [part["n"].to_list() for part in parts]
    [[1, 3], [1, 3], [2, 4], [2, 4]]
    """
    if owners.instances == 1:
        return [rows]
    cells = [owners.owned_by(instance) for instance in range(owners.instances)]
    if way == "all":
        return [rows if mine else rows.clear() for mine in cells]
    row = rows.select(bucket_of(keys, grid.rows, rows.schema))[BUCKET]
    column = rows.select(bucket_of(keys, grid.columns, rows.schema))[BUCKET]
    parts = []
    for mine in cells:
        in_row, in_column = (
            row.is_in(list(grid.rows_of(mine))),
            column.is_in(list(grid.columns_of(mine))),
        )
        wanted = {"row": in_row, "column": in_column, "cross": in_row | in_column}[way]
        parts.append(rows.filter(wanted))
    return parts


def spread(rows: pl.DataFrame, instances: int) -> list[pl.DataFrame]:
    """Return the rows in equal runs, for operators that do not care which instance they run on.

    >>> [part.height for part in spread(pl.DataFrame({"x": range(5)}), 2)]
    [2, 3]
    """
    cuts = [rows.height * i // instances for i in range(instances + 1)]
    return [rows[cuts[i] : cuts[i + 1]] for i in range(instances)]
