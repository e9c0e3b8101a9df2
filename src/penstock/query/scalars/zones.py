"""Times with and without a zone, side by side.

Laws: a time with a zone is an instant that is shown on the clocks of its zone. A time without one,
a date or a text beside it is what those clocks show. A clock time that is shown twice is the later
instant; one that is never shown is as much after the gap as it is into it. PostgreSQL and DuckDB
read them so.
"""

from __future__ import annotations

import difflib
import zoneinfo
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import polars as pl
from sqlglot import exp

from penstock.query.functions import WrongCall
from penstock.query.scalars.clocks import read_time, read_zoned
from penstock.query.scalars.translate import Builder, Translator

Typed = tuple[pl.Expr, pl.DataType | None]
_BEFORE = "25h"
"""Longer than any gap of a zone's clocks, and shorter than the time between two of them."""


def in_zone(wall: pl.Expr, zone: str, twice: Literal["earliest", "latest"] = "latest") -> pl.Expr:
    """Return the instants at which the clocks of a zone show times.

    >>> from datetime import datetime
    >>> gap = pl.Series([datetime(2024, 3, 31, 2, 30)])
    >>> str(pl.select(in_zone(pl.lit(gap), "Europe/Berlin")).item())
    '2024-03-31 03:30:00+02:00'
    """
    if zone == "UTC":
        return wall.dt.replace_time_zone("UTC")

    def shown(time: pl.Expr) -> pl.Expr:
        return time.dt.replace_time_zone(zone, ambiguous=twice, non_existent="null")

    before = shown(wall.dt.offset_by(f"-{_BEFORE}")).dt.offset_by(_BEFORE)
    return pl.coalesce(shown(wall), before)


def on_the_wall(time: pl.Expr) -> pl.Expr:
    """Return what the clocks of its own zone show at an instant."""
    return time.dt.replace_time_zone(None)


def is_time(dtype: pl.DataType | None) -> bool:
    """Return whether a type is a date or a timestamp."""
    return isinstance(dtype, pl.Datetime | pl.Date)


def in_one_zone(found: Sequence[Typed]) -> list[pl.Expr]:
    """Return values of which, if one has a zone, all dates and timestamps have that one."""
    zones = [t.time_zone for _, t in found if isinstance(t, pl.Datetime) and t.time_zone]
    if not zones:
        return [value for value, _ in found]
    return [_move(value, dtype, zones[0]) for value, dtype in found]


def _move(value: pl.Expr, dtype: pl.DataType | None, zone: str) -> pl.Expr:
    if isinstance(dtype, pl.Datetime) and dtype.time_zone:
        return value if dtype.time_zone == zone else value.dt.convert_time_zone(zone)
    if dtype == pl.Date():
        return in_zone(value.cast(pl.Datetime("us"), strict=False), zone)
    return in_zone(value, zone) if isinstance(dtype, pl.Datetime) else value


def same_times(nodes: Sequence[exp.Expr], found: Sequence[Typed]) -> list[pl.Expr]:
    """Return the values of nodes; beside a date or a timestamp, texts are read and zones agree."""
    types = [dtype for node, (_, dtype) in zip(nodes, found, strict=True) if not is_text(node)]
    zoned = [t for t in types if isinstance(t, pl.Datetime) and t.time_zone]
    times = [*zoned, *[t for t in types if isinstance(t, pl.Datetime | pl.Date)]]
    if not times:
        return [value for value, _ in found]
    for dtype in types:
        if dtype is not None and (dtype.is_numeric() or dtype == pl.Boolean()):
            raise WrongCall(
                f"a time and {dtype} do not go together; write to_timestamp(x) for seconds since "
                "1970, epoch_ms(x) for milliseconds"
            )
    wanted: pl.DataType = times[0]
    read: list[Typed] = [
        (constant(node.name, wanted), wanted) if is_text(node) else typed
        for node, typed in zip(nodes, found, strict=True)
    ]
    return in_one_zone(read)


def is_text(node: exp.Expr) -> bool:
    """Return whether a node is a quoted text."""
    return isinstance(node, exp.Literal) and bool(node.is_string)


def constant(text: str, dtype: pl.DataType, *, trying: bool = False) -> pl.Expr:
    """Return a quoted text as a date or a timestamp.

    Raises:
        WrongCall: It is none.
    """
    bare = pl.lit(text.strip())
    zone = dtype.time_zone if isinstance(dtype, pl.Datetime) else None
    value: Any = pl.select(read_in_zone(bare, zone) if zone else read_time(bare)).item()
    if value is None and not trying:
        what = "a date" if dtype == pl.Date() else "a timestamp"
        offset = pl.select(read_zoned(bare)).item() is not None and dtype != pl.Date()
        hint = "it has an offset: write TIMESTAMPTZ" if offset else "write '2024-01-31 10:05:06'"
        raise WrongCall(f"{text!r} is not {what}; {hint}")
    plain = dtype == pl.Date() and value is not None
    return pl.lit(value.date() if plain else value, dtype=dtype)


def read_in_zone(text: pl.Expr, zone: str) -> pl.Expr:
    """Return the instants of texts: at their offset, or else on the clocks of a zone."""
    exact = read_zoned(text).dt.convert_time_zone(zone)
    return pl.coalesce(exact, in_zone(read_time(text), zone))


def _at_time_zone(t: Translator, node: exp.Expr) -> pl.Expr | None:
    zone = zone_name(node.args["zone"])
    ((value, dtype),) = t.values(node.this)
    if not isinstance(dtype, pl.Datetime):
        if dtype is None:
            return value
        raise WrongCall(f"AT TIME ZONE takes a timestamp, not {dtype}; write CAST(… AS TIMESTAMP)")
    if dtype.time_zone:
        return on_the_wall(value.dt.convert_time_zone(zone))
    return in_zone(value, zone)


def zone_name(node: exp.Expr) -> str:
    """Return the name of a zone that is written out.

    Raises:
        WrongCall: There is no such zone.
    """
    if not is_text(node):
        raise WrongCall("AT TIME ZONE takes the name of a zone in quotes: 'Europe/Berlin'")
    try:
        pl.select(pl.lit(datetime(2024, 1, 1)).dt.replace_time_zone(node.name))
    except pl.exceptions.PolarsError:
        known = zoneinfo.available_timezones()
        near = difflib.get_close_matches(node.name, known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "write it like 'Europe/Berlin'"
        raise WrongCall(f"unknown time zone {node.name!r}; {hint}") from None
    return node.name


NODES: dict[type[exp.Expr], Builder] = {exp.AtTimeZone: _at_time_zone}
CALLS: dict[str, Builder] = {}
