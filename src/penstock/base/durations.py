"""Durations as users write them, as whole microseconds.

Law: a duration has one meaning everywhere; months and years have none and are refused.
"""

from __future__ import annotations

import re
from datetime import timedelta

MICROS = 1
MILLIS = 1_000
SECOND = 1_000_000
DAY = 86_400 * SECOND
_UNITS = {
    "us": MICROS,
    "microsecond": MICROS,
    "µs": MICROS,
    "ms": MILLIS,
    "millisecond": MILLIS,
    "s": SECOND,
    "sec": SECOND,
    "second": SECOND,
    "m": 60 * SECOND,
    "min": 60 * SECOND,
    "minute": 60 * SECOND,
    "h": 3600 * SECOND,
    "hr": 3600 * SECOND,
    "hour": 3600 * SECOND,
    "d": DAY,
    "day": DAY,
    "w": 7 * DAY,
    "week": 7 * DAY,
}
_PART = re.compile(r"\s*(-?\d+(?:\.\d+)?)\s*([a-zµ]+)\s*(?:,|and)?\s*", re.IGNORECASE)

Duration = str | timedelta


def parse_duration(value: Duration) -> int:
    """Return a duration in microseconds.

    Args:
        value: A ``timedelta``, or text such as ``"1 hour"``, ``"90s"`` or ``"1h 30m"``.

    Raises:
        ValueError: The text is not a duration of fixed length.

    >>> parse_duration("1 hour"), parse_duration("1h 30m"), parse_duration("250 ms")
    (3600000000, 5400000000, 250000)
    >>> parse_duration("1 month")
    Traceback (most recent call last):
    ...
    ValueError: unknown unit 'month' in duration '1 month'; allowed: us, ms, s, m, h, d, w
    """
    if isinstance(value, timedelta):
        return (value.days * 86_400 + value.seconds) * SECOND + value.microseconds
    total, at = 0.0, 0
    text = value.strip()
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            break
        total += float(part[1]) * _unit(part[2], text)
        at = part.end()
    if not text or at < len(text):
        raise ValueError(f"cannot read duration {value!r}; write it like '1 hour' or '90s'")
    return round(total)


def _unit(word: str, text: str) -> int:
    lower = word.lower()
    unit = _UNITS.get(lower) or _UNITS.get(lower.removesuffix("s"))
    if unit is None:
        raise ValueError(
            f"unknown unit {word!r} in duration {text!r}; allowed: us, ms, s, m, h, d, w"
        )
    return unit


def format_duration(micros: int) -> str:
    """Return a duration as short text.

    >>> format_duration(5_400_000_000), format_duration(0)
    ('1h 30m', '0s')
    """
    parts = []
    for unit, size in (
        ("d", DAY),
        ("h", 3600 * SECOND),
        ("m", 60 * SECOND),
        ("s", SECOND),
        ("ms", MILLIS),
        ("us", MICROS),
    ):
        count, micros = divmod(micros, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0s"
