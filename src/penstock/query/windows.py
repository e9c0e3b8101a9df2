"""Windows: by time, by count of rows, by session.

Laws: a row at time t is in exactly the time windows ``[start, start + size)`` with
``start <= t < start + size`` and ``start`` the offset past a multiple of the advance, so it is in
exactly one pane; with a zone these are readings of its clock, and its days have 23 to 25 hours;
row n of a group (from 0, in stream order) is in exactly the count windows k with
``k * every <= n < k * every + size``; two neighbouring rows of a group are in one session exactly
if they are at most the gap apart (as in Spark and Flink).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import polars as pl

from penstock.base.durations import DAY, Duration, format_duration, parse_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """A window of ``size_us`` microseconds that begins every ``every_us`` microseconds.

    Attributes:
        size_us: How long it is.
        every_us: When the next one begins.
        offset_us: When the first one begins, counted from 1970; less than the advance.
        zone: The zone by whose clock this is measured, in whole days; None for UTC.
    """

    size_us: int
    every_us: int
    offset_us: int = 0
    zone: str | None = None

    def problems(self) -> list[str]:
        """Return what is wrong with the window, as sentences."""
        found = [] if self.zone is None else self._zone_problems(self.zone)
        if self.size_us <= 0:
            found.append(f"window size must be positive; size={format_duration(self.size_us)!r}")
        if self.every_us <= 0:
            found.append(f"window advance must be positive; every={self.every_us}us")
        elif self.size_us > 0 and self.every_us > self.size_us:
            found.append(
                "window advance is larger than its size, so rows between windows would be lost; "
                f"size={format_duration(self.size_us)!r}, every={format_duration(self.every_us)!r}"
            )
        return found

    def _zone_problems(self, zone: str) -> list[str]:
        if not is_zone(zone):
            return [f"unknown time zone; zone={zone!r}, allowed are names such as 'Europe/Berlin'"]
        return [
            f"a window with a zone is of whole local days; {name}={format_duration(micros)!r}; "
            "for other sizes leave zone= out and say with offset= where windows begin"
            for name, micros in {"every": self.every_us, "size": self.size_us}.items()
            if micros % DAY and (name == "size" or micros != self.size_us)
        ]

    @property
    def pane_us(self) -> int:
        """The width of a pane: the greatest common divisor of size and advance."""
        return gcd(self.size_us, self.every_us)

    def facts(self, shown_in: str | None) -> dict[str, Any]:
        """Return what panes depend on and are shown in, as plain values for the checkpoint."""
        given = {"offset_us": self.offset_us or None, "zone": self.zone, "shown_in": shown_in}
        return {"pane_us": self.pane_us} | {n: v for n, v in given.items() if v is not None}

    def __str__(self) -> str:
        kind = f"tumbling {format_duration(self.size_us)}"
        if self.size_us != self.every_us:
            every = format_duration(self.every_us)
            kind = f"sliding {format_duration(self.size_us)} every {every}"
        offset = f" offset {format_duration(self.offset_us)}" if self.offset_us else ""
        return f"{kind}{offset}" + (f" in {self.zone}" if self.zone else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CountWindow:
    """A window of ``size`` rows of a group that begins every ``every`` rows."""

    size: int
    every: int

    def problems(self) -> list[str]:
        """Return what is wrong with the window, as sentences."""
        if 1 <= self.every <= self.size:
            return []
        return [
            "a count window has at least one row and advances by at least one and at most its "
            f"size; size={self.size!r}, every={self.every!r}"
        ]

    def __str__(self) -> str:
        return f"{self.size} rows" + ("" if self.every == self.size else f" every {self.every}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindow:
    """Rows of a group that follow one another within ``gap_us`` microseconds."""

    gap_us: int

    def problems(self) -> list[str]:
        """Return what is wrong with the window, as sentences."""
        if self.gap_us > 0:
            return []
        return [f"session gap must be positive; gap={format_duration(self.gap_us)!r}"]

    def __str__(self) -> str:
        return f"sessions with gaps up to {format_duration(self.gap_us)}"


Window = TimeWindow | CountWindow | SessionWindow
WINDOW_COLUMNS = ("window_start", "window_end")
"""The columns of a result that say when its window was."""


def bounds_of(window: Window, zone: str | None) -> dict[str, pl.DataType]:
    """Return the columns that say when a window was, in its zone or else in that of the event time.

    >>> bounds_of(session("1 hour"), "Europe/Oslo")["window_end"]
    Datetime(time_unit='us', time_zone='Europe/Oslo')
    """
    own = window.zone if isinstance(window, TimeWindow) else None
    if own is None or not is_zone(own):
        own = zone
    return dict.fromkeys(WINDOW_COLUMNS, pl.Datetime("us", own))


def zone_of(dtype: pl.DataType | None) -> str | None:
    """Return the time zone of a type; None if it has none.

    >>> zone_of(pl.Datetime("us", "Asia/Tokyo")), zone_of(pl.Date())
    ('Asia/Tokyo', None)
    """
    return dtype.time_zone if isinstance(dtype, pl.Datetime) else None


def is_zone(name: str) -> bool:
    """Return whether there is a time zone of a name.

    >>> is_zone("Europe/Berlin"), is_zone("Berlin")
    (True, False)
    """
    try:
        pl.Series([0], dtype=pl.Datetime("us", name)).dt.hour()
    except pl.exceptions.PolarsError:
        return False
    return True


def tumbling(
    size: Duration, *, offset: Duration = "0 seconds", zone: str | None = None
) -> TimeWindow:
    """Return windows that follow one another without overlap.

    Args:
        size: How long a window is.
        offset: How long after 1970-01-01 00:00 one of them begins.
        zone: The time zone whose days they are; then the size is a number of days. UTC unless
            given.

    >>> str(tumbling("1 minute")), str(tumbling("1 day", offset="6 hours", zone="Europe/Berlin"))
    ('tumbling 1m', 'tumbling 1d offset 6h in Europe/Berlin')
    """
    return sliding(size, every=size, offset=offset, zone=zone)


def sliding(
    size: Duration,
    *,
    every: Duration,
    offset: Duration = "0 seconds",
    zone: str | None = None,
) -> TimeWindow:
    """Return windows of ``size`` that begin every ``every``.

    Args:
        size: How long a window is.
        every: When the next one begins.
        offset: How long after 1970-01-01 00:00 one of them begins.
        zone: The time zone whose days they are; then size and advance are numbers of days. UTC
            unless given.

    >>> window = sliding("1 hour", every="1 minute")
    >>> str(window), window.pane_us
    ('sliding 1h every 1m', 60000000)
    """
    every_us, offset_us = parse_duration(every), parse_duration(offset)
    return TimeWindow(
        size_us=parse_duration(size),
        every_us=every_us,
        offset_us=offset_us % every_us if every_us > 0 else 0,
        zone=zone,
    )


def count_window(size: int, *, every: int | None = None) -> CountWindow:
    """Return windows of ``size`` rows of a group that begin every ``every`` rows.

    Rows are counted in stream order. Without ``every`` windows follow one another.

    >>> str(count_window(100, every=10))
    '100 rows every 10'
    """
    return CountWindow(size=size, every=size if every is None else every)


def session(gap: Duration) -> SessionWindow:
    """Return windows of rows that follow one another within ``gap``.

    >>> str(session("30 minutes"))
    'sessions with gaps up to 30m'
    """
    return SessionWindow(gap_us=parse_duration(gap))
