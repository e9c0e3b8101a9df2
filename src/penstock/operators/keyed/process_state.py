"""What the two forms of a process share: rows that wait, one row of state per key, timers.

A key's state is one row with ``__version``, the watermark at which it was written; the newest one
counts, and one without state or timers says that the key is gone. Laws: a key's rows are worked on
in stream order, each exactly once, when the watermark has passed it; an epoch looks only at keys
that have rows or timers now. Timers are found by time, in runs of (earliest timer, key); a note
that its key has outlived is found there, looked up and dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from penstock.base.columns import ORDER, TIME
from penstock.base.hashing import key_columns
from penstock.base.times import NOT_STARTED
from penstock.operators.kernel import (
    FOREVER,
    HIDDEN,
    UNTIL,
    Advanced,
    empty_results,
    place_results,
)
from penstock.operators.rowwise.blame import Refusal
from penstock.operators.stores.keyed_rows import KeyedRows
from penstock.operators.stores.keys import CODE
from penstock.operators.stores.pieces import Piece
from penstock.operators.stores.runs import Run, add_run, run_pieces, take_below
from penstock.operators.stores.waiting import Waiting, take_final
from penstock.query.process import Process

OWN = "__state_"
"""Before a state column's name, since the stream may have a column of that name too."""
KNOWN = "__known"
TIMERS = "__timers"
VERSION = "__version"
_ALL = "__all"
_AT = "__at"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessState:
    """Rows at or above the watermark, the state of each key, and its earliest timer."""

    states: KeyedRows
    waiting: Waiting = ()
    timers: tuple[Run, ...] = ()
    watermark: int = NOT_STARTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The rows and keys whose turn has come.

    Attributes:
        rows: The rows, by key and then in stream order, with the number of their key as `CODE`.
        keys: A row for each key, by number, with its state; null where there is none.
        watermark: How far the input has come; timers up to it fire.
    """

    rows: pl.DataFrame
    keys: pl.DataFrame
    watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a turn gave.

    Attributes:
        results: Key columns, output columns and the event time.
        changed: The keys whose state or timers changed: `CODE`, state columns, `KNOWN`, `TIMERS`.
        refusals: What could not be done.
    """

    results: pl.DataFrame
    changed: pl.DataFrame
    refusals: tuple[Refusal, ...] = ()


