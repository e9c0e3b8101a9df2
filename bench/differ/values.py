"""What a statement gives, in a form in which both sides can be compared."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import time, timedelta
from decimal import Decimal
from typing import Any

_CLOSE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The row has no value: an error, which in Penstock is a dead letter."""

    reason: str

    def __str__(self) -> str:
        """Return it as a report shows it."""
        return f"fails ({self.reason})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one side makes of a statement: the value of each row, or why it refuses it."""

    values: Mapping[Hashable, Any] | None = None
    refusal: str = ""

    @property
    def refused(self) -> bool:
        """Whether the statement was refused as a whole, before any row."""
        return self.values is None


def plain(value: Any) -> Any:
    """Return a value as its kind and something that compares by value.

    >>> plain(timedelta(seconds=1)), plain(True), plain(1)
    (('span', 1000000), ('bool', True), ('int', 1))
    """
    if value is None or isinstance(value, Failed):
        return value
    if isinstance(value, list):
        return ("list", tuple(plain(part) for part in value))
    for kind, name in _KINDS:
        if isinstance(value, kind):
            return (name, _bare(value))
    raise TypeError(f"no such value; value={value!r}")


_KINDS: tuple[tuple[type, str], ...] = (
    (bool, "bool"), (int, "int"), (float, "float"), (Decimal, "decimal"), (str, "text"),
    (time, "clock"), (timedelta, "span"),
)  # fmt: skip


def _bare(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    return value


def same(ours: Any, theirs: Any) -> bool:
    """Return whether two plain values are equal; floats may differ in their last digits.

    >>> same(("float", 0.1 + 0.2), ("float", 0.3)), same(("int", 1), ("float", 1.0))
    (True, False)
    """
    if isinstance(ours, Failed) or isinstance(theirs, Failed):
        return isinstance(ours, Failed) and isinstance(theirs, Failed)
    if ours is None or theirs is None:
        return ours is theirs
    if ours[0] != theirs[0]:
        return False
    if ours[0] == "list":
        pairs = zip(ours[1], theirs[1], strict=False)
        return len(ours[1]) == len(theirs[1]) and all(same(a, b) for a, b in pairs)
    if ours[0] == "float":
        return _close(ours[1], theirs[1])
    return bool(ours[1] == theirs[1]) or (ours[0] == "text" and _same_float(ours[1], theirs[1]))


def _same_float(a: str, b: str) -> bool:
    """Return whether two texts are the same float but for its last digits."""
    long = re.compile(r"-?\d\.\d{8,}(e[+-]\d+)?|-?\d{2,}\.\d{6,}")
    short = re.compile(r"-?\d+(\.\d+)?(e[+-]\d+)?")
    one, other = (a, b) if long.fullmatch(a) else (b, a)
    return bool(long.fullmatch(one) and short.fullmatch(other)) and _close(float(a), float(b))


def _close(a: float, b: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return math.isclose(a, b, rel_tol=_CLOSE, abs_tol=1e-300)


def first_difference(ours: Answer, theirs: Answer) -> tuple[Hashable, Any, Any] | None:
    """Return the first row in which two answers differ, with both values; None if equal."""
    if ours.values is None or theirs.values is None:
        if ours.refused and theirs.refused:
            return None
        return ("statement", ours.refusal or "accepts it", theirs.refusal or "accepts it")
    for row in {**theirs.values, **ours.values}:
        missing = Failed(reason="no such row")
        mine, other = ours.values.get(row, missing), theirs.values.get(row, missing)
        if not same(mine, other):
            return row, mine, other
    return None
