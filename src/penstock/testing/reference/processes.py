"""Processes, row by row, for the reference evaluator: a key's whole life, from first to last row.

A user's class is called with one row at a time, in the batch form too. A state is put into a column
and taken out again after each call, since that is what an epoch's end does to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import polars as pl

from penstock.query import process, processes
from penstock.testing.reference.aggregates import key_of
from penstock.testing.reference.rows import (
    Arriving,
    Row,
    Values,
    flat_columns,
    frame_of,
    in_order,
    to_datetime,
    to_micros,
)


def run_process(node: process.Process, arriving: Arriving) -> list[Row]:
    """Return the results of the rows below the watermark and of the timers up to it."""
    due = [row for row in arriving.rows if row.time < arriving.mark]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in in_order(due, flat_columns(node.inputs[0])):
        groups.setdefault(key_of(row, node.by), []).append(row)
    lives = [_life(node, arriving, rows) for rows in groups.values()]
    return [result for life in lives for result in life]


def _life(node: process.Process, arriving: Arriving, rows: list[Row]) -> list[Row]:
    if isinstance(node.processor, processes.Process):
        return _Life(node, node.processor, arriving).run(rows)
    return _batches(node, node.processor, arriving, rows)


class _Context:
    """What a process may know and change; a plain list of timers."""

    def __init__(self, key: Values, state: Values | None, time: int, timers: set[int]) -> None:
        self.key, self.state, self._timers, self._time = key, state, set(timers), time
        self._in_timer = self._ended = False

    @property
    def time(self) -> datetime:
        return to_datetime(self._time)

    @property
    def timers(self) -> tuple[datetime, ...]:
        return tuple(to_datetime(time) for time in sorted(self._timers))

    def set_timer(self, time: datetime) -> None:
        plain = time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)
        assert isinstance(plain, datetime)
        if self._in_timer and to_micros(plain) <= self._time:
            raise ValueError("a timer would not end")
        if not self._ended:
            self._timers.add(max(to_micros(plain), self._time))

    def clear_timers(self) -> None:
        self._timers.clear()


class _Life:
    """All calls for one key."""

    def __init__(
        self, node: process.Process, processor: processes.Process, arriving: Arriving
    ) -> None:
        self.node, self.processor, self.arriving = node, processor, arriving
        self.output = {n: t for n, t in node.schema.items() if n not in node.by}
        self.state: Values | None = None
        self.timers: set[int] = set()
        self.key: Values = {}
        self.results: list[Row] = []

    def run(self, rows: list[Row]) -> list[Row]:
        self.key = {name: rows[0].values[name] for name in self.node.by}
        for row in rows:
            self._fire(row.time)
            context = _Context(dict(self.key), _copied(self.state), row.time, self.timers)
            self._call(self.processor.on_row, row.picked(self.node.inputs[0]), context)
            self._fire(row.time)  # what the row set to now
        # While the input goes on, timers may set timers; of those after its end none fires.
        self._fire(min(self.arriving.mark, self.arriving.reached))
        if self.arriving.mark == math.inf:
            for time in sorted(self.timers):
                if time in self.timers:
                    self._fire_one(time, ended=True)
        return self.results

    def _fire(self, until: float) -> None:
        while self.timers and min(self.timers) <= until:
            self._fire_one(min(self.timers))

    def _fire_one(self, time: int, *, ended: bool = False) -> None:
        self.timers.discard(time)
        context = _Context(dict(self.key), _copied(self.state), time, self.timers)
        context._in_timer, context._ended = True, ended
        self._call(self.processor.on_timer, to_datetime(time), context)

    def _call(self, call: Callable[..., Any], argument: Any, context: _Context) -> None:
        time = context._time

        def step() -> tuple[list[Values], Values | None]:
            made: Iterable[Values] | None = call(argument, context)
            assert not isinstance(made, Mapping)
            results = [_there_and_back(result, self.output) for result in made or ()]
            state = context.state
            return results, None if state is None else _there_and_back(state, self.node.state)

        done = self.arriving.attempt(self.arriving.result(time, self.key), step)
        if done is not None:
            results, self.state = done
            self.timers = context._timers
            self.results += [self.arriving.result(time, self.key | values) for values in results]


def _copied(state: Values | None) -> Values | None:
    return None if state is None else {name: _deep(value) for name, value in state.items()}


def _deep(value: Any) -> Any:
    if isinstance(value, list):
        return [_deep(item) for item in value]
    return {k: _deep(v) for k, v in value.items()} if isinstance(value, dict) else value


def _there_and_back(values: Any, schema: Mapping[str, pl.DataType]) -> Values:
    """Return values as a column gives them back.

    Raises:
        TypeError: They are not those that were declared, or of another type.
    """
    if not isinstance(values, dict) or set(values) != set(schema):
        raise TypeError(f"not the declared columns: {values!r}")
    for name, dtype in schema.items():
        if isinstance(values[name], bool) and dtype != pl.Boolean:
            raise TypeError(f"{name} is true or false")
    return {
        name: pl.Series([values[name]], dtype=dtype, strict=True).to_list()[0]
        for name, dtype in schema.items()
    }


def _batches(
    node: process.Process, processor: processes.BatchProcess, arriving: Arriving, rows: list[Row]
) -> list[Row]:
    """Return the results of calls with one row each, the state carried from one to the next."""
    columns = {key: node.schema[key] for key in node.by} | node.state
    state = pl.DataFrame(schema=columns)
    found: list[Row] = []
    for row in rows:
        made = arriving.attempt(arriving.result(row.time, {}), _batch, node, processor, row, state)
        if made is None:
            continue
        results, state = made
        found += [arriving.result(row.time, values) for values in results]
    return found


def _batch(
    node: process.Process, processor: processes.BatchProcess, row: Row, state: pl.DataFrame
) -> tuple[list[Values], pl.DataFrame]:
    frame = frame_of([row], node.inputs[0])
    one = frame.with_columns(pl.lit(0, dtype=pl.UInt32).alias("__row"))
    results, after = processor.on_rows(one, state)
    assert set(results.columns) == {*node.schema, "__row"}
    assert set(results["__row"].to_list()) <= {0}
    assert set(after.columns) == set(state.columns)
    assert after.height <= 1
    typed = results.select(pl.col(name).cast(dtype) for name, dtype in node.schema.items())
    for values in [*typed.to_dicts(), *after.to_dicts()]:
        key = Row(time=row.time, source=0, position=0, values=values)
        assert key_of(key, node.by) == key_of(row, node.by)
    return typed.to_dicts(), after.select(
        pl.col(name).cast(dtype) for name, dtype in state.schema.items()
    )