class ProcessKernel:
    """A process, but for what it does with the rows and keys whose turn it is."""

    def __init__(self, node: Process, operator: int, ordered: bool) -> None:
        """Prepare the columns of a process."""
        self.node, self.operator, self.ordered = node, operator, ordered
        self.visible = dict(node.inputs[0].schema)
        self.keys = one_key(node.by, self.visible)
        self.by = list(self.keys)
        self.rows = self.visible | self.keys | HIDDEN
        self.flat = [name for name, dtype in self.visible.items() if not dtype.is_nested()]
        self.own = {f"{OWN}{name}": dtype for name, dtype in node.state.items()}
        self.values = self.own | {KNOWN: pl.Boolean(), TIMERS: pl.List(pl.Int64())}
        marks: dict[str, pl.DataType] = {VERSION: pl.Int64(), UNTIL: pl.Int64()}
        self.nothing = pl.DataFrame(schema=self.rows | self.keys | self.values | marks)

    def work(self, turn: Turn) -> Made:
        """Return what the user's class makes of a turn."""
        raise NotImplementedError

    def pieces(self, state: ProcessState) -> Iterable[Piece]:
        """Return what a state is made of."""
        return (*state.states.pieces, *run_pieces(state.waiting), *run_pieces(state.timers))

    def prepare(self, rows: pl.LazyFrame, port: int = 0) -> pl.LazyFrame:
        """Return the columns of the stream, and the order."""
        keys = key_columns(self.node.by, self.visible) or [pl.lit(0, dtype=pl.Int8).alias(_ALL)]
        return rows.with_columns(keys).select(list(self.rows))

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they are."""
        return prepared

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return nothing: what an epoch adds is known once its work is done."""
        return pl.DataFrame()

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> ProcessState:
        """Return the rows that wait and the newest state of each key."""
        empty = ProcessState(states=KeyedRows.empty(self.by, self.keys | self.values))
        return self.catch_up(empty, deltas, watermark)

    def catch_up(
        self, state: ProcessState, deltas: Sequence[pl.DataFrame], watermark: int
    ) -> ProcessState:
        """Return the state at a watermark from an older one and the deltas since then."""
        rows = pl.concat([self.nothing, *deltas])
        waits = rows.filter(pl.col(VERSION).is_null() & (pl.col(UNTIL) > watermark))
        newest = self._keep_newest(rows)
        stays = newest.filter(~self._is_gone())
        return ProcessState(
            states=state.states.replace(newest, stays),
            waiting=take_final(state.waiting, [waits.select(list(self.rows))], watermark).waiting,
            timers=_with_timers(state.timers, self._find_earliest(stays)),
            watermark=watermark,
        )

    def compact(
        self, deltas: Sequence[pl.DataFrame], watermark: int, whole: bool = False
    ) -> pl.DataFrame:
        """Return one delta with the rows that still wait and the newest state of each key."""
        rows = pl.concat([self.nothing, *deltas])
        waits = rows.filter(pl.col(VERSION).is_null() & (pl.col(UNTIL) > watermark))
        newest = self._keep_newest(rows)
        return pl.concat([waits, newest.filter(~self._is_gone()) if whole else newest])

    def advance(
        self, state: ProcessState, arrived: Sequence[pl.DataFrame], watermark: int
    ) -> Advanced:
        """Take the rows of an epoch; work on rows below the watermark and timers up to it."""
        watermark = max(watermark, state.watermark)
        fresh = [frame.select(list(self.rows)) for frame in arrived if frame.height]
        taken = take_final(state.waiting, fresh, watermark)
        due, timers = take_below(state.timers, _AT, watermark + 1)
        before = replace(state, waiting=taken.waiting, timers=timers, watermark=watermark)
        turn = self._turn(before, taken.final, due)
        made = self.work(turn) if turn.keys.height else self._nothing_made()
        after, written = self._settle(before, turn, made)
        waits = [frame.with_columns((pl.col(TIME) + 1).alias(UNTIL)) for frame in taken.later]
        results = place_results(made.results.lazy(), self.operator, self.ordered).collect()
        return Advanced(
            state=after,
            results=results,
            refusals=made.refusals,
            kept=pl.concat([self.nothing, *waits, written], how="diagonal"),
        )

    def _turn(
        self, state: ProcessState, ready: Sequence[pl.DataFrame], due: Sequence[pl.DataFrame]
    ) -> Turn:
        rows = pl.concat([pl.DataFrame(schema=self.rows), *ready])
        touched = pl.concat([rows.select(self.by), *[frame.select(self.by) for frame in due]])
        keys = touched.unique().sort(self.by).with_row_index(CODE)
        coded = rows.join(keys, on=self.by, how="left", nulls_equal=True)
        known = keys.join(
            state.states.find(keys), on=self.by, how="left", nulls_equal=True, maintain_order="left"
        )
        return Turn(rows=self._in_order(coded), keys=known, watermark=state.watermark)

    def _in_order(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows by key and stream order; rows that tie by their columns, left to right."""
        place = [CODE, *ORDER]
        ordered = rows.sort(place)
        ties = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in place).any()
        if not ordered.select(ties).item():
            return ordered
        return rows.sort([*place, *self.flat])

    def _settle(
        self, state: ProcessState, turn: Turn, made: Made
    ) -> tuple[ProcessState, pl.DataFrame]:
        """Return the state after a turn, and what is written of it."""
        if not made.changed.height:
            return state, pl.DataFrame()
        old = turn.keys.select(CODE, *self.by, pl.col(TIMERS).list.first().alias(_AT))
        rows = made.changed.join(old, on=CODE, how="left", maintain_order="left")
        stays = rows.filter(~self._is_gone()).select(*self.keys, *self.values)
        moved = rows.filter(pl.col(TIMERS).list.first().ne_missing(pl.col(_AT)))
        after = replace(
            state,
            states=state.states.replace(rows, stays),
            timers=_with_timers(state.timers, self._find_earliest(moved)),
        )
        version = pl.lit(state.watermark, dtype=pl.Int64).alias(VERSION)
        until = pl.lit(FOREVER, dtype=pl.Int64).alias(UNTIL)
        return after, rows.select(*self.keys, *self.values, version, until)

    def _keep_newest(self, rows: pl.DataFrame) -> pl.DataFrame:
        states = rows.filter(pl.col(VERSION).is_not_null()).sort(VERSION)
        return states.unique(self.by, keep="last", maintain_order=True)

    def _find_earliest(self, states: pl.DataFrame) -> pl.DataFrame:
        """Return the keys that have timers, each with its earliest."""
        found = states.select(*self.by, pl.col(TIMERS).list.first().alias(_AT))
        return found.filter(pl.col(_AT).is_not_null())

    def _nothing_made(self) -> Made:
        return Made(results=empty_results(self.node.schema, ordered=False), changed=pl.DataFrame())

    @staticmethod
    def _is_gone() -> pl.Expr:
        return ~pl.col(KNOWN) & (pl.col(TIMERS).list.len() == 0)


def one_key(by: Sequence[str], schema: Mapping[str, pl.DataType]) -> dict[str, pl.DataType]:
    """Return the key columns and their types; without any, a hidden one that is always 0."""
    return {key: schema[key] for key in by} or {_ALL: pl.Int8()}


def by_key(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return state rows as a user sees them: a row per key, with how many of its rows wait."""
    keys = list(by) or [_ALL]
    states = rows.filter(pl.col(VERSION).is_not_null()).sort(VERSION)
    newest = states.unique(keys, keep="last", maintain_order=True)
    waits = rows.filter(pl.col(VERSION).is_null()).group_by(keys).len("__waiting")
    own = [name for name in rows.columns if name.startswith(OWN)]
    found = newest.select(*keys, *own, KNOWN, TIMERS).join(
        waits, on=keys, how="full", coalesce=True, nulls_equal=True
    )
    count = pl.col("__waiting").fill_null(0)
    timers = pl.col(TIMERS).fill_null([]).cast(pl.List(pl.Datetime("us")))
    alive = pl.col(KNOWN).fill_null(False) | (timers.list.len() > 0) | (count > 0)
    shown = found.filter(alive).with_columns(timers, count).sort(keys)
    return shown.select(*by, *own, TIMERS, "__waiting").rename(lambda n: n.removeprefix(OWN))


def _by_timer(frames: Sequence[pl.DataFrame]) -> Run:
    return Run.of(pl.concat(frames, rechunk=True), _AT)


def _with_timers(runs: tuple[Run, ...], found: pl.DataFrame) -> tuple[Run, ...]:
    return add_run(runs, _by_timer([found]), _by_timer) if found.height else runs
