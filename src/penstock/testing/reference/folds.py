"""Aggregate functions over a list of values, in plain Python: the reference for the kernels.

Law: a fold sees all values of a group at once; nothing is merged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import polars as pl

from penstock.query.aggregates import Call, result_type

Placed = Sequence[tuple[tuple[int, int, int], Any]]
"""Values with their row's place in stream order."""


def rank(value: Any) -> tuple[int, Any]:
    """Return a key by which values sort and group: nulls first, then values, then NaN.

    >>> sorted([2.0, float("nan"), None, -1.0], key=rank)
    [None, -1.0, 2.0, nan]
    """
    if value is None:
        return 0, 0
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return 1, tuple(rank(part) for part in parts)
    if isinstance(value, float) and math.isnan(value):
        return 2, 0
    if isinstance(value, datetime) and value.tzinfo is not None:
        return 1, value.astimezone(UTC)  # in one zone, Python compares what the clocks show
    return 1, value


def fold(call: Call, placed: Placed) -> Any:
    """Return the value of an aggregate call; approximate functions are computed exactly.

    >>> fold(Call(function="mean"), [((0, 0, 0), 1), ((0, 0, 1), None), ((0, 0, 2), 4)])
    2.5
    >>> fold(Call(function="last"), [((5, 0, 0), 1), ((3, 0, 1), 2)])
    1
    """
    values = [value for _, value in placed]
    known = [value for value in values if value is not None]
    match call.function:
        case "len" | "size":
            return len(values)
        case "count":
            return len(known)
        case "sum":
            return _sum(call, known)
        case "mean":
            return _mean(call, known)
        case "min" | "max":
            return _extreme(call.function, known)
        case "var" | "std":
            return _spread(call, known)
        case "first" | "last":
            ordered = sorted(placed, key=lambda item: (item[0], rank(item[1])))
            return ordered[0 if call.function == "first" else -1][1]
        case "distinct":
            return len({rank(value) for value in values})
        case "approx_distinct":
            return len({rank(value) for value in known})
        case "approx_quantile":
            return _quantile(call, known)
    raise NotImplementedError(call.function)


def _sum(call: Call, known: list[Any]) -> Any:
    if isinstance(call.dtype, pl.Decimal):
        return _decimal(sum(map(Fraction, known), Fraction()), call.dtype.scale)
    if known and isinstance(known[0], timedelta):
        return sum(known, timedelta())
    if any(isinstance(value, float) for value in known):
        return _total(known)
    return timedelta() if call.dtype is not None and call.dtype.is_temporal() else sum(known)


def _mean(call: Call, known: list[Any]) -> Any:
    if not known:
        return None
    if isinstance(known[0], timedelta):
        micros = sum(value // timedelta(microseconds=1) for value in known)
        return timedelta(microseconds=math.trunc(Fraction(micros, len(known))))
    if isinstance(known[0], Decimal):
        dtype = result_type(call)
        assert isinstance(dtype, pl.Decimal)
        return _decimal(sum(map(Fraction, known), Fraction()) / len(known), dtype.scale)
    return _total(known) / len(known)


def _decimal(value: Fraction, scale: int) -> Decimal:
    """Return a number with so many digits behind the point, halves rounded away from zero."""
    units = math.floor(abs(value) * 10**scale + Fraction(1, 2))
    if units >= 10**38:
        raise OverflowError(f"{value} has more than 38 digits")
    return Decimal((int(value < 0), tuple(map(int, str(units))), -scale))


def _total(known: list[Any]) -> Any:
    """Return the sum, exact up to one rounding; infinities of both signs add up to NaN."""
    if not any(isinstance(value, float) for value in known):
        return sum(known)
    finite = all(math.isfinite(value) for value in known)
    return math.fsum(known) if finite else float(sum(known))


def _extreme(function: str, known: list[Any]) -> Any:
    """Return the least or the greatest value; NaN is greater than all others."""
    pick = min if function == "min" else max
    return pick(known, key=rank) if known else None


def _spread(call: Call, known: list[Any]) -> float | None:
    if len(known) <= call.parameter:
        return None
    known = [float(value) for value in known]
    mean = _total(known) / len(known)
    variance = _total([(value - mean) ** 2 for value in known]) / (len(known) - call.parameter)
    return math.sqrt(variance) if call.function == "std" else variance


def _quantile(call: Call, known: list[Any]) -> float | None:
    """Return the value of the nearest rank at or below the quantile; NaN has no rank."""
    known = [value for value in known if rank(value)[0] == 1]
    if not known:
        return None
    rank_from_one = math.floor((len(known) - 1) * call.parameter + 1)
    return float(sorted(known)[rank_from_one - 1])
