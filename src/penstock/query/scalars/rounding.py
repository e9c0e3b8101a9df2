"""Rounding: halves go away from zero; a decimal loses the places that it is rounded off."""

from __future__ import annotations

from typing import Any

import polars as pl
from sqlglot import exp

from penstock.query.scalars.arithmetic import quotient
from penstock.query.scalars.slices import whole_number
from penstock.query.scalars.translate import Builder, Translator

_AWAY: Any = "half_away_from_zero"


def _round(t: Translator, node: exp.Expr) -> pl.Expr | None:
    value, *more = node.expressions
    digits = whole_number(more[0]) if more else 0
    ((found, dtype),) = t.values(value)
    if digits is None or dtype is None or not dtype.is_numeric():
        return None
    if dtype.is_integer():
        return found if digits >= 0 else t.strict(_to_unit(found, 10**-digits), _room(dtype))
    if isinstance(dtype, pl.Decimal):
        return _round_decimal(found, dtype.scale, digits)
    if digits >= 0:
        return found.round(digits, mode=_AWAY)
    unit = pl.lit(10.0**-digits)
    return (quotient(found, unit).round(0, mode=_AWAY) * unit).cast(dtype, strict=False)


def _round_decimal(value: pl.Expr, scale: int, digits: int) -> pl.Expr:
    if digits >= scale:
        return value
    if digits >= 0:
        return value.round(digits, mode=_AWAY).cast(pl.Decimal(38, digits))
    unit: int = 10 ** (scale - digits)
    whole = _to_unit(value.to_physical(), unit) // int(10**scale)
    return whole.cast(pl.Decimal(38, 0))


def _room(dtype: pl.DataType) -> pl.DataType:
    """Return the type of a rounded integer; of an unsigned one, which can grow, a wider one."""
    if dtype == pl.UInt64():
        return pl.Int128()
    return dtype if dtype.is_signed_integer() else pl.Int64()


def _to_unit(value: pl.Expr, unit: int) -> pl.Expr:
    """Return whole numbers rounded to a multiple of a power of ten."""
    wide = value.cast(pl.Int128, strict=False)
    size = (wide.abs() + unit // 2) // unit * unit
    return pl.when(wide < 0).then(0 - size).otherwise(size)


def _whole_part(t: Translator, node: exp.Expr) -> pl.Expr | None:
    """Return ceil, floor and trunc; those of a decimal have no places left."""
    made = t.as_polars_reads(node)
    plain = len(node.expressions) == 1 and isinstance(t.dtype(made), pl.Decimal)
    return made.cast(pl.Decimal(38, 0)) if plain else made


NODES: dict[type[exp.Expr], Builder] = {}
CALLS: dict[str, Builder] = {
    "round": _round,
    **dict.fromkeys(("ceil", "ceiling", "floor", "trunc", "truncate"), _whole_part),
}
