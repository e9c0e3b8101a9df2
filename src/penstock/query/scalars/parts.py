"""Parts of times, times cut to a unit, and times made of numbers.

Law: parts and units are those of the clocks of a time's own zone. A time that is cut is never later
than it was.
"""

from __future__ import annotations

import polars as pl
from sqlglot import exp

from penstock.query.functions import WrongCall
from penstock.query.scalars.counts import counted
from penstock.query.scalars.translate import Builder, Translator
from penstock.query.scalars.zones import in_zone, is_text, on_the_wall, read_in_zone

_UTC = pl.Datetime("us", "UTC")
_MICROS = pl.Datetime("us")
_UNITS = {
    "microsecond": "1us",
    "millisecond": "1ms",
    "second": "1s",
    "minute": "1m",
    "hour": "1h",
    "day": "1d",
    "week": "1w",
    "month": "1mo",
    "quarter": "1q",
    "year": "1y",
}
_FARTHEST = 8_210_000_000_000_000_000
"""Polars' years end at 262142; a zone or a unit must not lead beyond them."""
_OF_DATES = ("day", "week", "month", "quarter", "year")
_PARTS = (*_UNITS, "epoch", "dow", "isodow", "doy", "isoyear", "decade", "century", "millennium")
_OFFSETS = {"timezone": (1, None), "timezone_hour": (3600, None), "timezone_minute": (60, 60)}
_OF_SPANS = {
    "day": (86_400_000_000, None),
    "hour": (3_600_000_000, 24),
    "minute": (60_000_000, 60),
    "second": (1_000_000, 60),
    "millisecond": (1_000, 60_000),
    "microsecond": (1, 60_000_000),
}
"""Parts of an interval: how many microseconds, and how many of them make the next larger part."""


def _unit(node: exp.Expr, known: tuple[str, ...], what: str) -> str:
    """Return the name of a unit or part that is written out, in the singular."""
    word = node.name.lower()
    for name in (word, word.removesuffix("s")):
        if name in known:
            return name
    shown = repr(node.name) if is_text(node) or isinstance(node, exp.Var) else "an expression"
    raise WrongCall(f"{what} knows no part {shown}; parts: {', '.join(known)}")


def _trunc(t: Translator, node: exp.Expr) -> pl.Expr | None:
    unit = _unit(node.expressions[0], tuple(_UNITS), "date_trunc")
    ((value, dtype),) = t.values(node.expressions[1])
    if dtype == pl.Date():
        return value.cast(_MICROS, strict=False).dt.truncate(_UNITS[unit])
    if not isinstance(dtype, pl.Datetime):
        if dtype in (None, pl.Null()):
            return value.cast(_MICROS) if dtype else value
        raise WrongCall(f"date_trunc takes a date or a timestamp, not {dtype}")
    if not dtype.time_zone:
        return value.dt.truncate(_UNITS[unit])
    wall = on_the_wall(value)
    cut = wall.dt.truncate(_UNITS[unit])
    if unit in _OF_DATES:
        return in_zone(cut, dtype.time_zone, twice="earliest")
    return value - (wall - cut)


def _extract(t: Translator, node: exp.Expr) -> pl.Expr | None:
    return _part(t, node.this, node.expression, "EXTRACT")


def _date_part(t: Translator, node: exp.Expr) -> pl.Expr | None:
    return _part(t, node.expressions[0], node.expressions[1], "date_part")


def _epoch(t: Translator, node: exp.Expr) -> pl.Expr | None:
    return _part(t, exp.var("epoch"), node.expressions[0], "epoch")


def _part(t: Translator, name: exp.Expr, of: exp.Expr, what: str) -> pl.Expr:
    part = _unit(name, (*_PARTS, *_OFFSETS), what)
    ((value, dtype),) = t.values(of)
    if isinstance(dtype, pl.Duration):
        return _of_span(value, part, what)
    if part == "epoch" and isinstance(dtype, pl.Datetime | pl.Date):
        return _micros(value, dtype) / 1_000_000
    if part in _OFFSETS:
        return _of_offset(value, dtype, part)
    if dtype == pl.Date():
        of = exp.cast(of.copy(), exp.DataType.build("timestamp"))
    elif not isinstance(dtype, pl.Datetime | pl.Time | pl.Null) and dtype is not None:
        raise WrongCall(f"{what} takes a date, a timestamp or an interval, not {dtype}")
    return counted(t, exp.Extract(this=exp.var(part), expression=of.copy()))


def _of_offset(value: pl.Expr, dtype: pl.DataType | None, part: str) -> pl.Expr:
    if not (isinstance(dtype, pl.Datetime) and dtype.time_zone):
        raise WrongCall(f"{part} is a part of timestamps with a zone; this one has none")
    unit, next_ = _OFFSETS[part]
    seconds = (value.dt.base_utc_offset() + value.dt.dst_offset()).dt.total_seconds()
    return _cut(seconds, unit, next_)


