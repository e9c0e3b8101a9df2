"""Arithmetic: exact or refused.

Law: an integer that does not fit its type is no value. The row fails; it never wraps. ``/`` gives
a float for any numbers and follows IEEE 754; ``//`` and ``%`` cut towards zero and fail for zero.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import polars as pl
from sqlglot import exp

from penstock.query.scalars.slices import whole_number
from penstock.query.scalars.times import with_dates, with_interval
from penstock.query.scalars.translate import Builder, Translator

_DIGITS = 38
"""As many digits has a decimal at most."""


def wide(dtype: pl.DataType) -> pl.DataType:
    """Return a type that holds every sum, difference and product of two values of a type.

    >>> wide(pl.Int32()), wide(pl.UInt64())
    (Int64, Int128)
    """
    narrow = (pl.Int8(), pl.Int16(), pl.Int32(), pl.UInt8(), pl.UInt16())
    return pl.Int64() if dtype in narrow else pl.Int128()


def _grow(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return a value in a type that holds it; not strict, so that it is known never to fail."""
    return value.cast(dtype, strict=False)


def _both(t: Translator, node: exp.Expr) -> list[tuple[pl.Expr, pl.DataType | None]]:
    return t.values(node.this, node.expression)


def _checked(sign: Callable[[Any, Any], Any]) -> Builder:
    """Return what makes a sum, a difference or a product."""

    def build(t: Translator, node: exp.Expr) -> pl.Expr | None:
        intervals = [isinstance(part, exp.Interval) for part in (node.this, node.expression)]
        if any(intervals) and sign is operator.mul:
            return None
        if any(intervals) and not _are_durations(t, node):
            return with_interval(t, node)
        (left, left_type), (right, right_type) = _both(t, node)
        dated = with_dates(t, sign, (left, left_type), (right, right_type))
        if dated is not None:
            return dated
        plain: pl.Expr = sign(left, right)
        if left_type is None or right_type is None:
            return plain
        if isinstance(left_type, pl.Decimal) and isinstance(right_type, pl.Decimal):
            exact = sign is operator.mul
            return _product(t, left, left_type, right, right_type) if exact else plain
        if not (left_type.is_integer() and right_type.is_integer()):
            return plain
        dtype = t.dtype(plain)
        if dtype is None or not dtype.is_integer() or dtype == pl.Int128():
            return plain
        room = wide(dtype)
        return t.strict(sign(_grow(left, room), _grow(right, room)), dtype)

    return build


def _are_durations(t: Translator, node: exp.Expr) -> bool:
    """Return whether what stands beside an interval is one too, and no time."""
    others = [p for p in (node.this, node.expression) if not isinstance(p, exp.Interval)]
    return all(isinstance(t.dtype(t.value(other)), pl.Duration) for other in others)


def _product(
    t: Translator, left: pl.Expr, left_type: pl.Decimal, right: pl.Expr, right_type: pl.Decimal
) -> pl.Expr:
    """Return a product of decimals with all its digits; Polars would keep those of one factor."""
    scale = left_type.scale + right_type.scale
    if scale > _DIGITS:
        raise ValueError(f"a product of {scale} decimal places; at most {_DIGITS} are allowed")
    room = pl.Decimal(_DIGITS, scale)

    def factor(value: pl.Expr, dtype: pl.Decimal, other: pl.Expr) -> pl.Expr:
        """A factor that may not fit must not fail where there is no product."""
        fits = (dtype.precision or _DIGITS) - dtype.scale <= _DIGITS - scale
        both = value.is_not_null() & other.is_not_null()  # a value that fails is not left out
        return t.strict(value if fits else pl.when(both).then(value), room)

    return factor(left, left_type, right) * factor(right, right_type, left)


def _divide(t: Translator, node: exp.Expr) -> pl.Expr | None:
    (left, left_type), (right, right_type) = _both(t, node)
    if left_type is None or right_type is None:
        return None
    if not (left_type.is_numeric() and right_type.is_numeric()):
        return None
    return quotient(left.cast(pl.Float64, strict=False), right.cast(pl.Float64, strict=False))


