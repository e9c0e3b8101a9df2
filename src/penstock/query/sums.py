"""Sums and averages of whole numbers and decimals that no total on the way can spoil.

A sum is kept in two numbers: ``low`` is the sum as it wraps around, ``high`` how many whole halves
it has. Of 2^31 rows and totals at least, ``high`` cannot wrap, and both together are the sum. Laws:
for rows in any number of parts, the two numbers are the same, and the value is the exact sum, or
there is none since it does not fit its type; an average fits always, and that of whole numbers is
rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import polars as pl

from penstock.query.failing import fail_where

DIGITS = 38
"""A decimal has so many digits at most."""
MORE_DIGITS = 4
"""The average of decimals has so many more digits behind the point."""
_HUGE = (pl.UInt64(), pl.Int128())


def width(dtype: pl.DataType) -> str:
    """Return how sums of a type are kept: ``short`` in one number, ``long`` or ``huge`` in two.

    >>> [width(t) for t in (pl.Int32(), pl.Duration("us"), pl.Decimal(10, 2), pl.Float64())]
    ['short', 'long', 'huge', 'short']
    """
    if dtype.is_decimal() or dtype in _HUGE:
        return "huge"
    return "long" if dtype == pl.Int64() or isinstance(dtype, pl.Duration) else "short"


def sum_type(dtype: pl.DataType) -> pl.DataType:
    """Return the type of a sum: 64 bits for integers, all digits for decimals.

    >>> sum_type(pl.Int8()), sum_type(pl.UInt64()), sum_type(pl.Decimal(5, 2))
    (Int64, UInt64, Decimal(precision=38, scale=2))
    """
    if isinstance(dtype, pl.Decimal):
        return pl.Decimal(DIGITS, dtype.scale)
    if isinstance(dtype, pl.Duration) or dtype in _HUGE:
        return dtype
    return pl.Int64() if dtype.is_integer() or dtype == pl.Boolean() else pl.Float64()


def mean_type(dtype: pl.DataType) -> pl.DataType:
    """Return the type of an average: decimals and intervals stay what they are.

    >>> mean_type(pl.Int8()), mean_type(pl.Decimal(5, 2))
    (Float64, Decimal(precision=38, scale=6))
    """
    if isinstance(dtype, pl.Decimal):
        return pl.Decimal(DIGITS, min(dtype.scale + MORE_DIGITS, DIGITS))
    return dtype if isinstance(dtype, pl.Duration) else pl.Float64()


def numbers(values: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return values of a type that is not ``short`` as integers of 64 or 128 bits."""
    if dtype == pl.UInt64():
        return values.cast(pl.Int128, strict=False)
    return values.to_physical() if dtype.is_decimal() or dtype.is_temporal() else values


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The sum of values of a type that is not ``short``, as two expressions."""

    low: pl.Expr
    high: pl.Expr
    dtype: pl.DataType

    @classmethod
    def of(cls, values: pl.Expr, dtype: pl.DataType) -> Total:
        """Return the total of a group's values."""
        whole = numbers(values, dtype)
        half = half_of(dtype)
        return cls(low=whole.sum(), high=(whole // half).sum(), dtype=dtype)

    @property
    def _half(self) -> int:
        return half_of(self.dtype)

    @property
    def _rest(self) -> pl.Expr:
        """The sum of the lower halves; what wraps on the way there wraps back."""
        return self.low - self.high * self._half

    @property
    def halves(self) -> pl.Expr:
        """How many whole halves the sum has, in however many parts its rows came."""
        return self.high + self._rest // self._half

    @property
    def fits(self) -> pl.Expr:
        """Whether the sum has a value of its type."""
        whole = self.halves.is_between(-self._half // 2, self._half // 2 - 1)
        if self.dtype.is_decimal():
            return whole & _has_digits(self.low)
        return whole & (self.low >= 0) & (self.low < 1 << 64) if self.dtype in _HUGE[:1] else whole

    def sum(self, told: str) -> pl.Expr:
        """Return the sum; where it does not fit, the expression fails with what is told."""
        return _or_fail(self.fits, _typed(self.low, sum_type(self.dtype)), told)

    def mean(self, count: pl.Expr, told: str) -> pl.Expr:
        """Return the average of so many values."""
        if self.dtype.is_decimal():
            return self._decimal_mean(count, told)
        if isinstance(self.dtype, pl.Duration):
            return self._cut(count).cast(self.dtype)
        return self._real / count

    @property
    def _real(self) -> pl.Expr:
        return self.high.cast(pl.Float64) * self._half + self._rest.cast(pl.Float64)

    def _cut(self, count: pl.Expr) -> pl.Expr:
        """Return the average as a whole number, cut towards zero."""
        near, missed = self._near(count)
        part = missed / count
        more = pl.when(self._real < 0).then(part.ceil()).otherwise(part.floor())
        return near + more.cast(pl.Int64, strict=False)

    def _near(self, count: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
        """Return a number near the average, and what it misses of the sum.

        A quotient of floats is near. What it misses is so small that it is exact even where the sum
        and the product have wrapped around.
        """
        bits = 2 * (self._half.bit_length() - 1) - 1
        limit = float((1 << bits) - (1 << bits - 53))
        room = pl.Int64 if bits < 64 else pl.Int128
        near = (self._real / count).clip(-limit, limit).cast(room, strict=False)
        return near, self.low - near * count

    def _decimal_mean(self, count: pl.Expr, told: str) -> pl.Expr:
        """Return the average, halves rounded away from zero."""
        given, wanted = self.dtype, mean_type(self.dtype)
        assert isinstance(given, pl.Decimal)
        assert isinstance(wanted, pl.Decimal)
        unit = 10 ** (wanted.scale - given.scale)
        near, missed = self._near(count.cast(pl.Int128))
        whole, left = near + missed // count, missed % count
        part, twice = left * unit // count, (left * unit % count) * 2
        up = (twice > count) | ((twice == count) & (self.halves >= 0))
        found = whole * unit + part + up.cast(pl.Int128)
        room = 10**DIGITS // unit
        fits = whole.is_between(-room, room) & _has_digits(found)
        return _or_fail(fits, _typed(found, wanted), told)


def half_of(dtype: pl.DataType) -> int:
    """Return what the upper half of a number counts."""
    return 1 << (32 if width(dtype) == "long" else 64)


def _has_digits(number: pl.Expr) -> pl.Expr:
    return number.is_between(1 - 10**DIGITS, 10**DIGITS - 1)


def _typed(number: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return an integer that fits as a value of a type; nothing is checked twice."""
    if not isinstance(dtype, pl.Decimal):
        return number.cast(dtype, strict=False)
    unit = pl.lit(Decimal(1).scaleb(-dtype.scale), dtype=pl.Decimal(DIGITS, dtype.scale))
    return number.cast(pl.Decimal(DIGITS, 0), strict=False) * unit


def _or_fail(fits: pl.Expr, value: pl.Expr, told: str) -> pl.Expr:
    """Return a value that is there where it fits; elsewhere the expression fails."""
    return pl.when(fail_where(~fits, told).is_null()).then(value)
