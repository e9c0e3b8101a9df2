"""Windowed aggregates over panes.

Rows become partials per group and pane, before the shuffle where the functions allow it. A pane is
sealed when the watermark passes its end; sealed panes are grouped into nodes of 2, 4, 8, … panes,
and a window is merged from a handful of nodes, however many panes it has. Laws: a row is touched
once, and then O(log n) times where tiers are merged; a window is written once, when the watermark
reaches its end; nothing is ever subtracted, so results do not drift.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl

from penstock.base.columns import ORDER, POSITION, SOURCE, TIME
from penstock.base.hashing import key_columns
from penstock.base.times import NOT_STARTED
from penstock.operators.kernel import UNTIL, Advanced, empty_results
from penstock.operators.rowwise.blame import FAILURES, Refusal, refuse_failing
from penstock.operators.stores.chunks import PANE
from penstock.operators.stores.keys import CODE, KeyTable
from penstock.operators.stores.levels import WINDOW, Levels, Nodes, level_pieces, rows_in
from penstock.operators.stores.pieces import Piece
from penstock.operators.stores.runs import Run, add_run, run_pieces, take_below
from penstock.operators.windows.combine import columns_for, group_rows
from penstock.operators.windows.functions import parts_of
from penstock.operators.windows.panes import Panes
from penstock.operators.windows.parts import Parts, merges_for
from penstock.operators.windows.spans import Span
from penstock.query.nodes import Aggregate
from penstock.query.windows import TimeWindow

_SLOT = "__slot"
_LARGE = 100_000
"""From this many rows on, Polars' streaming engine groups faster than the other."""
_SLOTS = 1 << 62
_PORTION, _PORTIONS = 50_000, 8
"""After a restore an epoch gives codes to so many rows at least, and to one part of so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaneState:
    """Open panes, sealed panes by level, and how far windows have closed.

    ``dropped`` is how many rows have left since the keys were pruned. ``raw`` are restored rows of
    open panes that still have their keys; an epoch works off ``portion`` of them.
    """

    keys: KeyTable
    open: tuple[Run, ...] = ()
    levels: Levels = ()
    watermark: int = NOT_STARTED
    dropped: int = 0
    raw: tuple[pl.DataFrame, ...] = ()
    portion: int = 0


class AggregateKernel:
    """The aggregate of one operator; `operator` tells it apart in the order of results."""

    def __init__(
        self, node: Aggregate, operator: int, ordered: bool, span: Span | None = None
    ) -> None:
        """Prepare the expressions of an aggregate node; only windows of the span are written."""
        assert isinstance(node.window, TimeWindow)
        self.node = node
        self.by = list(node.by)
        self.operator = operator
        self.ordered, self.span = ordered, span
        self.panes = Panes.of(node.window)
        calls = node.aggregation.calls
        self.parts: list[Parts] | None = None
        self.columns: list[pl.Expr] = []
        if calls is not None:
            self.columns, over = columns_for(calls)
            self.parts = [parts_of(i, call) for i, call in enumerate(over)]
        self.merges = [expression for parts in self.parts or () for expression in parts.merge]
        deep = self.parts is not None and self.panes.per_window > 3
        depth = self.panes.per_window.bit_length() - 1 if deep else 0
        self.nodes = Nodes(panes=self.panes, depth=depth, merge=self.merge)
        self.order = [*ORDER, *_told_apart_by(node)]

    def pieces(self, state: PaneState) -> Iterable[Piece]:
        """Return what a state is made of."""
        return (
            *state.keys.pieces,
            *run_pieces(state.open),
            *level_pieces(state.levels),
            *state.raw,
        )

    def prepare(self, rows: pl.LazyFrame, port: int = 0) -> pl.LazyFrame:
        """Return the columns that `combine` needs: keys, pane and arguments."""
        pane = self.panes.pane_of(pl.col(TIME)).alias(PANE)
        order = ORDER if self.node.aggregation.needs_order else ()
        if self.parts is None:
            kept = sorted(_kept_columns(self.node) - set(self.by))
            return rows.select(*key_columns(self.by, self.node.schema), *kept, *order, pane)
        return rows.select(*key_columns(self.by, self.node.schema), pane, *order, *self.columns)

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return partials per group and pane; rows that must be kept stay as they are."""
        if self.parts is None:
            return prepared
        return group_rows(prepared, self.by, self.parts)

    def merge(self, frame: pl.DataFrame, node: str = PANE) -> pl.DataFrame:
        """Return one partial per key and node, grouped on one integer made of both."""
        if self.parts is None or frame.is_empty():
            return frame
        low, high = frame[node].min(), frame[node].max()
        assert isinstance(low, int)
        assert isinstance(high, int)
        span = high - low + 1
        slot = (pl.col(CODE) * span + (pl.col(node) - low)).alias(_SLOT)
        codes = frame[CODE].max()
        assert isinstance(codes, int)
        if (codes + 1) * span >= _SLOTS:  # times far apart, narrow panes: one integer is too small
            return frame.group_by(CODE, node).agg(self.merges).select(frame.columns)
        merges, after = merges_for(frame, self.parts)
        grouped = frame.lazy().with_columns(slot).group_by(_SLOT).agg(merges)
        merged = grouped.with_columns(
            *after,
            pl.col(_SLOT).floordiv(span).alias(CODE),
            (pl.col(_SLOT) % span + low).alias(node),
        ).select(frame.columns)
        return merged.collect(engine=_engine_for(frame))

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> PaneState:
        """Return the state at a watermark from the deltas of the past."""
        needed = [rows for delta in deltas if (rows := _keep_needed(delta, watermark)).height]
        sealed, raw = self._split(needed, watermark)
        keys = KeyTable.empty({key: self.node.schema[key] for key in self.by})
        below = None
        if sealed:
            keys, coded = keys.encode(pl.concat(sealed))
            below = self.merge(coded)
        return PaneState(
            keys=keys,
            levels=self.nodes.seal((), below, NOT_STARTED, watermark),
            watermark=watermark,
            raw=tuple(raw),
            portion=max(_PORTION, sum(frame.height for frame in raw) // _PORTIONS),
        )

    def catch_up(
        self, state: PaneState, deltas: Sequence[pl.DataFrame], watermark: int
    ) -> PaneState:
        """Return the state at a watermark from an older one and the deltas since then."""
        rows = [self.compact(deltas, watermark).drop(UNTIL)] if deltas else []
        caught: PaneState = self.advance(state, rows, watermark).state
        return caught

    def unfold(self, state: PaneState) -> list[pl.DataFrame]:
        """Return the panes of a state, open and sealed, as deltas; nodes are made of them."""
        sealed = [chunk.rows for chunk in state.levels[0]] if state.levels else []
        coded = [*[run.rows for run in state.open], *sealed]
        rows = [*state.raw, *[state.keys.decode(frame) for frame in coded]]
        return [self._with_until(frame) for frame in rows if frame.height]

    def _work_off(self, state: PaneState, watermark: int) -> PaneState:
        """Return the state with fewer raw rows, or with none if the watermark needs them.

        A large restore would otherwise take as long as several epochs; so it takes a part of each.
        """
        frontier = self.panes.sealed_before(watermark)
        due = any((frame[PANE] < frontier).any() for frame in state.raw)
        taken, rest = _take_rows(state.raw, None if due else state.portion)
        keys, coded = state.keys.encode(pl.concat(taken))
        new = self._merge_frames([coded])  # also one segment has several partials of a group
        return replace(
            state, keys=keys, open=add_run(state.open, new, self._merge_frames), raw=rest
        )

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the partials of an epoch with the watermark at which nobody needs them."""
        fresh = [frame for frame in arrived if frame.height]
        return self._with_until(pl.concat(fresh)) if fresh else pl.DataFrame()

    def advance(
        self, state: PaneState, arrived: Sequence[pl.DataFrame], watermark: int
    ) -> Advanced:
        """Take the partials of an epoch and close the windows that the watermark reached."""
        watermark = max(watermark, state.watermark)
        state = self._work_off(state, watermark) if state.raw else state
        keys, fresh = state.keys, []
        for frame in [frame for frame in arrived if frame.height]:
            keys, coded = keys.encode(frame)
            fresh.append(coded)
        sealed, waiting = self._split_sealed(state.open, fresh, watermark)
        levels: Levels = ()
        if self.panes.per_window == 1:  # a window is a pane, and a sealed pane is a closed window
            closed = None if sealed is None else sealed.rename({PANE: WINDOW})
            dropped = 0 if sealed is None else sealed.height
        else:
            grown = self.nodes.seal(state.levels, sealed, state.watermark, watermark)
            closed = self.nodes.closed(grown, state.watermark, watermark)
            levels = self.nodes.drop_closed(grown, watermark)
            dropped = rows_in(grown) - rows_in(levels)
        results, refusals = (self._empty(), ()) if closed is None else self._finish(keys, closed)
        after = PaneState(
            keys=keys,
            open=waiting,
            levels=levels,
            watermark=watermark,
            dropped=state.dropped + dropped,
            raw=state.raw,
            portion=state.portion,
        )
        return Advanced(state=_prune_keys(after), results=results, refusals=refusals)

    def compact(
        self, deltas: Sequence[pl.DataFrame], watermark: int, whole: bool = False
    ) -> pl.DataFrame:
        """Return one delta that stands for several at a watermark."""
        rows = pl.concat([d.filter(pl.col(UNTIL) > watermark).drop(UNTIL) for d in deltas])
        if self.parts is None:
            return self._with_until(rows)
        merged = rows.lazy().group_by(*self.by, PANE).agg(self.merges).select(rows.columns)
        return self._with_until(merged.collect(engine=_engine_for(rows)))

    def _with_until(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(self.panes.until(pl.col(PANE)).alias(UNTIL))

    def _split_sealed(
        self, runs: Sequence[Run], fresh: Sequence[pl.DataFrame], watermark: int
    ) -> tuple[pl.DataFrame | None, tuple[Run, ...]]:
        """Return the rows of sealed panes, merged, and those that wait."""
        sealed, waiting = take_below(runs, PANE, self.panes.sealed_before(watermark))
        below, above = self._split(fresh, watermark)
        if above:
            new = Run.of(above[0], PANE) if len(above) == 1 else self._merge_frames(above)
            waiting = add_run(waiting, new, self._merge_frames)
        sealed += below
        if not sealed:
            return None, waiting
        return (sealed[0] if len(sealed) == 1 else self.merge(pl.concat(sealed))), waiting

    def _split(
        self, frames: Sequence[pl.DataFrame], watermark: int
    ) -> tuple[list[pl.DataFrame], list[pl.DataFrame]]:
        """Return the rows of sealed and of open panes; no frame is empty."""
        frontier = self.panes.sealed_before(watermark)
        below, above = [], []
        for frame in frames:
            low, high = frame[PANE].min(), frame[PANE].max()
            assert isinstance(low, int)
            assert isinstance(high, int)
            if low < frontier:
                below.append(frame if high < frontier else frame.filter(pl.col(PANE) < frontier))
            if high >= frontier:
                above.append(frame if low >= frontier else frame.filter(pl.col(PANE) >= frontier))
        return below, above

    def _merge_frames(self, frames: Sequence[pl.DataFrame]) -> Run:
        return Run.of(self.merge(pl.concat(frames, rechunk=True)), PANE)

    def _finish(
        self, keys: KeyTable, rows: pl.DataFrame
    ) -> tuple[pl.DataFrame, tuple[Refusal, ...]]:
        """Return result rows, and the groups for which an expression failed."""
        found = keys.decode(rows)
        if self.span is not None:
            found = self.span.select_written(
                found, self.panes.window_start(pl.col(WINDOW)), self.by
            )
        try:
            return self._results(found), ()
        except FAILURES:  # the search below finds the groups to blame
            pass
        group = [*self.by, WINDOW]

        def step(part: pl.DataFrame) -> pl.DataFrame:
            return self._results(found.join(part, on=group, how="semi", nulls_equal=True))

        groups = found.select(group).unique()
        good, bad = refuse_failing(step, groups, self.node.title, groups.height, self.node)
        shown = [*self.by, "window_start", "window_end"]
        refusals = [replace(r, row=r.row.with_columns(self._places()).select(shown)) for r in bad]
        return pl.concat([self._empty(), *good]), tuple(refusals)

    def _results(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return result rows from merged partials (or kept rows) with their window."""
        node, outer = self.node, self.node.aggregation.outer
        values = [
            e.cast(node.schema[name]).alias(name)
            for name, e in zip(node.aggregation.names, outer, strict=True)
        ]
        if self.parts is None:
            # A second key, if only a literal: Polars 2.1 takes groups of one sorted key for runs,
            # and the variance of a run of one null for 0.
            keys = [*map(pl.col, self.by), pl.lit(0).alias(_SLOT), pl.col(WINDOW)]
            groups = rows.sort(self.order).group_by(keys, maintain_order=True)
            lazy = groups.agg(values).lazy()
        else:
            finishes = [parts.finish for parts in self.parts]
            lazy = rows.lazy().with_columns(finishes).with_columns(values)
        hidden = [TIME, SOURCE, POSITION] if self.ordered else [TIME]
        return lazy.with_columns(self._places()).select(*node.schema, *hidden).collect()

    def _places(self) -> list[pl.Expr]:
        """Return the columns that say when a window is, and where its result is in the order."""
        start = self.panes.window_start(pl.col(WINDOW))
        end = self.panes.window_end(pl.col(WINDOW))
        return [
            start.cast(self.node.schema["window_start"]).alias("window_start"),
            end.cast(self.node.schema["window_end"]).alias("window_end"),
            end.alias(TIME),
            pl.lit(self.operator, dtype=pl.Int32).alias(SOURCE),
            pl.lit(0, dtype=pl.Int64).alias(POSITION),
        ]

    def _empty(self) -> pl.DataFrame:
        return empty_results(self.node.schema, self.ordered)


def _keep_needed(delta: pl.DataFrame, watermark: int) -> pl.DataFrame:
    return delta.filter(pl.col(UNTIL) > watermark).drop(UNTIL)


def _take_rows(
    frames: Sequence[pl.DataFrame], rows: int | None
) -> tuple[list[pl.DataFrame], tuple[pl.DataFrame, ...]]:
    """Return so many rows of some frames, or all of them, and the rest; no frame is empty."""
    taken: list[pl.DataFrame] = []
    rest = list(frames)
    left = sum(frame.height for frame in frames) if rows is None else rows
    while rest and left > 0:
        frame = rest.pop(0)
        taken.append(frame[:left])
        if frame.height > left:
            rest.insert(0, frame[left:])
        left -= taken[-1].height
    return taken, tuple(rest)


def _engine_for(frame: pl.DataFrame) -> Literal["streaming", "in-memory"]:
    return "streaming" if frame.height > _LARGE else "in-memory"


def _told_apart_by(node: Aggregate) -> list[str]:
    """Return the columns that give rows at the same place an order, so that there is only one."""
    kept, schema = _kept_columns(node), node.inputs[0].schema
    return [name for name, dtype in schema.items() if name in kept and not dtype.is_nested()]


def _kept_columns(node: Aggregate) -> set[str]:
    return {name for e in node.aggregation.outer for name in e.meta.root_names()}


def _prune_keys(state: PaneState) -> PaneState:
    """Forget the keys that no row has any more, once that is worth its cost."""
    if not state.keys.is_overgrown(state.dropped):
        return state
    chunks = [chunk for level in state.levels for chunk in level]
    frames = [*[run.rows for run in state.open], *[chunk.rows for chunk in chunks]]
    keys, recoded = state.keys.prune(frames)
    rows = iter(recoded)
    return replace(
        state,
        keys=keys,
        open=tuple(replace(run, rows=next(rows)) for run in state.open),
        levels=tuple(
            tuple(replace(chunk, rows=next(rows)) for chunk in level) for level in state.levels
        ),
        dropped=0,
    )
