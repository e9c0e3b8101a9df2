"""Clocks: when a zone's clock reaches a reading, and so where windows of local days begin.

A clock goes back and skips, so a reading may come twice or never. What counts is the first instant
at which the clock shows the reading or a later one. Laws: a later reading is never reached earlier,
so the panes between readings follow one another without gap or overlap, and every row is in one;
a pane that the clock skipped whole is empty. Zones are those of Polars, which are the same on every
machine.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import polars as pl

_SECOND = 1_000_000
_FAR_SECONDS = 2 * 86_400
"""No clock is further from UTC, before or after it skips a day."""
_NEAR = 2
"""No clock is as many panes of a day from UTC."""
_FEW = 4096
_MOST_US = 1 << 62
"""Watermarks before the first row and after the last; Polars has no times far beyond."""


def find_reached(readings: pl.Series, zone: str) -> pl.Series:
    """Return the first instants at which a clock shows some readings or later ones.

    Args:
        readings: What the clock shows, in microseconds since it showed 1970-01-01 00:00.
        zone: The zone of the clock.

    >>> midnight = pl.Series(["2018-11-04 00:00"]).str.to_datetime(time_unit="us").to_physical()
    >>> found = find_reached(midnight, "America/Sao_Paulo")  # it showed 1:00
    >>> found.cast(pl.Datetime("us")).to_list()
    [datetime.datetime(2018, 11, 4, 3, 0)]
    """
    shown = readings.cast(pl.Datetime("us"))
    zoned = shown.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    found = zoned.to_physical()
    skipped = found.is_null()
    if not skipped.any():
        return found
    return found.scatter(skipped.arg_true(), _after_skip(readings.filter(skipped), zone))


def _after_skip(readings: pl.Series, zone: str) -> pl.Series:
    """Return when a clock went on that had skipped each reading, which is at a full second."""
    second = readings // _SECOND
    before, after = second - _FAR_SECONDS, second + _FAR_SECONDS
    for _ in range((2 * _FAR_SECONDS).bit_length()):
        middle = (before + after) // 2
        reaches = show_at(middle * _SECOND, zone) >= readings
        before, after = before.zip_with(reaches, middle), middle.zip_with(reaches, after)
    return after * _SECOND


def show_at(instants: pl.Series, zone: str) -> pl.Series:
    """Return what a clock shows at some instants, all in microseconds.

    >>> show_at(pl.Series([0]), "Asia/Tokyo").to_list()
    [32400000000]
    """
    utc = instants.cast(pl.Datetime("us", "UTC"))
    return utc.dt.convert_time_zone(zone).dt.replace_time_zone(None).to_physical()


def pane_starts(panes: pl.Series, width_us: int, offset_us: int, zone: str) -> pl.Series:
    """Return the instants at which some panes begin, each ``width_us`` wide by the clock."""
    return find_reached(panes * width_us + offset_us, zone)


def panes_at(instants: pl.Series, width_us: int, offset_us: int, zone: str) -> pl.Series:
    """Return the panes that some instants are in; a pane is a day or more wide.

    >>> hours = pl.Series([-3_600_000_001, -3_600_000_000])
    >>> panes_at(hours, 86_400_000_000, 0, "Europe/Berlin").to_list()
    [-1, 0]
    """
    if instants.is_empty():
        return instants
    near = _near(instants, width_us, offset_us)
    starts = pane_starts(near, width_us, offset_us, zone)
    places = np.searchsorted(starts.to_numpy(), instants.to_numpy(), side="right") - 1
    return pl.Series(instants.name, near.to_numpy()[places])


def _near(instants: pl.Series, width_us: int, offset_us: int) -> pl.Series:
    """Return the panes that instants may be in, sorted: those around their panes of UTC."""
    bounds = instants.min(), instants.max()
    low, high = (_pane_of_utc(bound, width_us, offset_us) for bound in bounds)
    if high - low < _FEW:
        return pl.int_range(low - _NEAR, high + _NEAR + 1, dtype=pl.Int64, eager=True)
    some = ((instants.clip(-_MOST_US, _MOST_US) - offset_us) // width_us).unique()
    around = [some + step for step in range(-_NEAR, _NEAR + 1)]
    return pl.concat(around).unique().sort()


def _pane_of_utc(instant: object, width_us: int, offset_us: int) -> int:
    assert isinstance(instant, int)
    return (max(-_MOST_US, min(instant, _MOST_US)) - offset_us) // width_us


@lru_cache(maxsize=1024)
def pane_at(instant: int, width_us: int, offset_us: int, zone: str) -> int:
    """Return the pane that an instant is in."""
    found = panes_at(pl.Series([instant], dtype=pl.Int64), width_us, offset_us, zone)
    return int(found[0])


@lru_cache(maxsize=1024)
def pane_start(pane: int, width_us: int, offset_us: int, zone: str) -> int:
    """Return the instant at which a pane begins."""
    return int(pane_starts(pl.Series([pane], dtype=pl.Int64), width_us, offset_us, zone)[0])