def quotient(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """Return a quotient of floats that is the same however many rows there are.

    Polars multiplies a column by the reciprocal of a constant, unless the column has one row: 7 / 3
    is then 2.333333333333333 or 2.3333333333333335, by the size of the batch. So a constant is made
    as long as the column, by adding zeros.
    """
    if right.meta.root_names() or not left.meta.root_names():
        return left / right
    zeros = left.is_null().cast(pl.Float64, strict=False) * 0.0
    return left / (zeros + right)


def _whole(t: Translator, node: exp.Expr) -> pl.Expr | None:
    """Return a quotient cut towards zero, or the remainder that goes with it."""
    above, below = node.expressions if isinstance(node, exp.Anonymous) else node.iter_expressions()
    divides = isinstance(node, exp.IntDiv) or node.name.lower() == "div"
    made = _wide_quotient(t, above, below) if divides else None
    made = t.as_polars_reads(node) if made is None else made
    dtype = t.dtype(made)
    if dtype is None or dtype.is_float() or not dtype.is_numeric():
        return made
    if isinstance(below, exp.Literal) and below.name.strip("0."):
        return made
    zero = (t.value(below) == 0) & t.value(above).is_not_null()
    return pl.coalesce(t.failing(zero, "division by zero", dtype), made)


def _wide_quotient(t: Translator, above: exp.Expr, below: exp.Expr) -> pl.Expr | None:
    """Return the quotient of integers if 64 bits with a sign are too few for it."""
    given = t.values(above, below)
    types = [dtype for _, dtype in given if dtype is not None and dtype.is_integer()]
    if len(types) < 2 or not {pl.UInt64(), pl.Int128()} & set(types):
        return None
    whole, part = (value.cast(pl.Int128, strict=False) for value, _ in given)
    size = whole.abs() // part.abs()
    made = pl.when((whole < 0) == (part < 0)).then(size).otherwise(0 - size)
    positive = [(whole_number(node) or -1) > 0 for node in (above, below)]
    pairs = zip(types, positive, strict=True)
    unsigned = all(dtype.is_unsigned_integer() or above_0 for dtype, above_0 in pairs)
    return made.cast(pl.UInt64, strict=False) if unsigned else made


def _negate(t: Translator, node: exp.Expr) -> pl.Expr | None:
    if isinstance(node.this, exp.Interval) or whole_number(node) is not None:
        return None
    ((value, dtype),) = t.values(node.this)
    if dtype is None or not dtype.is_integer():
        return -value
    return t.strict(0 - _grow(value, wide(dtype)), _make_signed(dtype))


def _make_signed(dtype: pl.DataType) -> pl.DataType:
    grown: dict[pl.DataType, pl.DataType] = {
        pl.UInt8(): pl.Int16(),
        pl.UInt16(): pl.Int32(),
        pl.UInt32(): pl.Int64(),
    }
    return pl.Int128() if dtype == pl.UInt64() else grown.get(dtype, dtype)


def _abs(t: Translator, node: exp.Expr) -> pl.Expr | None:
    if len(node.expressions) != 1:
        return None
    ((value, dtype),) = t.values(node.expressions[0])
    if dtype is None or not dtype.is_signed_integer():
        return None
    return t.strict(_grow(value, wide(dtype)).abs(), dtype)


def _power(t: Translator, node: exp.Expr) -> pl.Expr | None:
    parts = node.expressions if isinstance(node, exp.Anonymous) else (node.this, node.expression)
    if len(parts) != 2:
        return None
    left, right = (t.value(part).cast(pl.Float64, strict=False) for part in parts)
    return left**right


NODES: dict[type[exp.Expr], Builder] = {
    exp.Add: _checked(operator.add),
    exp.Sub: _checked(operator.sub),
    exp.Mul: _checked(operator.mul),
    exp.Div: _divide,
    exp.IntDiv: _whole,
    exp.Mod: _whole,
    exp.Neg: _negate,
    exp.Pow: _power,
}
CALLS: dict[str, Builder] = {
    "abs": _abs,
    "div": _whole,
    "mod": _whole,
    "pow": _power,
    "power": _power,
}
