"""Time windows: aligned, half-open, cut into panes.

Law: a row at time t is in exactly the windows ``[start, start + size)`` with
``start <= t < start + size`` and ``start`` a multiple of the advance; so it is in exactly one pane.
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
