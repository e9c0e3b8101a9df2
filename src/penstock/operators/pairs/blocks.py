"""Comparing many rows with many: blocks of rows against blocks of rows.

Where rows are compared with long runs of neighbours, Polars crosses two small frames that have only
the columns of the predicate and looks at each pair once; the rest is fetched for the pairs that
pass. Laws: the pairs in the ranges are compared, each once, and no other is a result; a block has
at most `ROWS` by `ROWS` pairs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.operators.pairs import results as pairing
from penstock.operators.pairs.results import Found, Pairs, Places, ranges_in_blocks

ROWS = 4096
"""How many rows of a side are in a block at most."""
FEW = 512
"""Rows that are compared with fewer others than this, on average, are paired one by one."""
_ASKING, _OFFERED = "__asking", "__offered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """Which rows to compare: each of one side with a range of the other.

    Attributes:
        side: The side that asks; 0 is left.
        asking: The places of the rows that ask.
        offered: The places of the rows that they are compared with.
        low: Where in ``offered`` the range of each asking row begins; it never falls.
        high: Where it ends; it never falls.
        apart: Whether both sides are one frame, whose rows are not compared with themselves.
    """

    side: int
    asking: Places
    offered: Places
    low: Places
    high: Places
    apart: bool = False

    @property
    def pairs(self) -> int:
        """How many pairs there are."""
        return int((self.high - self.low).sum())


def compare(
    pairs: Pairs, found: Found, left: pl.DataFrame, right: pl.DataFrame, ranges: Ranges
) -> None:
    """Add the results of the pairs that lie in some ranges of two frames."""
    if pairs.careful or ranges.pairs < FEW * ranges.asking.size:
        for i, j in ranges_in_blocks(ranges.low, ranges.high):
            pairs.add(found, left, right, *_sides(ranges, i, j))
        return
    for i, j in _cross(pairs, left, right, ranges):
        li, ri = _sides(ranges, i, j)
        for start in range(0, li.size, pairing.BLOCK):
            part = slice(start, start + pairing.BLOCK)
            found.add(pairs.taken(left, right, li[part], ri[part]))


def _sides(ranges: Ranges, i: Places, j: Places) -> tuple[Places, Places]:
    """Return the places of pairs in the left and in the right frame."""
    asking, offered = ranges.asking[i], ranges.offered[j]
    if ranges.apart:
        apart = asking != offered
        asking, offered = asking[apart], offered[apart]
    return (asking, offered) if ranges.side == 0 else (offered, asking)


def _cross(
    pairs: Pairs, left: pl.DataFrame, right: pl.DataFrame, ranges: Ranges
) -> Iterator[tuple[Places, Places]]:
    """Yield the pairs that lie in the ranges and for which the predicate is true."""
    assert pairs.where is not None
    frames, side = (left, right), ranges.side
    # As a choice: a filter with two inequalities over a cross join would become another join, which
    # Polars carries out several times as slowly.
    where = pl.when(pairs.where).then(True).otherwise(False)
    asking = _take_compared(pairs, side, frames[side], ranges.asking, _ASKING)
    offered = _take_compared(pairs, 1 - side, frames[1 - side], ranges.offered, _OFFERED)
    # Neighbours have ranges that overlap but for their ends; short chunks waste less on the ends.
    rows = min(ROWS, max(ranges.pairs // (4 * ranges.asking.size), 1))
    for start in range(0, ranges.asking.size, rows):
        stop = min(start + rows, ranges.asking.size)
        first, last = int(ranges.low[start]), int(ranges.high[stop - 1])
        for begin in range(first, last, ROWS):
            end = min(begin + ROWS, last)
            block = asking[start:stop].lazy().join(offered[begin:end].lazy(), how="cross")
            passed = block.filter(where).select(_ASKING, _OFFERED).collect()
            i, j = passed[_ASKING].to_numpy(), passed[_OFFERED].to_numpy()
            if ranges.low[stop - 1] > begin or ranges.high[start] < end:
                inside = (ranges.low[i] <= j) & (j < ranges.high[i])
                i, j = i[inside], j[inside]
            yield i, j


def _take_compared(
    pairs: Pairs, side: int, rows: pl.DataFrame, places: Places, index: str
) -> pl.DataFrame:
    columns = [pl.col(column).alias(name) for name, column in pairs.compared[side].items()]
    if not columns:
        return pl.DataFrame({index: np.arange(places.size)})
    found = rows.select(columns)[places]
    return found.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(index))
