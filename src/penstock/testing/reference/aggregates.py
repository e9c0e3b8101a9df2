"""Aggregates, window by window, for the reference evaluator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from penstock.query.aggregates import Call, result_type
from penstock.query.nodes import Aggregate
from penstock.query.windows import CountWindow, SessionWindow
from penstock.testing.reference.counts import counts_of
from penstock.testing.reference.folds import fold, rank
from penstock.testing.reference.rows import (
    Arriving,
    Row,
    Values,
    flat_columns,
    frame_of,
    in_order,
    to_datetime,
)
from penstock.testing.reference.sessions import sessions_of
from penstock.testing.reference.windows import windows_of

Member = tuple[Row, list[Any]]
"""A row of a window with its argument for each call."""


def aggregate(node: Aggregate, arriving: Arriving) -> list[Row]:
    """Return the results of the windows that have closed."""
    groups: dict[tuple[Any, ...], list[Member]] = {}
    for member in _members(node, arriving):
        groups.setdefault(key_of(member[0], node.by), []).append(member)
    closed = [window for members in groups.values() for window in _closed(node, members, arriving)]
    results = [result(node, arriving, found, start, end, end) for start, end, found in closed]
    return [row for row in results if row is not None]


def _closed(
    node: Aggregate, members: list[Member], arriving: Arriving
) -> Iterator[tuple[int, int, list[Member]]]:
    """Yield start, end and members of one group's windows that have closed."""
    if isinstance(node.window, CountWindow):
        flat = flat_columns(node.inputs[0], among=node.aggregation.reads)
        yield from counts_of(members, node.window, arriving.mark, flat)
        return
    if isinstance(node.window, SessionWindow):
        yield from sessions_of(members, node.window, arriving.mark)
        return
    windows: dict[tuple[int, int], list[Member]] = {}
    for member in members:
        for bounds in windows_of(member[0].time, node.window):
            windows.setdefault(bounds, []).append(member)
    for (start, end), found in windows.items():
        if end <= arriving.mark:
            yield start, end, found


def _members(node: Aggregate, arriving: Arriving) -> Iterator[Member]:
    for row in arriving.rows:
        arguments = arriving.attempt(row, _arguments, node, row)
        if arguments is not None:
            yield row, arguments


def key_of(row: Row, by: tuple[str, ...]) -> tuple[Any, ...]:
    """Return the group of a row."""
    return tuple(rank(row.values[name]) for name in by)


def result(
    node: Aggregate, arriving: Arriving, members: list[Member], start: int, end: int, time: int
) -> Row | None:
    """Return the result of one group in one window; None if it was refused."""
    shown = {
        **{name: members[0][0].values[name] for name in node.by},
        "window_start": to_datetime(start, node.zone),
        "window_end": to_datetime(end, node.zone),
    }
    row = arriving.result(time, shown)
    values = arriving.attempt(row, _results, node, members)
    return None if values is None else row.having(shown | values)


def _arguments(node: Aggregate, row: Row) -> list[Any]:
    """Return each call's argument for one row as a list: of one value, or of none if filtered."""
    frame = frame_of([row], node.inputs[0])

    def value(call: Call) -> list[Any]:
        if call.argument is None:
            return [None]
        kept = call.keep is None or frame.select(call.keep).item()
        return [frame.select(call.argument).item()] if kept else []

    return [value(call) for call in node.aggregation.calls or ()]


def _results(node: Aggregate, members: list[Member]) -> Values:
    """Return the values of one group in one window."""
    aggregation = node.aggregation
    outer = [
        expression.cast(node.schema[name]).alias(name)
        for name, expression in zip(aggregation.names, aggregation.outer, strict=True)
    ]
    if aggregation.calls is None:
        flat = flat_columns(node.inputs[0], among=aggregation.reads)
        rows = in_order([row for row, _ in members], flat)
        return frame_of(rows, node.inputs[0]).select(outer).row(0, named=True)
    results: dict[str, pl.Series] = {}
    for i, call in enumerate(aggregation.calls):
        placed = [(row.place, value) for row, arguments in members for value in arguments[i]]
        if call.argument is not None and not call.argument.meta.root_names():
            placed = placed[:1]  # to Polars, an aggregate of a literal sees it once
        results[f"__a{i}"] = pl.Series([fold(call, placed)], dtype=result_type(call))
    return pl.DataFrame(results).select(outer).row(0, named=True)
