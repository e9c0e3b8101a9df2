"""Random draws that depend on a row's number, a seed and a column, and on nothing else.

Law: the same row number gives the same draw on any machine and in any cut of the rows, because
every draw is a hash (SplitMix64, which is stable and has no state) and all that follows is whole
numbers or the four operations on doubles.
"""

from datetime import UTC, datetime
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import polars as pl

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

SECOND = 1_000_000
"""Microseconds."""
HOUR = 3600 * SECOND
DAY = 24 * HOUR


def mix(number: I64, seed: int, column: int) -> U64:
    """Mix row numbers with seed and column to 64 bits."""
    # Seed and column have odd factors of their own; with the row's factor, seed 1 would be
    # seed 0 moved by one row.
    salt = (seed * 0xA0761D6478BD642F + column * 0xD1B54A32D192ED03) % 2**64
    x = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform(number: I64, seed: int, column: int) -> F64:
    """Draw from [0, 1).

    >>> drawn = uniform(np.arange(10_000), 1, 2)
    >>> bool(0 <= drawn.min() < drawn.max() < 1), round(float(drawn.mean()), 1)
    (True, 0.5)
    """
    return (mix(number, seed, column) >> np.uint64(11)).astype(np.float64) / 2.0**53


def draw(number: I64, seed: int, column: int, below: int) -> I64:
    """Draw whole numbers from 0 to `below` - 1."""
    return (mix(number, seed, column) % np.uint64(below)).astype(np.int64)


def skewed(number: I64, seed: int, column: int, below: int) -> I64:
    """Draw whole numbers from 0 to `below` - 1, the small ones most often: density 1 / sqrt(x).

    >>> drawn = skewed(np.arange(10_000), 0, 1, 100)
    >>> int((drawn < 25).mean() * 10)  # half of the draws are in the first quarter
    4
    """
    u = uniform(number, seed, column)
    return (u * u * below).astype(np.int64)


@lru_cache(maxsize=8)
def names(prefix: str, digits: int, count: int) -> pl.Series:
    """Return names with numbers of so many digits, to be gathered by index.

    >>> names("c", 3, 2).to_list()
    ['c000', 'c001']
    """
    return pl.Series([f"{prefix}{i:0{digits}d}" for i in range(count)], dtype=pl.String)


def row_numbers(offset: int, rows: int, of: int) -> I64:
    """Return the numbers `offset` to `offset + rows`, cut at the end of the stream.

    >>> row_numbers(3, 10, 5).tolist(), row_numbers(7, 10, 5).tolist()
    ([3, 4], [])
    """
    return np.arange(offset, max(offset, min(offset + rows, of)), dtype=np.int64)


def evenly(number: I64, span: int, rows: int) -> I64:
    """Return `number * span // rows` with no product that overflows.

    >>> evenly(np.array([0, 1, 10**7 - 1]), 30 * DAY, 10**7).tolist()
    [0, 259200, 2591999740800]
    """
    whole, rest = divmod(span, rows)
    return number * whole + number * rest // rows


def micros(naive: datetime) -> int:
    """Return microseconds since 1970 of a naive UTC time.

    Raises:
        ValueError: the time has a zone.
    """
    if naive.tzinfo is not None:
        raise ValueError(f"first={naive!r} has a zone; times are naive UTC")
    return round(naive.replace(tzinfo=UTC).timestamp() * SECOND)
