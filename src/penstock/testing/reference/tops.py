"""The first rows of each group and window, for the reference evaluator."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cmp_to_key
from typing import Any

from penstock.query.top import Top
from penstock.testing.reference.aggregates import key_of
from penstock.testing.reference.folds import rank
from penstock.testing.reference.rows import Arriving, Row, flat_columns, frame_of, to_datetime
from penstock.testing.reference.windows import windows_of

Valued = tuple[Row, Any]
"""A row with the value by which it is ordered."""
Bounds = tuple[int, int]
"""The start and the end of a window."""


def top(node: Top, arriving: Arriving) -> list[Row]:
    """Return the first rows of the windows that have closed."""
    groups: dict[tuple[Any, ...], list[Valued]] = {}
    for row, value in _valued(node, arriving):
        for bounds in _bounds(node, row.time):
            groups.setdefault((bounds, key_of(row, node.by)), []).append((row, value))
    return [
        found
        for (bounds, _), members in groups.items()
        if bounds[1] <= arriving.mark
        for found in _first(node, arriving, members, bounds)
    ]


def _valued(node: Top, arriving: Arriving) -> Iterator[Valued]:
    for row in arriving.rows:
        value = arriving.attempt(row, _value, node, row)
        if value is not None:
            yield row, value[0]


def _value(node: Top, row: Row) -> list[Any]:
    return [frame_of([row], node.inputs[0]).select(node.order).item()]


def _bounds(node: Top, time: int) -> Iterator[Bounds]:
    if node.window is None:
        yield time, time + 1
    else:
        yield from windows_of(time, node.window)


def _first(node: Top, arriving: Arriving, members: list[Valued], bounds: Bounds) -> Iterator[Row]:
    flat = flat_columns(node.inputs[0])

    def place(member: Valued) -> tuple[Any, ...]:
        row = member[0]
        return row.place, [rank(row.values[name]) for name in flat]

    def compared(left: Valued, right: Valued) -> int:
        """Return which of two values comes first: nulls last, else as asked."""
        a, b = rank(left[1]), rank(right[1])
        if a == b:
            return 0
        if a[0] == 0 or b[0] == 0:
            return 1 if a[0] == 0 else -1
        return (1 if a < b else -1) * (1 if node.descending else -1)

    ordered = sorted(sorted(members, key=place), key=cmp_to_key(compared))
    for number, (row, _) in enumerate(ordered[: node.k], 1):
        yield _result(node, arriving, row, bounds, number)


def _result(node: Top, arriving: Arriving, row: Row, bounds: Bounds, number: int) -> Row:
    shown = row.picked(node.inputs[0]) | {"rank": number}
    if node.window is None:
        return arriving.result(row.time, shown)
    start, end = bounds
    times = {
        "window_start": to_datetime(start, node.zone),
        "window_end": to_datetime(end, node.zone),
    }
    return arriving.result(end, shown | times)
