"""Processes in batches: calls a user's class with all rows of many keys.

Law: where a call fails, its rows are halved, in order and with the state carried along, until the
rows to blame are alone; so what comes out is what calls with one row each would have given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from penstock.base.columns import TIME
from penstock.operators.keyed.process import refusal
from penstock.operators.keyed.process_state import KNOWN, OWN, TIMERS, Made, ProcessKernel, Turn
from penstock.operators.rowwise.blame import (
    Refusal,
    end_query,
    foreign,
    mark_foreign,
    may_be_a_rows,
)
from penstock.operators.stores.keys import CODE
from penstock.query.process import Process
from penstock.query.processes import BatchProcess

ROW = "__row"
_GIVEN = "__given"


class BatchProcessKernel(ProcessKernel):
    """A process that is called with the rows of many keys."""

    def work(self, turn: Turn) -> Made:
        """Return what the user's class makes of a turn."""
        states = turn.keys.filter(pl.col(KNOWN)).select(CODE, *self.node.by, *self.own)
        states = states.rename(lambda name: name.removeprefix(OWN))
        calls = _Calls(self, states)
        calls.run(turn.rows)
        empty = pl.DataFrame(schema=dict(self.node.schema) | {TIME: pl.Int64()})
        return Made(
            results=pl.concat([empty, *calls.results]),
            changed=self._find_changed(turn, calls.states),
            refusals=tuple(calls.refusals),
        )

    def _find_changed(self, turn: Turn, states: pl.DataFrame) -> pl.DataFrame:
        """Return the keys that have a state, and those that had one."""
        now = states.select(CODE, *self.node.state).rename(
            {name: f"{OWN}{name}" for name in self.node.state}
        )
        touched = turn.keys.select(CODE, pl.col(KNOWN).fill_null(False).alias("had"))
        found = touched.join(
            now.with_columns(pl.lit(True).alias(KNOWN)), on=CODE, how="left", maintain_order="left"
        ).with_columns(pl.col(KNOWN).fill_null(False))
        no_timers = pl.lit([], dtype=pl.List(pl.Int64)).alias(TIMERS)
        return found.filter(pl.col(KNOWN) | pl.col("had")).select(CODE, *self.own, KNOWN, no_timers)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What a call returned, once it is known to fit: results and the states of its keys."""

    results: pl.DataFrame
    states: pl.DataFrame


class _Calls:
    """Calls a user's class with parts of the rows of a turn, from first to last."""

    def __init__(self, kernel: BatchProcessKernel, states: pl.DataFrame) -> None:
        assert isinstance(kernel.node.processor, BatchProcess)
        self.node: Process = kernel.node
        self.processor: BatchProcess = kernel.node.processor
        self.visible = list(kernel.visible)
        self.states = states
        self.results: list[pl.DataFrame] = []
        self.refusals: list[Refusal] = []

    def run(self, rows: pl.DataFrame) -> None:
        pending = [rows] if rows.height else []
        while pending:
            part = pending.pop()
            try:
                answer = self._call(part)
            except Exception as error:  # whatever a user's code raises is the reason
                if not may_be_a_rows(error):
                    end_query(error, self.node.title)
                if part.height > 1:
                    half = part.height // 2
                    pending += [part[half:], part[:half]]
                    continue
                key, row = part.select(self.node.by), part.select(self.visible)
                self.refusals.append(refusal(self.node, key, row, error, "on_rows"))
                continue
            self.results.append(answer.results)
            rest = self.states.join(part.select(CODE).unique(), on=CODE, how="anti")
            self.states = pl.concat([rest, answer.states]) if rest.height else answer.states

    def _call(self, part: pl.DataFrame) -> _Answer:
        numbered = part.with_row_index(ROW)
        keys = part.select(CODE, *self.node.by).unique(CODE)
        state = self.states.join(keys.select(CODE), on=CODE, how="semi")
        given = numbered.select(*self.visible, ROW)
        known = state.select(*self.node.by, *self.node.state)
        with foreign():
            made: Any = self.processor.on_rows(given, known)
        if not (isinstance(made, tuple) and len(made) == 2):
            said = f"on_rows must return results and states; got {type(made).__name__}"
            raise mark_foreign(TypeError(said))
        results, states = made
        return _Answer(
            results=self._check_results(part, results), states=self._check_states(keys, states)
        )

    def _check_results(self, part: pl.DataFrame, results: Any) -> pl.DataFrame:
        by = list(self.node.by)
        typed = _check_types("the results", results, dict(self.node.schema) | {ROW: pl.UInt32()})
        rows = typed[ROW]
        if rows.null_count() or (rows.len() and rows.max() >= part.height):  # type: ignore[operator]
            raise ValueError(f"the results have a {ROW!r} that is not that of a row")
        belongs = part.select(pl.col(*by, TIME).gather(rows))
        if by and not _is_same(typed, belongs, by):
            raise ValueError("a result has another key than its row")
        return typed.drop(ROW).hstack(belongs.select(TIME))

    def _check_states(self, keys: pl.DataFrame, states: Any) -> pl.DataFrame:
        by = list(self.node.by)
        wanted = {key: keys.schema[key] for key in by} | self.node.state
        typed = _check_types("the states", states, wanted)
        if by:
            coded = typed.join(keys, on=by, how="left", nulls_equal=True)
        else:
            coded = typed.with_columns(pl.lit(0, dtype=pl.UInt32).alias(CODE))
        if coded[CODE].null_count():
            raise ValueError("the states have a key that no row has")
        if coded[CODE].n_unique() < coded.height:
            raise ValueError("the states have a key twice")
        return coded.select([name for name in self.states.columns if name in coded.columns])


def _check_types(what: str, frame: Any, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return the declared columns in their types; a frame with others, or with less, is refused."""
    if not isinstance(frame, pl.DataFrame):
        said = f"{what} must be a Polars DataFrame; they are {type(frame).__name__}"
        raise mark_foreign(TypeError(said))
    if set(frame.columns) != set(schema):
        missing = [name for name in schema if name not in frame.columns]
        odd = [name for name in frame.columns if name not in schema]
        raise ValueError(f"{what} must have the columns {list(schema)}; {missing=}, {odd=}")
    with foreign():
        return frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items())


def _is_same(left: pl.DataFrame, right: pl.DataFrame, columns: list[str]) -> bool:
    theirs = right.select(pl.col(columns).name.prefix(_GIVEN))
    equal = [pl.col(name).eq_missing(pl.col(f"{_GIVEN}{name}")) for name in columns]
    return bool(left.select(columns).hstack(theirs).select(pl.all_horizontal(equal).all()).item())