def _of_span(value: pl.Expr, part: str, what: str) -> pl.Expr:
    micros = value.dt.total_microseconds()
    if part == "epoch":
        return micros / 1_000_000
    if part not in _OF_SPANS:
        known = ", ".join(("epoch", *_OF_SPANS))
        raise WrongCall(f"{what} knows no part {part!r} of an interval; parts: {known}")
    return _cut(micros, *_OF_SPANS[part])


def _cut(number: pl.Expr, unit: int, next_: int | None) -> pl.Expr:
    """Return how many whole units are in a number, as the rest of the next larger unit."""
    whole = number.abs() // unit
    return (whole if next_ is None else whole % next_) * number.sign()


def _epoch_of(unit_us: int) -> Builder:
    """Return what gives the time of a number of units since 1970, or that number of a time."""

    def build(t: Translator, node: exp.Expr) -> pl.Expr | None:
        ((value, dtype),) = t.values(node.expressions[0])
        if isinstance(dtype, pl.Datetime | pl.Date):
            return _micros(value, dtype) // unit_us
        return None if dtype is None else _since_1970(t, value, dtype, unit_us).cast(_MICROS)

    return build


def _micros(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Return the microseconds since 1970."""
    day = dtype == pl.Date()
    moment = value.cast(_MICROS, strict=False) if day else value.dt.cast_time_unit("us")
    return moment.cast(pl.Int64, strict=False)


def _since_1970(t: Translator, value: pl.Expr, dtype: pl.DataType, unit_us: int) -> pl.Expr:
    if dtype.is_integer():
        return _in_range(t, value.cast(pl.Int128, strict=False) * unit_us)
    if dtype.is_numeric():
        return _in_range(t, (value.cast(pl.Float64, strict=False) * unit_us).round(0))
    if dtype == pl.Null():
        return value.cast(pl.Int64)
    raise WrongCall(f"a number of seconds or milliseconds is needed, not {dtype}")


def _in_range(t: Translator, micros: pl.Expr) -> pl.Expr:
    """Return microseconds since 1970 that Polars has a time for; where not, the row fails."""
    near = micros.is_between(-_FARTHEST, _FARTHEST)
    far = t.failing(micros.is_not_null() & ~near, "the time is too far away", pl.Int64())
    return pl.when(near).then(micros).cast(pl.Int64, strict=False).fill_null(far)


def _to_timestamp(t: Translator, node: exp.Expr) -> pl.Expr | None:
    ((value, dtype),) = t.values(node.expressions[0])
    if dtype is None:
        return value
    if dtype != pl.String():
        if len(node.expressions) > 1:
            raise WrongCall(f"to_timestamp with a format takes a text, not {dtype}")
        return _since_1970(t, value, dtype, 1_000_000).cast(_UTC)
    if len(node.expressions) == 1:
        found, what = read_in_zone(value.str.strip_chars(), "UTC"), "a timestamp"
    else:
        pattern = _format(node.expressions[1])
        read = value.str.to_datetime(pattern, time_unit="us", strict=False)
        zoned = "%z" in pattern or "%:z" in pattern
        found = read.dt.convert_time_zone("UTC") if zoned else in_zone(read, "UTC")
        what = f"of the format {pattern}"
    odd = value.is_not_null() & found.is_null()
    return pl.coalesce(found, t.failing(odd, f"the text is not {what}", _UTC))


def _format(node: exp.Expr) -> str:
    if not is_text(node) or "%" not in node.name:
        raise WrongCall(
            "to_timestamp takes a format of strftime in quotes, such as '%Y-%m-%d %H:%M:%S'; "
            f"found {node.name!r}"
        )
    return node.name


def _make(t: Translator, node: exp.Expr) -> pl.Expr | None:
    """Return the date or the timestamp of its parts; null if one of them is."""
    given = [t.value(part) for part in node.expressions]
    known = pl.all_horizontal(part.is_not_null() for part in given)
    parts = [t.wanted(pl.when(known).then(part)) for part in given]
    if len(parts) == 3:
        return pl.date(*parts)
    micros = (parts[5].cast(pl.Float64) * 1_000_000).round(0)
    one = micros.is_between(0, 60_999_999)
    odd = t.failing(micros.is_not_null() & ~one, "the seconds are not from 0 to 60", pl.Int64())
    rest = pl.when(one).then(micros).cast(pl.Int64, strict=False).fill_null(odd)
    return pl.datetime(*parts[:5], time_unit="us") + pl.duration(microseconds=rest)


NODES: dict[type[exp.Expr], Builder] = {exp.Extract: _extract}
CALLS: dict[str, Builder] = {
    "date_part": _date_part,
    "date_trunc": _trunc,
    "epoch": _epoch,
    "epoch_ms": _epoch_of(1_000),
    "epoch_us": _epoch_of(1),
    "make_date": _make,
    "make_timestamp": _make,
    "to_timestamp": _to_timestamp,
}
