"""Windows: by time, by count of rows, by session.

Laws: a row at time t is in exactly the time windows ``[start, start + size)`` with
``start <= t < start + size`` and ``start`` a multiple of the advance, so it is in exactly one pane;
row n of a group (from 0, in stream order) is in exactly the count windows k with
``k * every <= n < k * every + size``; two neighbouring rows of a group are in one session exactly
if they are at most the gap apart (as in Spark and Flink).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from penstock.query.durations import Duration, format_duration, parse_duration


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow:
    """A window of ``size_us`` microseconds that begins every ``every_us`` microseconds."""

    size_us: int
    every_us: int

    def problems(self) -> list[str]:
        """Return what is wrong with the window, as sentences."""
        found = []
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

    @property
    def pane_us(self) -> int:
        """The width of a pane: the greatest common divisor of size and advance."""
        return gcd(self.size_us, self.every_us)

    def __str__(self) -> str:
        if self.size_us == self.every_us:
            return f"tumbling {format_duration(self.size_us)}"
        return f"sliding {format_duration(self.size_us)} every {format_duration(self.every_us)}"


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


def tumbling(size: Duration) -> TimeWindow:
    """Return windows that follow one another without overlap.

    >>> str(tumbling("1 minute"))
    'tumbling 1m'
    """
    micros = parse_duration(size)
    return TimeWindow(size_us=micros, every_us=micros)


def sliding(size: Duration, *, every: Duration) -> TimeWindow:
    """Return windows of ``size`` that begin every ``every``.

    >>> window = sliding("1 hour", every="1 minute")
    >>> str(window), window.pane_us
    ('sliding 1h every 1m', 60000000)
    """
    return TimeWindow(size_us=parse_duration(size), every_us=parse_duration(every))


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
