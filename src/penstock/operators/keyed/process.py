"""Processes row by row: calls a user's class for each row and each timer of a key.

Columns become Python values once for many rows, and what comes back becomes columns once for all.
Laws: a timer at T is called after the rows before T and before the rows at T; a call that fails
changes nothing, and what it was called with is refused by name.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from penstock.base.columns import TIME
from penstock.base.times import FINISHED
from penstock.operators.keyed.process_state import KNOWN, OWN, TIMERS, Made, ProcessKernel, Turn
from penstock.operators.rowwise.blame import (
    Refusal,
    end_query,
    is_foreign,
    is_raised_in_engine,
    mark_foreign,
    reason_of,
)
from penstock.operators.rowwise.fitting import Record, copier, fit_record, to_column, to_values
from penstock.operators.stores.keys import CODE
from penstock.query.process import Process
from penstock.query.processes import Process as UserProcess

_EPOCH = datetime(1970, 1, 1)
_MICRO = timedelta(microseconds=1)
_SLICE = 8192
"""So many rows are Python values at a time."""
Call = Callable[[Any, Any], Iterable[Record] | None]


class RowProcessKernel(ProcessKernel):
    """A process that is called row by row."""

    def work(self, turn: Turn) -> Made:
        """Return what the user's class makes of a turn."""
        calls = _Calls(self.node)
        own = turn.keys.select(list(self.own)).rename(lambda name: name.removeprefix(OWN))
        states = _dicts(own) if self.own else iter([{}] * turn.keys.height)
        known, timers = turn.keys[KNOWN].to_list(), to_values(turn.keys[TIMERS])
        names = _dicts(turn.keys.select(self.node.by)) if self.node.by else iter([{}])
        counts = _counts(turn)
        visible = turn.rows.select(list(self.visible))
        rows = zip(_dicts(visible), turn.rows[TIME].to_list(), strict=True)
        with _without_collector():
            for code, (key, state) in enumerate(zip(names, states, strict=True)):
                calls.begin(code, key, state if known[code] else None, timers[code] or ())
                for _ in range(counts[code]):
                    calls.row(*next(rows))
                calls.end(turn.watermark)
        return self._make(turn, calls)

    def _make(self, turn: Turn, calls: _Calls) -> Made:
        output = {n: t for n, t in self.node.schema.items() if n not in self.node.by}
        codes = pl.Series(CODE, calls.codes, dtype=pl.UInt32)
        keys = turn.keys.select(pl.col(self.node.by).gather(codes)) if self.node.by else None
        times = pl.Series(TIME, calls.times, dtype=pl.Int64)
        results = pl.DataFrame([*columns_of(calls.made, output), times])
        return Made(
            results=results if keys is None else keys.hstack(results),
            changed=self._list_changed(calls.changed),
            refusals=tuple(self._refusal(turn, *failed) for failed in calls.failed),
        )

    def _list_changed(
        self, changed: Sequence[tuple[int, Record | None, Sequence[int]]]
    ) -> pl.DataFrame:
        nothing = dict.fromkeys(self.node.state)
        states = [nothing if state is None else state for _, state, _ in changed]
        known = [state is not None for _, state, _ in changed]
        timers = [times for _, _, times in changed]
        own = columns_of(states, self.node.state)
        return pl.DataFrame([
            pl.Series(CODE, [code for code, _, _ in changed], dtype=pl.UInt32),
            *[column.alias(f"{OWN}{column.name}") for column in own],
            pl.Series(KNOWN, known, dtype=pl.Boolean),
            to_column(TIMERS, timers, pl.List(pl.Int64())),
        ])  # fmt: skip

    def _refusal(
        self, turn: Turn, code: int, row: int, timer: int | None, error: Exception
    ) -> Refusal:
        key = turn.keys[code].select(self.node.by)
        if timer is None:
            shown = turn.rows[row].select(list(self.visible))
        else:
            at = pl.lit(timer).cast(pl.Datetime("us")).alias("timer")
            shown = turn.keys[code].select(*self.node.by, at)
        return refusal(self.node, key, shown, error, "on_row" if timer is None else "on_timer")


class _Running:
    """The context of a call."""

    __slots__ = ("_ended", "_firing", "_micros", "_timers", "key", "state")

    def __init__(self) -> None:
        self.key: Record = {}
        self.state: Record | None = None
        self._micros = 0
        self._timers: tuple[int, ...] = ()
        self._firing = False
        self._ended = False

    @property
    def time(self) -> datetime:
        return _EPOCH + timedelta(microseconds=self._micros)

    @property
    def timers(self) -> tuple[datetime, ...]:
        return tuple(_EPOCH + timedelta(microseconds=micros) for micros in self._timers)

    def set_timer(self, time: datetime) -> None:
        if time.tzinfo is not None:
            time = time.astimezone(UTC).replace(tzinfo=None)
        micros = (time - _EPOCH) // _MICRO
        if micros <= self._micros:
            if self._firing:
                raise ValueError(f"on_timer must set a later timer; time={self.time}, timer={time}")
            micros = self._micros
        if not self._ended and micros not in self._timers:
            self._timers = tuple(sorted((*self._timers, micros)))

    def clear_timers(self) -> None:
        self._timers = ()


