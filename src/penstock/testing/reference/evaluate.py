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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from penstock.query import nodes
from penstock.query.dedup import Dedup
from penstock.query.enrich import Enrich, Lookup
from penstock.query.joins import Join, Product
from penstock.query.nodes import Node, topological
from penstock.query.process import Process
from penstock.query.top import Top
from penstock.testing.reference.aggregates import aggregate
from penstock.testing.reference.dedups import dedup
from penstock.testing.reference.enriches import enrich, looked_up
from penstock.testing.reference.joins import join, product
from penstock.testing.reference.processes import run_process
from penstock.testing.reference.rows import (
    Arriving,
    Row,
    Values,
    frame_of,
    in_order,
    to_micros,
)
from penstock.testing.reference.tops import top

STATEFUL: dict[type[Node], Callable[[Any, Arriving], list[Row]]] = {
    nodes.Aggregate: aggregate,
    Top: top,
    Join: join,
    Product: product,
    Dedup: dedup,
    Enrich: enrich,
    Process: run_process,
}
"""What each stateful operator makes of all rows that come to it."""


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
        self.reached: list[float] = []
        self.refused: set[tuple[int, int]] = set()
        self.found = Reference()

    def run(self) -> Reference:
        for number, node in enumerate(self.nodes):
            if isinstance(node, nodes.Source):
                self._source(number, node)
                continue
            places = [self.number[id(child)] for child in node.inputs]
            mark = min(self.marks[i] for i in places)
            reached = min(self.reached[i] for i in places)
            ports = [self.rows[i] for i in places]
            arriving = Arriving(
                number=number, ports=ports, mark=mark, attempt=self._attempt, reached=reached
            )
            self.rows.append(self._operator(node, arriving))
            self.marks.append(mark + node.after_us)
            self.reached.append(reached + node.after_us)
        self.found.late_count = sum(len(rows) for rows in self.found.late.values())
        self.found.refused = len(self.refused)
        return self.found

    def _source(self, number: int, source: nodes.Source) -> None:
        frame = pl.DataFrame(self.inputs.get(number, ()), schema=dict(source.schema))
        admitted, late, highest = [], [], -math.inf
        for position, values in enumerate(frame.iter_rows(named=True)):
            time = _event_time(source, values)
            if time is None:
                self.refused.add((number, position))
                continue
            if time < highest - source.delay_us:
                late.append(values)
                continue
            highest = max(highest, time)
            admitted.append(Row(time=time, source=number, position=position, values=values))
        self.rows.append(admitted)
        self.reached.append(highest - source.delay_us)
        self.marks.append(math.inf if self.finish else highest - source.delay_us)
        self.found.late[number] = late
        self.found.read += frame.height

    def _operator(self, node: Node, arriving: Arriving) -> list[Row]:
        if type(node) in STATEFUL:
            return STATEFUL[type(node)](node, arriving)
        if isinstance(node, nodes.Sink):
            found = [row.picked(node) for row in _written(node, arriving)]
            self.found.rows[arriving.number] = found
            return []
        if isinstance(node, nodes.Union | nodes.Spread):
            return [row.having(row.picked(node)) for row in arriving.rows]
        done = [(row, self._attempt(row, _computed, node, row)) for row in arriving.rows]
        return [row.having(values) for row, made in done for values in made or ()]

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


def _event_time(source: nodes.Source, values: Values) -> int | None:
    """Return the event time of a row; None if it has none."""
    time = values.get(source.time)
    if source.moment is not None:
        row = pl.DataFrame([values], schema=dict(source.schema))
        try:
            time = row.select(source.moment).item()
        except Exception:  # whatever an expression raises
            return None
    return None if time is None else to_micros(time)


def _written(node: nodes.Sink, arriving: Arriving) -> list[Row]:
    """Return the rows that a sink gets; an ordered one, those whose turn has come, in order."""
    if not node.ordered:
        return arriving.rows
    columns = [name for name, dtype in node.schema.items() if not isinstance(dtype, pl.Array)]
    return in_order([row for row in arriving.rows if row.time < arriving.mark], columns)


def _computed(node: Node, row: Row) -> list[Values]:
    """Return what a stateless operator makes of one row: any number of rows."""
    frame = frame_of([row], node.inputs[0])
    if isinstance(node, nodes.Map):
        values = frame.select(expression for _, expression in node.columns).row(0, named=True)
        return [row.values | values if node.keep else values]
    if isinstance(node, nodes.Filter):
        return [row.values] if frame.select(node.predicate).item() else []
    if isinstance(node, nodes.Explode):
        return [_unfolded(node, row, element) for element in row.values[node.column] or ()]
    if isinstance(node, Lookup):
        return looked_up(node, row)
    assert isinstance(node, nodes.Apply), f"no meaning for {node.title}"
    made = node.function(frame)
    return made.select(pl.col(name).cast(dtype) for name, dtype in node.schema.items()).to_dicts()


def _unfolded(node: nodes.Explode, row: Row, element: Any) -> Values:
    """Return the row of one element; a struct's fields are columns, null fields if it is null."""
    dtype = node.inputs[0].schema[node.column]
    assert isinstance(dtype, pl.List)
    if not isinstance(dtype.inner, pl.Struct):
        return row.values | {node.column: element}
    rest = {name: value for name, value in row.values.items() if name != node.column}
    return rest | {f.name: None if element is None else element[f.name] for f in dtype.inner.fields}
