"""CAST and TRY_CAST.

Law: a value that the type cannot hold makes the row fail, or is null for TRY_CAST. Floats round to
the nearest integer, halves to the even one; decimals round halves away from zero. Texts may have
spaces around them.
"""

from __future__ import annotations

import difflib
from typing import Any

import polars as pl
from sqlglot import exp

from penstock.query.dialect import to_text
from penstock.query.functions import WrongCall
from penstock.query.scalars.clocks import read_time, write_time
from penstock.query.scalars.translate import Builder, Translator
from penstock.query.scalars.zones import (
    constant,
    in_zone,
    is_text,
    is_time,
    on_the_wall,
    read_in_zone,
)

_AWAY: Any = "half_away_from_zero"
_EVEN: Any = "half_to_even"
_TYPE_NAMES = (
    "BOOLEAN", "SMALLINT", "INTEGER", "BIGINT", "REAL", "DOUBLE PRECISION", "DECIMAL(10, 2)",
    "VARCHAR", "TEXT", "DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ",
)  # fmt: skip
_TRUE, _FALSE = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")


def _cast(t: Translator, node: exp.Expr) -> pl.Expr | None:
    target = _target(t, to_text(node.args["to"]))
    trying = isinstance(node, exp.TryCast)
    if target is not None and is_text(node.this) and is_time(target):
        return constant(node.this.name, target, trying=trying)
    if isinstance(node.this, exp.Literal) and node.this.is_string:
        return None
    ((value, source),) = t.values(node.this)
    if source is None or target is None:
        return None
    return _Cast(translator=t, trying=trying).made(value, source, target)


def _target(t: Translator, name: str) -> pl.DataType | None:
    """Return the type of a name."""
    try:
        return t.dtype(pl.sql_expr(f"CAST(NULL AS {name})"))
    except pl.exceptions.PolarsError:
        near = difflib.get_close_matches(name.upper(), _TYPE_NAMES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"types: {', '.join(_TYPE_NAMES)}"
        raise WrongCall(f"unknown type {name!r}; {hint}") from None


class _Cast:
    """One cast; ``trying`` gives null where it would fail."""

    def __init__(self, *, translator: Translator, trying: bool) -> None:
        self._t = translator
        self._trying = trying

    def made(self, value: pl.Expr, source: pl.DataType, target: pl.DataType) -> pl.Expr | None:
        if source == target:  # a constant has no type of its own until it is cast
            return value if value.meta.root_names() else value.cast(target, strict=False)
        if source == pl.String():
            return self._read(value, target)
        if isinstance(source, pl.Datetime):
            return _of_time(value, source, target)
        if source == pl.Date() and isinstance(target, pl.Datetime) and target.time_zone:
            return in_zone(value.cast(pl.Datetime(target.time_unit)), target.time_zone)
        if source.is_numeric() and is_time(target):
            raise WrongCall(
                "a number is not cast to a time; write to_timestamp(x) for seconds since 1970, "
                "epoch_ms(x) for milliseconds"
            )
        if target == pl.String() and source.is_float():
            return _write_float(value)
        if isinstance(target, pl.Decimal):
            return self._to_decimal(value, source, target)
        if source == pl.Float64() and target == pl.Float32():
            fits = ~value.is_finite() | value.cast(target, strict=False).is_finite()
            return self._fit(value, fits, target)
        if source.is_numeric() and target.is_integer():
            mode = _EVEN if source.is_float() else _AWAY
            return self._to(value if source.is_integer() else value.round(0, mode=mode), target)
        return self._to(value, target) if source.is_numeric() and target.is_numeric() else None

    def _to(self, value: pl.Expr, target: pl.DataType) -> pl.Expr:
        return value.cast(target, strict=False) if self._trying else self._t.strict(value, target)

    def _fit(self, value: pl.Expr, fits: pl.Expr, target: pl.DataType) -> pl.Expr:
        """Return a value in a type that holds it where ``fits`` is true."""
        found = pl.when(fits).then(value).cast(target, strict=False)
        if self._trying:
            return found
        return pl.coalesce(
            found, self._t.failing(~fits, f"the value does not fit {target}", target)
        )

    def _to_decimal(
        self, value: pl.Expr, source: pl.DataType, target: pl.Decimal
    ) -> pl.Expr | None:
        if source.is_float():
            rounded = value.round(target.scale, mode=_AWAY)
            fits = rounded.abs() < 10.0 ** (target.precision - target.scale)
            return self._fit(rounded, fits, target)
        if isinstance(source, pl.Decimal):
            shorter = source.scale > target.scale
            return self._to(value.round(target.scale, mode=_AWAY) if shorter else value, target)
        return self._to(value, target) if source.is_integer() else None

    def _read(self, text: pl.Expr, target: pl.DataType) -> pl.Expr | None:
        bare = text.str.strip_chars()
        if target.is_numeric():
            return self._to(bare, target)
        if target == pl.Boolean():
            return self._found(text, _read_truth(bare), target, "true or false")
        if target == pl.Date():
            return self._found(text, read_time(bare).dt.date(), target, "a date")
        if isinstance(target, pl.Datetime):
            zone = target.time_zone
            read = read_in_zone(bare, zone) if zone else read_time(bare)
            return self._found(text, read.cast(target), target, "a timestamp")
        return None

    def _found(self, text: pl.Expr, value: pl.Expr, target: pl.DataType, what: str) -> pl.Expr:
        if self._trying:
            return value
        odd = text.is_not_null() & value.is_null()
        return pl.coalesce(value, self._t.failing(odd, f"the text is not {what}", target))


def _read_truth(text: pl.Expr) -> pl.Expr:
    word = text.str.to_lowercase()
    known = pl.when(word.is_in(_TRUE)).then(pl.lit(True))
    return known.when(word.is_in(_FALSE)).then(pl.lit(False)).otherwise(None)


def _of_time(value: pl.Expr, source: pl.Datetime, target: pl.DataType) -> pl.Expr | None:
    """Return a timestamp in another type; one with a zone is what the clocks of its zone show."""
    if target == pl.String():
        return write_time(value, zoned=bool(source.time_zone))
    if target.is_numeric():
        raise WrongCall(
            "a timestamp is not cast to a number; write epoch(t) for seconds since 1970, "
            "epoch_ms(t) for milliseconds"
        )
    if isinstance(target, pl.Datetime) and target.time_zone:
        zoned = value if source.time_zone else in_zone(value, target.time_zone)
        return zoned.dt.cast_time_unit(target.time_unit)
    return on_the_wall(value).cast(target) if source.time_zone else None


def _write_float(number: pl.Expr) -> pl.Expr:
    """Return floats as texts: ``nan``, and exponents of two digits at least."""
    text = number.cast(pl.String, strict=False).str.replace("NaN", "nan", literal=True)
    return text.str.replace(r"e([+-])(\d)$", "e${1}0$2")


NODES: dict[type[exp.Expr], Builder] = {exp.Cast: _cast, exp.TryCast: _cast}
CALLS: dict[str, Builder] = {}
