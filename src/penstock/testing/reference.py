"""The reference evaluator: what a query means, tuple by tuple, in plain Python.

It shares no kernel with the engine. Only scalar expressions are Polars' (that is the language they
are written in), each over a frame of one row; an aggregate that keeps its rows gets a frame of its
window. Lateness, windows, groups, functions, order and watermarks are spelled out here.

Sources are read one after the other, and any other interleaving would give the same: whether a row
is late depends on earlier rows of its own source alone; a window is closed only by a watermark that
no row in time can still undercut, so it holds the same rows whenever it closes; and what has been
written in the end depends only on the final watermarks, which are maxima over all rows. Sources
that may be idle are not modelled, since that depends on the clock.

Law: there is no state here that an epoch, an instance or a crash could divide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import polars as pl

from penstock.query import nodes
from penstock.query.aggregates import Call, result_type
from penstock.query.nodes import Node, topological
from penstock.query.windows import TimeWindow
from penstock.testing.folds import fold, rank

Values = dict[str, Any]
EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A tuple with its place in stream order; a result has its operator's number as source."""

    time: int
    source: int
    position: int
    values: Values

    @property
    def place(self) -> tuple[int, int, int]:
        """The place in stream order."""
        return self.time, self.source, self.position


@dataclass(slots=True, kw_only=True)
class Reference:
    """What a query gives; keys are the numbers of sinks and of sources."""

    rows: dict[int, list[Values]] = field(default_factory=dict)
    late: dict[int, list[Values]] = field(default_factory=dict)
    read: int = 0
    late_count: int = 0
    refused: int = 0
    refused_results: int = 0


def evaluate(
    sinks: tuple[nodes.Sink, ...],
    inputs: Mapping[int, Sequence[Mapping[str, Any]]],
    finish: bool = False,
) -> Reference:
    """Return what the sinks have got once all rows have been read.

    Args:
        sinks: The sinks of the query.
        inputs: The rows of each source, by its number in `topological` order, as they arrive.
        finish: Whether the input has ended, which closes every window.

    >>> import penstock as ps
    >>> rows = [{"x": i, "ts": ps.at(f"2024-01-01 00:00:0{i}")} for i in (1, 5, 2, 7)]
    >>> out = ps.from_rows(rows, time="ts").aggregate(window=ps.tumbling("5s"), n="sum(x)")
    >>> found = evaluate(out.write_memory().sinks, {0: rows})
    >>> [row["n"] for row in found.rows[2]], len(found.late[0])
    ([1], 1)
    """
    return _Evaluation(sinks, inputs, finish).run()


