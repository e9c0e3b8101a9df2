"""Dates and timestamps as texts."""

from __future__ import annotations

import polars as pl

_DAY = "%Y-%m-%d"
_TIMES = (f"{_DAY} %H:%M:%S%.f", f"{_DAY} %H:%M", _DAY)
_OFFSET = r"^(\S+[ T]\S*?:\S*?)\s*(Z|z|[+-]\d{2}(?::?\d{2})?)$"
"""A time of day and its distance from UTC."""


def read_time(text: pl.Expr) -> pl.Expr:
    """Return the timestamps of texts; null for those that are none.

    >>> str(pl.select(read_time(pl.lit("2024-01-31T10:05"))).item())
    '2024-01-31 10:05:00'
    """
    plain = text.str.replace(r"^(\d{4}-\d{1,2}-\d{1,2})T", "$1 ")
    return pl.coalesce(plain.str.to_datetime(form, time_unit="us", strict=False) for form in _TIMES)


def read_zoned(text: pl.Expr) -> pl.Expr:
    """Return the instants, in UTC, of texts with an offset; null for those without.

    >>> str(pl.select(read_zoned(pl.lit("2024-01-31 10:05:06+02"))).item())
    '2024-01-31 08:05:06+00:00'
    """
    wall = read_time(text.str.extract(_OFFSET, 1))
    offset = text.str.extract(_OFFSET, 2).str.replace_all("[Zz:]", "").str.pad_end(5, "0")
    hours = offset.str.slice(0, 3).cast(pl.Int64, strict=False).abs()
    minutes = offset.str.slice(3, 2).cast(pl.Int64, strict=False)
    size = pl.duration(minutes=hours * 60 + minutes)
    ahead = offset.str.starts_with("-")
    return pl.when(ahead).then(wall + size).otherwise(wall - size).dt.replace_time_zone("UTC")


def write_time(time: pl.Expr, *, zoned: bool) -> pl.Expr:
    """Return timestamps as texts, without zeros at their end.

    >>> from datetime import datetime
    >>> pl.select(write_time(pl.lit(datetime(2024, 1, 31, 10, 5, 6, 500000)), zoned=False)).item()
    '2024-01-31 10:05:06.5'
    """
    whole = time.dt.to_string("%Y-%m-%d %H:%M:%S%.6f")
    short = whole.str.replace(r"\.0{6}$", "").str.replace(r"(\.\d*[1-9])0+$", "$1")
    return short + time.dt.to_string("%:z").str.replace(":00$", "") if zoned else short
