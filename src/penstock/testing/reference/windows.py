"""The windows of a row, for the reference evaluator; zones are those of Python."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from penstock.query.windows import TimeWindow
from penstock.testing.reference.rows import EPOCH, to_datetime, to_micros

_SECOND = 1_000_000
_TWO_DAYS = 2 * 86_400_000_000


def windows_of(time: int, window: TimeWindow) -> Iterator[tuple[int, int]]:
    """Yield the starts and ends of the windows that hold a time, the last one first.

    >>> list(windows_of(-1, TimeWindow(size_us=7, every_us=3)))
    [(-3, 4), (-6, 1)]
    """
    off = _TWO_DAYS if window.zone else 0  # no clock is further from UTC
    reading = time + off - (time + off - window.offset_us) % window.every_us
    while reading + window.size_us > time - off:
        start, end = _instant(reading, window.zone), _instant(reading + window.size_us, window.zone)
        if start <= time < end:
            yield start, end
        reading -= window.every_us


@lru_cache(maxsize=10_000)
def _instant(reading: int, zone: str | None) -> int:
    """Return when the clock of a zone first shows a reading or a later one."""
    if zone is None:
        return reading
    shown = EPOCH + timedelta(microseconds=reading)
    early, late = (_utc(shown.replace(tzinfo=ZoneInfo(zone), fold=fold)) for fold in (0, 1))
    if _shown(early, zone) == shown:
        return to_micros(early)
    before, after = to_micros(late) // _SECOND, to_micros(early) // _SECOND + 1
    while after - before > 1:  # the clock skips the reading, at a full second between these
        middle = (before + after) // 2
        reaches = _shown(to_datetime(middle * _SECOND, "UTC"), zone) >= shown
        before, after = (before, middle) if reaches else (middle, after)
    return after * _SECOND


def _utc(time: datetime) -> datetime:
    return time.astimezone(UTC)


def _shown(time: datetime, zone: str) -> datetime:
    return time.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
