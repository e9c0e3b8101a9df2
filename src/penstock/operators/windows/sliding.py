"""Partials of windows of equally many rows that overlap, in one look at each row.

Rows are cut into blocks as long as a window. A window is then the end of one block and the
beginning of the next, and for both there are running totals: from the beginning of a block to each
row, and from each row to the end of its block. Laws: a row is looked at once in each direction,
however many windows it is in; nothing is ever subtracted, so a window knows nothing of rows that
are not in it, be they infinite, NaN or so large that they would swallow the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.windows.parts import Parts
from penstock.query.aggregates import Call

Places = npt.NDArray[np.int64]
Values = npt.NDArray[Any]
_NOT_SMALL = (pl.UInt64(), pl.Int128(), pl.UInt128())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blocks:
    """Where rows and windows are in a matrix that has one block in a line.

    Attributes:
        size: How many rows a block and a window have.
        rows: The rows that are in windows.
        cells: The cell of each of them.
        height: How many blocks there are.
        first: The cell of each window's first row.
    """

    size: int
    rows: Places
    cells: Places
    height: int
    first: Places

    @classmethod
    def of(cls, starts: Places, groups: Places, size: int) -> Blocks:
        """Return the blocks of windows.

        Args:
            starts: The place of each window's first row, in order. Windows of one group overlap or
                follow one another without a gap.
            groups: The group of each window.
            size: How many rows a window has.
        """
        heads = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
        begins = starts[heads]
        lengths = starts[np.append(heads[1:], starts.size) - 1] + size - begins
        blocks = -(-lengths // size)
        shifts = (np.cumsum(blocks) - blocks) * size - begins
        before = np.cumsum(lengths) - lengths
        rows = np.arange(int(lengths.sum())) + np.repeat(begins - before, lengths)
        windows = np.diff(np.append(heads, starts.size))
        return cls(
            size=size,
            rows=rows,
            cells=rows + np.repeat(shifts, lengths),
            height=int(blocks.sum()),
            first=starts + np.repeat(shifts, windows),
        )

    def matrix(self, values: pl.Series, nothing: Any) -> Values:
        """Return the values of rows in their cells; nulls and cells without a row are nothing."""
        given = values.fill_null(nothing).to_numpy()
        cells = np.full(self.height * self.size, nothing, dtype=given.dtype)
        cells[self.cells] = given
        return cells.reshape(-1, self.size)

    @property
    def apart(self) -> npt.NDArray[np.bool_]:
        """Whether each window lies in two blocks."""
        return np.asarray(self.first % self.size != 0)

    def right(self, running: Values) -> Values:
        """Return a running total up to the last row of each window."""
        return np.asarray(running.reshape(-1)[self.first + (self.size - 1)])

    def left(self, running: Values) -> Values:
        """Return a total that ran backwards down to the first row of each window."""
        turned = self.first + self.size - 1 - 2 * (self.first % self.size)
        return np.asarray(running.reshape(-1)[turned])

    def total(self, matrix: Values) -> Values:
        """Return the sum of each window."""
        left = self.left(np.cumsum(matrix[:, ::-1], axis=1))
        return np.where(self.apart, left, 0) + self.right(np.cumsum(matrix, axis=1))

    def extreme(self, matrix: Values, pick: np.ufunc) -> Values:
        """Return the least or the greatest value of each window."""
        left = self.left(pick.accumulate(matrix[:, ::-1], axis=1))
        return np.asarray(pick(left, self.right(pick.accumulate(matrix, axis=1))))


def can_slide(call: Call) -> bool:
    """Return whether a call has running totals; if not, each window has to be looked at whole.

    >>> can_slide(Call(function="sum", dtype=pl.Float64())), can_slide(Call(function="distinct"))
    (True, False)
    """
    if call.constant or call.function not in ("min", "max"):
        return call.constant or call.form in _SLIDES
    dtype = call.dtype
    assert dtype is not None
    small = dtype.is_integer() and dtype not in _NOT_SMALL
    return small or dtype.is_float() or dtype.is_temporal() or dtype == pl.Boolean()


def slide(
    rows: pl.DataFrame, blocks: Blocks, calls: Sequence[tuple[int, Call, Parts]]
) -> pl.DataFrame:
    """Return the partial columns of windows.

    Args:
        rows: The rows that are in windows, as ``blocks.rows`` names them, with the arguments.
        blocks: The windows.
        calls: Calls that can slide, with their numbers and parts.
    """
    columns = []
    with np.errstate(all="ignore"):  # infinities and NaN are values like others
        for number, call, parts in calls:
            name = f"__p{number}"
            if call.constant:
                columns.append(pl.select(parts.partial[0].first()).to_series())
            else:
                columns += _SLIDES[call.form](name, call, rows, blocks)
    height = blocks.first.size
    return pl.DataFrame([c if c.len() == height else c.new_from_index(0, height) for c in columns])


def _take_counted(call: Call, rows: pl.DataFrame) -> pl.Series:
    """Return the argument of each row; null where it does not count."""
    assert call.argument is not None
    kept = call.argument if call.keep is None else pl.when(call.keep).then(call.argument)
    return rows.select(kept.alias("_")).to_series()


def _number(name: str, flags: pl.Series, blocks: Blocks) -> pl.Series:
    """Return how many rows of each window have a flag."""
    if flags.all(ignore_nulls=False):
        return pl.Series(name, [blocks.size], dtype=pl.Int64).new_from_index(0, blocks.first.size)
    return pl.Series(name, blocks.total(blocks.matrix(flags.cast(pl.Int64), 0)))


def _len(name: str, call: Call, rows: pl.DataFrame, blocks: Blocks) -> list[pl.Series]:
    return [pl.Series(name, [blocks.size], dtype=pl.Int64)]


def _size(name: str, call: Call, rows: pl.DataFrame, blocks: Blocks) -> list[pl.Series]:
    if call.keep is None:
        return _len(name, call, rows, blocks)
    return [_number(name, rows.select(call.keep).to_series(), blocks)]


def _count(name: str, call: Call, rows: pl.DataFrame, blocks: Blocks) -> list[pl.Series]:
    return [_number(name, _take_counted(call, rows).is_not_null(), blocks)]


def _sum(name: str, call: Call, rows: pl.DataFrame, blocks: Blocks) -> list[pl.Series]:
    dtype = call.dtype
    assert dtype is not None
    whole = dtype.is_integer() or dtype == pl.Boolean()
    values = _take_counted(call, rows).cast(pl.Int64 if whole else pl.Float64)
    return [pl.Series(name, blocks.total(blocks.matrix(values, 0)))]


def _long_sum(name: str, call: Call, rows: pl.DataFrame, blocks: Blocks) -> list[pl.Series]:
    """The sum as it wraps, and that of the upper halves, as in `penstock.query.sums`."""
    matrix = blocks.matrix(_take_counted(call, rows).to_physical(), 0)
    high = blocks.total(matrix >> 32)
    return [pl.Series(f"{name}_low", blocks.total(matrix)), pl.Series(f"{name}_high", high)]


def _mean(name: str, call: Call, rows: pl.DataFrame, blocks: Blocks) -> list[pl.Series]:
    return [*_sum(f"{name}_sum", call, rows, blocks), *_count(f"{name}_n", call, rows, blocks)]


def _long_mean(name: str, call: Call, rows: pl.DataFrame, blocks: Blocks) -> list[pl.Series]:
    return [*_long_sum(name, call, rows, blocks), *_count(f"{name}_n", call, rows, blocks)]


def _extreme(name: str, call: Call, rows: pl.DataFrame, blocks: Blocks) -> list[pl.Series]:
    """Least or greatest; NaN is the greatest number."""
    dtype = call.dtype
    assert dtype is not None
    least = call.function == "min"
    pick = np.minimum if least else np.maximum
    values = _take_counted(call, rows)
    numbers = values.to_physical()
    plain = numbers.dtype
    known = _number("known", values.is_not_null(), blocks) > 0
    if dtype.is_float():
        numbers = numbers.fill_nan(None) if least else numbers
        matrix = blocks.matrix(numbers, float("inf" if least else "-inf"))
        some = _number("some", numbers.is_not_null(), blocks) > 0
    else:
        matrix = blocks.matrix(numbers.cast(pl.Int64), (1 << 63) - 1 if least else -(1 << 63))
        some = known
    found = pl.Series(name, blocks.extreme(matrix, pick))
    nothing = pl.when(known).then(float("nan")) if dtype.is_float() else pl.lit(None)
    chosen = pl.select(pl.when(some).then(found).otherwise(nothing).alias(name)).to_series()
    return [chosen.cast(plain).cast(dtype)]


def _variance(name: str, call: Call, rows: pl.DataFrame, blocks: Blocks) -> list[pl.Series]:
    """Count, mean and sum of squared distances of both parts, put together as in `functions`."""
    values = _take_counted(call, rows).cast(pl.Float64)
    matrix = blocks.matrix(values, 0.0)
    known = blocks.matrix(values.is_not_null().cast(pl.Int64), 0)
    right = [blocks.right(part) for part in _moments(matrix, known)]
    left = [blocks.left(part) for part in _moments(matrix[:, ::-1], known[:, ::-1])]
    parts = np.stack([right, [np.where(blocks.apart, part, 0) for part in left]])
    n, m, s = parts[:, 0], parts[:, 1], parts[:, 2]
    mean = (n * m).sum(axis=0) / n.sum(axis=0)
    squares = (s + n * (m - mean) ** 2).sum(axis=0)
    return [
        pl.Series(f"{name}_n", n.sum(axis=0).astype(np.int64)),
        pl.Series(f"{name}_mean", mean),
        pl.Series(f"{name}_m2", np.where(np.isfinite(mean), squares, np.nan)),
    ]


def _moments(matrix: Values, known: Values) -> tuple[Values, Values, Values]:
    """Return count, mean and sum of squared distances from the mean, running along lines."""
    count = np.cumsum(known, axis=1)
    mean = np.cumsum(matrix, axis=1) / np.maximum(count, 1)
    steps = np.zeros_like(matrix)
    further = (matrix[:, 1:] - mean[:, :-1]) ** 2 * (count[:, :-1] / np.maximum(count[:, 1:], 1))
    steps[:, 1:] = np.where((known[:, 1:] > 0) & (count[:, :-1] > 0), further, 0)
    return count, mean, np.cumsum(steps, axis=1)


def _edge(name: str, call: Call, rows: pl.DataFrame, blocks: Blocks) -> list[pl.Series]:
    """First or last; the rows are in order."""
    place = np.empty(blocks.height * blocks.size, dtype=np.int64)
    place[blocks.cells] = np.arange(blocks.rows.size)
    at = blocks.first if call.function == "first" else blocks.first + (blocks.size - 1)
    return [_take_counted(call, rows).gather(place[at]).alias(name)]


_SLIDES: dict[str, Callable[[str, Call, pl.DataFrame, Blocks], list[pl.Series]]] = {
    "len": _len,
    "size": _size,
    "count": _count,
    "sum": _sum,
    "mean": _mean,
    "long sum": _long_sum,
    "long mean": _long_mean,
    "min": _extreme,
    "max": _extreme,
    "float max": _extreme,
    "var": _variance,
    "std": _variance,
    "first": _edge,
    "last": _edge,
}