class _Evaluation:
    """Every operator's output, in topological order; an output is a list of rows."""

    def __init__(
        self,
        sinks: tuple[nodes.Sink, ...],
        inputs: Mapping[int, Sequence[Mapping[str, Any]]],
        finish: bool,
    ) -> None:
        self.nodes = topological(sinks)
        self.number = {id(node): i for i, node in enumerate(self.nodes)}
        self.inputs, self.finish = inputs, finish
        self.rows: list[list[Row]] = []
        self.marks: list[float] = []
        self.refused: set[tuple[int, int]] = set()
        self.found = Reference()

    def run(self) -> Reference:
        for number, node in enumerate(self.nodes):
            if isinstance(node, nodes.Source):
                self._source(number, node)
                continue
            places = [self.number[id(child)] for child in node.inputs]
            self.marks.append(min(self.marks[i] for i in places))
            arriving = [row for i in places for row in self.rows[i]]
            self.rows.append(self._operator(number, node, arriving))
            if isinstance(node, nodes.Aggregate):
                self.marks[number] += 1
        self.found.late_count = sum(len(rows) for rows in self.found.late.values())
        self.found.refused = len(self.refused)
        return self.found

    def _source(self, number: int, source: nodes.Source) -> None:
        frame = pl.DataFrame(self.inputs.get(number, ()), schema=dict(source.schema))
        admitted, late, highest = [], [], -math.inf
        for position, values in enumerate(frame.iter_rows(named=True)):
            if values[source.time] is None:
                self.refused.add((number, position))
                continue
            time = to_micros(values[source.time])
            if time < highest - source.delay_us:
                late.append(values)
                continue
            highest = max(highest, time)
            admitted.append(Row(time=time, source=number, position=position, values=values))
        self.rows.append(admitted)
        self.marks.append(math.inf if self.finish else highest - source.delay_us)
        self.found.late[number] = late
        self.found.read += frame.height

    def _operator(self, number: int, node: Node, rows: list[Row]) -> list[Row]:
        if isinstance(node, nodes.Aggregate):
            return list(self._aggregate(number, node, rows))
        if isinstance(node, nodes.Sink):
            self.found.rows[number] = [_picked(row, node) for row in self._sink(number, node, rows)]
            return []
        if isinstance(node, nodes.Union):
            return [_with(row, _picked(row, node)) for row in rows]
        done = [(row, self._attempt(row, _computed, node, row)) for row in rows]
        return [_with(row, values) for row, values in done if values is not None]

    def _sink(self, number: int, node: nodes.Sink, rows: list[Row]) -> list[Row]:
        if not node.ordered:
            return rows
        flat = [name for name, dtype in node.schema.items() if not dtype.is_nested()]
        return sorted(
            (row for row in rows if row.time < self.marks[number]),
            key=lambda row: (row.place, [rank(row.values[name]) for name in flat]),
        )

    def _aggregate(self, number: int, node: nodes.Aggregate, rows: list[Row]) -> Iterator[Row]:
        groups: dict[tuple[Any, ...], list[tuple[Row, list[Any]]]] = {}
        for row in rows:
            arguments = self._attempt(row, _arguments, node, row)
            if arguments is None:
                continue
            key = tuple(rank(row.values[name]) for name in node.by)
            for start in windows_of(row.time, node.window):
                groups.setdefault((start, key), []).append((row, arguments))
        for (start, _), members in groups.items():
            end = start + node.window.size_us
            if end > self.marks[number]:
                continue
            result = Row(
                time=end,
                source=number,
                position=0,
                values={
                    **{name: members[0][0].values[name] for name in node.by},
                    "window_start": EPOCH + timedelta(microseconds=start),
                    "window_end": EPOCH + timedelta(microseconds=end),
                },
            )
            values = self._attempt(result, _results, node, members)
            if values is not None:
                yield _with(result, result.values | values)

    def _attempt(self, row: Row, step: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a step gives, or None after the row (or the result) has been refused."""
        try:
            return step(*arguments)
        except Exception:  # whatever an expression or a user's function raises
            if isinstance(self.nodes[row.source], nodes.Source):
                self.refused.add((row.source, row.position))
            else:
                self.found.refused_results += 1
            return None


def to_micros(time: date) -> int:
    """Return an event time in microseconds since 1970, UTC.

    >>> to_micros(datetime(1969, 12, 31, 23, 59, 59)), to_micros(date(1970, 1, 2))
    (-1000000, 86400000000)
    """
    if not isinstance(time, datetime):
        time = datetime(time.year, time.month, time.day)
    if time.tzinfo is not None:
        time = time.astimezone(UTC).replace(tzinfo=None)
    return (time - EPOCH) // timedelta(microseconds=1)


def windows_of(time: int, window: TimeWindow) -> Iterator[int]:
    """Yield the starts of the windows that hold a time, the last one first.

    >>> list(windows_of(-1, TimeWindow(size_us=7, every_us=3)))
    [-3, -6]
    """
    start = time - time % window.every_us
    while start + window.size_us > time:
        yield start
        start -= window.every_us


def _with(row: Row, values: Values) -> Row:
    return Row(time=row.time, source=row.source, position=row.position, values=values)


def _picked(row: Row, node: Node) -> Values:
    return {name: row.values[name] for name in node.schema}


def _frame(rows: Sequence[Row], node: Node) -> pl.DataFrame:
    """Return the rows that come into an operator as a frame."""
    schema = dict(node.inputs[0].schema)
    return pl.DataFrame([_picked(row, node.inputs[0]) for row in rows], schema=schema)


def _computed(node: Node, row: Row) -> Values | None:
    """Return what a map, a filter or a function makes of one row; None is no row."""
    frame = _frame([row], node)
    if isinstance(node, nodes.Map):
        values = frame.select(expression for _, expression in node.columns).row(0, named=True)
        return row.values | values if node.keep else values
    if isinstance(node, nodes.Filter):
        return row.values if frame.select(node.predicate).item() else None
    assert isinstance(node, nodes.Apply), f"no meaning for {node.title}"
    made = node.function(frame)
    return made.select(pl.col(name).cast(dtype) for name, dtype in node.schema.items()).row(
        0, named=True
    )


def _arguments(node: nodes.Aggregate, row: Row) -> list[Any]:
    """Return each call's argument for one row as a list: of one value, or of none if filtered."""
    frame = _frame([row], node)

    def value(call: Call) -> list[Any]:
        if call.argument is None:
            return [None]
        kept = call.keep is None or frame.select(call.keep).item()
        return [frame.select(call.argument).item()] if kept else []

    return [value(call) for call in node.aggregation.calls or ()]


def _results(node: nodes.Aggregate, members: list[tuple[Row, list[Any]]]) -> Values:
    """Return the values of one group in one window."""
    aggregation = node.aggregation
    outer = [
        expression.cast(node.schema[name]).alias(name)
        for name, expression in zip(aggregation.names, aggregation.outer, strict=True)
    ]
    if aggregation.calls is None:
        return _frame(_in_order(node, members), node).select(outer).row(0, named=True)
    results: dict[str, pl.Series] = {}
    for i, call in enumerate(aggregation.calls):
        placed = [(row.place, value) for row, arguments in members for value in arguments[i]]
        if call.argument is not None and not call.argument.meta.root_names():
            placed = placed[:1]  # to Polars, an aggregate of a literal sees it once
        results[f"__a{i}"] = pl.Series([fold(call, placed)], dtype=result_type(call))
    return pl.DataFrame(results).select(outer).row(0, named=True)


def _in_order(node: nodes.Aggregate, members: list[tuple[Row, list[Any]]]) -> list[Row]:
    """Return rows in stream order; rows that tie are told apart by the columns that are read."""
    read = {name for e in node.aggregation.outer for name in e.meta.root_names()}
    flat = [
        name
        for name, dtype in node.inputs[0].schema.items()
        if name in read and not dtype.is_nested()
    ]
    return sorted(
        (row for row, _ in members),
        key=lambda row: (row.place, [rank(row.values[name]) for name in flat]),
    )