class _Calls:
    """Calls a user's class, key by key, and collects what comes of it."""

    def __init__(self, node: Process) -> None:
        assert isinstance(node.processor, UserProcess)
        self.title = node.title
        self.on_row: Call = node.processor.on_row
        self.on_timer: Call = node.processor.on_timer
        output = {name: t for name, t in node.schema.items() if name not in node.by}
        self.fit_result = fit_record(output, "a result")
        self.fit_state = fit_record(node.state, "the state")
        self.copy = copier(node.state)
        self.context = _Running()
        self.state: Record | None = None
        self.before: tuple[Record | None, Sequence[int]] = (None, ())
        self.code, self.count = 0, -1
        self.codes: list[int] = []
        self.times: list[int] = []
        self.made: list[Record] = []
        self.changed: list[tuple[int, Record | None, Sequence[int]]] = []
        self.failed: list[tuple[int, int, int | None, Exception]] = []

    def begin(self, code: int, key: Record, state: Record | None, timers: Sequence[int]) -> None:
        """Turn to a key."""
        self.code, self.state = code, state
        self.context.key = key
        self.context._timers = tuple(timers)
        self.before = (state, self.context._timers)

    def row(self, row: Record, micros: int) -> None:
        """Call for a row; for the timers up to it before, and for those that it sets to now after.

        Timers at the row's time come before it, unless the row itself set them.
        """
        self.count += 1
        context = self.context
        if context._timers and context._timers[0] <= micros:
            self._fire(micros)
        context._micros = micros
        self._call(self.on_row, row, None)
        if context._timers and context._timers[0] <= micros:
            self._fire(micros)

    def end(self, watermark: int) -> None:
        """Call for the timers up to the watermark, and leave the key.

        Once the input has ended, what these calls set does not fire: it would never end.
        """
        self.context._ended = watermark >= FINISHED
        self._fire(watermark)
        self.context._ended = False
        state, timers = self.before
        if self.state is not state or self.context._timers != timers:
            self.changed.append((self.code, self.state, self.context._timers))

    def _fire(self, until: int) -> None:
        context = self.context
        context._firing = True
        while context._timers and context._timers[0] <= until:
            micros, *rest = context._timers
            context._timers = tuple(rest)
            context._micros = micros
            self._call(self.on_timer, context.time, micros)
        context._firing = False

    def _call(self, call: Call, argument: Any, timer: int | None) -> None:
        context, before = self.context, self.state
        timers = context._timers
        given = context.state = None if before is None else self.copy(before)
        try:
            made = call(argument, context)
            results = () if made is None else self._results(made)
            after = context.state
            if after is given and given == before:
                after = before
            elif after is not None:
                after = self.fit_state(after)
        except Exception as error:  # whatever a user's code raises is the reason
            if is_raised_in_engine(error) and not is_foreign(error):
                end_query(error, self.title)
            context._timers = timers
            self.failed.append((self.code, self.count, timer, error))
            return
        self.state = after
        for result in results:
            self.codes.append(self.code)
            self.times.append(context._micros)
            self.made.append(result)

    def _results(self, made: Any) -> list[Record]:
        if isinstance(made, dict):
            said = "results must be a list of dicts or yielded one by one; got one dict"
            raise mark_foreign(TypeError(said))
        return [self.fit_result(result) for result in made]


@contextmanager
def _without_collector() -> Iterator[None]:
    """Keep the garbage collector from walking over all rows again and again; it takes a third."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def refusal(
    node: Process, key: pl.DataFrame, row: pl.DataFrame, error: Exception, method: str
) -> Refusal:
    """Return the refusal of a row, or of a timer, of a key."""
    named = (
        ", ".join(f"{name}={value!r}" for name, value in key.to_dicts()[0].items())
        if (key.width)
        else "none"
    )
    reason = f"{method}: {reason_of(error)}; key: {named}"
    return Refusal(operator=node.title, reason=reason, row=row)


def columns_of(records: Sequence[Record], schema: Mapping[str, pl.DataType]) -> list[pl.Series]:
    """Return fitting dicts as columns."""
    return [
        to_column(name, [record[name] for record in records], dtype)
        for name, dtype in schema.items()
    ]


def _counts(turn: Turn) -> list[int]:
    """Return how many rows each key has."""
    sizes = turn.rows.group_by(CODE).len()
    counts: list[int] = (
        turn.keys.select(CODE)
        .join(sizes, on=CODE, how="left", maintain_order="left")["len"]
        .fill_null(0)
        .to_list()
    )
    return counts


def _dicts(rows: pl.DataFrame) -> Iterator[Record]:
    """Yield rows as dicts; columns become lists, many rows at a time."""
    names = rows.columns
    for part in rows.iter_slices(_SLICE):
        for values in zip(*map(to_values, part), strict=True):
            yield dict(zip(names, values, strict=True))
