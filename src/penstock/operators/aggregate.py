"""Windowed aggregates over panes.

Rows become partials per group and pane, before the shuffle where the functions allow it. A pane is
sealed when the watermark passes its end; sealed panes are grouped into nodes of 2, 4, 8, … panes,
and a window is merged from a handful of nodes, however many panes it has. Laws: a row is touched
once; a window is written once, when the watermark reaches its end; nothing is ever subtracted, so
results do not drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from penstock.operators.chunks import PANE, Chunk, add_rows, rows_between, rows_of
from penstock.operators.combine import columns_for, group_rows
from penstock.operators.functions import Parts, parts_of
from penstock.operators.kernel import UNTIL, Advanced
from penstock.operators.keys import CODE, KeyTable
from penstock.operators.panes import NOT_STARTED, Panes
from penstock.operators.stateless import Refusal, refuse_failing
from penstock.query.nodes import ORDER, POSITION, SOURCE, TIME, Aggregate

WINDOW = "__window"
_SLOT = "__slot"
_LARGE = 100_000
"""From this many rows on, Polars' streaming engine groups faster than the other."""
_SLOTS = 1 << 62
_MEMBERS = {"level": pl.Int64, PANE: pl.Int64, WINDOW: pl.Int64}


@dataclass(frozen=True, slots=True, kw_only=True)
class PaneState:
    """Open panes as they came, sealed panes by level, and how far windows have closed."""

    keys: KeyTable
    open: tuple[pl.DataFrame, ...] = ()
    levels: tuple[tuple[Chunk, ...], ...] = ()
    watermark: int = NOT_STARTED


class AggregateKernel:
    """The aggregate of one operator; `operator` tells it apart in the order of results."""

    def __init__(self, node: Aggregate, operator: int, ordered: bool) -> None:
        """Prepare the expressions of an aggregate node."""
        self.node = node
        self.by = list(node.by)
        self.operator = operator
        self.ordered = ordered
        self.panes = Panes.of(node.window)
        calls = node.aggregation.calls
        self.parts: list[Parts] | None = None
        self.columns: list[pl.Expr] = []
        if calls is not None:
            self.columns, over = columns_for(calls)
            self.parts = [parts_of(i, call) for i, call in enumerate(over)]
        deep = self.parts is not None and self.panes.per_window > 3
        self.levels = self.panes.per_window.bit_length() - 1 if deep else 0
        self.order = [*ORDER, *_told_apart_by(node)]

    def prepare(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Return the columns that `combine` needs: keys, pane and arguments."""
        pane = pl.col(TIME).floordiv(self.panes.width_us).alias(PANE)
        order = ORDER if self.node.aggregation.needs_order else ()
        if self.parts is None:
            kept = sorted(_kept_columns(self.node) - set(self.by))
            return rows.select(*self._keys(), *kept, *order, pane)
        return rows.select(*self._keys(), pane, *order, *self.columns)

    def _keys(self) -> list[pl.Expr]:
        """Return the keys; 0.0 and -0.0 are one group and must have one text, or two buckets."""
        return [
            pl.when(pl.col(key) == 0)
            .then(pl.lit(0.0, dtype=dtype))
            .otherwise(pl.col(key))
            .alias(key)
            if (dtype := self.node.schema[key]).is_float()
            else pl.col(key)
            for key in self.by
        ]

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return partials per group and pane; rows that must be kept stay as they are."""
        if self.parts is None:
            return prepared
        return group_rows(prepared, self.by, [e for parts in self.parts for e in parts.partial])

    def merge(self, frame: pl.DataFrame, node: str = PANE) -> pl.DataFrame:
        """Return one partial per key and node, grouped on one integer made of both."""
        if self.parts is None or frame.is_empty():
            return frame
        low, high = frame[node].min(), frame[node].max()
        assert isinstance(low, int)
        assert isinstance(high, int)
        span = high - low + 1
        slot = (pl.col(CODE) * span + (pl.col(node) - low)).alias(_SLOT)
        merges = [expression for parts in self.parts for expression in parts.merge]
        codes = frame[CODE].max()
        assert isinstance(codes, int)
        if (codes + 1) * span >= _SLOTS:  # times far apart, narrow panes: one integer is too small
            return frame.group_by(CODE, node).agg(merges).select(frame.columns)
        grouped = frame.lazy().with_columns(slot).group_by(_SLOT).agg(merges)
        merged = grouped.with_columns(
            pl.col(_SLOT).floordiv(span).alias(CODE), (pl.col(_SLOT) % span + low).alias(node)
        ).select(frame.columns)
        return merged.collect(engine="streaming" if frame.height > _LARGE else "in-memory")

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> PaneState:
        """Return the state at a watermark from the deltas of the past."""
        keys = KeyTable.empty({key: self.node.schema[key] for key in self.by})
        rows = []
        for delta in deltas:
            needed = delta.filter(pl.col(UNTIL) > watermark).drop(UNTIL)
            keys, coded = keys.encode(needed)
            rows += [coded] if coded.height else []
        if not rows:
            return PaneState(keys=keys, watermark=watermark)
        sealed, waiting = self._split(self.merge(pl.concat(rows)), watermark)
        levels = self._seal((), sealed, NOT_STARTED, watermark)
        return PaneState(keys=keys, open=waiting, levels=levels, watermark=watermark)

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the partials of an epoch with the watermark at which nobody needs them."""
        fresh = [frame for frame in arrived if frame.height]
        return self._with_until(pl.concat(fresh)) if fresh else pl.DataFrame()

    def advance(
        self, state: PaneState, arrived: Sequence[pl.DataFrame], watermark: int
    ) -> Advanced:
        """Take the partials of an epoch and close the windows that the watermark reached."""
        watermark = max(watermark, state.watermark)
        keys, waiting = state.keys, list(state.open)
        for frame in [frame for frame in arrived if frame.height]:
            keys, coded = keys.encode(frame)
            waiting.append(coded)
        sealed, kept = self._split_all(waiting, watermark)
        levels: tuple[tuple[Chunk, ...], ...] = ()
        if self.panes.per_window == 1:  # a window is a pane, and a sealed pane is a closed window
            closed = None if sealed is None else sealed.rename({PANE: WINDOW})
        else:
            levels = self._seal(state.levels, sealed, state.watermark, watermark)
            closed = self._closed(levels, state.watermark, watermark)
        results, refusals = (self._empty(), ()) if closed is None else self._finish(keys, closed)
        after = PaneState(
            keys=keys, open=kept, levels=self._drop_closed(levels, watermark), watermark=watermark
        )
        return Advanced(state=_prune_keys(after), results=results, refusals=refusals)

    def compact(self, deltas: Sequence[pl.DataFrame], watermark: int) -> pl.DataFrame:
        """Return one delta that stands for several at a watermark."""
        rows = pl.concat([d.filter(pl.col(UNTIL) > watermark).drop(UNTIL) for d in deltas])
        keys = KeyTable.empty({key: self.node.schema[key] for key in self.by})
        keys, coded = keys.encode(rows)
        merged = keys.decode(self.merge(coded)) if coded.height else rows
        return self._with_until(merged.select(rows.columns))

    def _with_until(self, rows: pl.DataFrame) -> pl.DataFrame:
        panes = self.panes
        end = (pl.col(PANE).floordiv(panes.step) * panes.step + panes.per_window) * panes.width_us
        return rows.with_columns(end.alias(UNTIL))

    def _split_all(
        self, frames: Sequence[pl.DataFrame], watermark: int
    ) -> tuple[pl.DataFrame | None, tuple[pl.DataFrame, ...]]:
        """Return the sealed rows, merged, and the frames that wait."""
        parts = [self._split(frame, watermark) for frame in frames]
        sealed = [frame for frame, _ in parts if frame is not None and frame.height]
        waiting = tuple(frame for _, kept in parts for frame in kept)
        if not sealed:
            return None, waiting
        return (sealed[0] if len(sealed) == 1 else self.merge(pl.concat(sealed))), waiting

    def _split(
        self, frame: pl.DataFrame, watermark: int
    ) -> tuple[pl.DataFrame | None, tuple[pl.DataFrame, ...]]:
        frontier = self.panes.sealed_before(watermark)
        low, high = frame[PANE].min(), frame[PANE].max()
        assert isinstance(low, int)
        assert isinstance(high, int)
        if high < frontier:
            return frame, ()
        if low >= frontier:
            return None, (frame,)
        waiting = frame.filter(pl.col(PANE) >= frontier)
        return frame.filter(pl.col(PANE) < frontier), (waiting,)

    def _seal(
        self,
        levels: tuple[tuple[Chunk, ...], ...],
        sealed: pl.DataFrame | None,
        before: int,
        now: int,
    ) -> tuple[tuple[Chunk, ...], ...]:
        """Add sealed panes to level 0, and to each level above the nodes that became whole."""
        grown = list(levels) or [()] * (self.levels + 1)
        if sealed is not None and sealed.height:
            grown[0] = add_rows(grown[0], sealed)
        old, new = self.panes.sealed_before(before), self.panes.sealed_before(now)
        for level in range(1, self.levels + 1):
            low, high = old >> level, new >> level
            if low >= high:
                break
            below = rows_between(grown[level - 1], low << 1, high << 1)
            if below is not None:
                halved = below.with_columns(pl.col(PANE).floordiv(2))
                grown[level] = add_rows(grown[level], self.merge(halved))
        return tuple(grown)

    def _closed(
        self, levels: tuple[tuple[Chunk, ...], ...], before: int, now: int
    ) -> pl.DataFrame | None:
        """Return the merged rows of the windows that close between two watermarks."""
        filled = [pane for chunk in levels[0] for pane in chunk.nodes]
        windows = self.panes.closing(filled, before, now)
        if not windows:
            return None
        members = [
            (level, node, window)
            for window in windows
            for level, node in self.panes.nodes_of(window, self.levels)
        ]
        table = pl.DataFrame(members, schema=_MEMBERS, orient="row")
        found = []
        for level, chunks in enumerate(levels):
            wanted = table.filter(pl.col("level") == level).drop("level")
            rows = rows_of(chunks, wanted[PANE].unique().to_list()) if wanted.height else None
            if rows is not None:
                found.append(rows.join(wanted, on=PANE).drop(PANE))
        return self.merge(pl.concat(found), WINDOW)

    def _finish(
        self, keys: KeyTable, rows: pl.DataFrame
    ) -> tuple[pl.DataFrame, tuple[Refusal, ...]]:
        """Return result rows, and the groups for which an expression failed."""
        found = keys.decode(rows)
        try:
            return self._results(found), ()
        except Exception:  # whatever an expression raises is the reason of a group
            pass
        group = [*self.by, WINDOW]

        def step(part: pl.DataFrame) -> pl.DataFrame:
            return self._results(found.join(part, on=group, how="semi", nulls_equal=True))

        groups = found.select(group).unique()
        good, bad = refuse_failing(step, groups, self.node.title, groups.height)
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
        start = pl.col(WINDOW) * self.node.window.every_us
        end = start + self.node.window.size_us
        return [
            start.cast(pl.Datetime("us")).alias("window_start"),
            end.cast(pl.Datetime("us")).alias("window_end"),
            end.alias(TIME),
            pl.lit(self.operator, dtype=pl.Int32).alias(SOURCE),
            pl.lit(0, dtype=pl.Int64).alias(POSITION),
        ]

    def _empty(self) -> pl.DataFrame:
        schema = dict(self.node.schema) | {TIME: pl.Int64()}
        if self.ordered:
            schema |= {SOURCE: pl.Int32(), POSITION: pl.Int64()}
        return pl.DataFrame(schema=schema)

    def _drop_closed(
        self, levels: tuple[tuple[Chunk, ...], ...], watermark: int
    ) -> tuple[tuple[Chunk, ...], ...]:
        """Drop the chunks that no open window needs."""
        oldest = (self.panes.last_closed(watermark) + 1) * self.panes.step
        return tuple(
            tuple(chunk for chunk in chunks if (chunk.nodes[-1] + 1) << level > oldest)
            for level, chunks in enumerate(levels)
        )


def _told_apart_by(node: Aggregate) -> list[str]:
    """Return the columns that give rows at the same place an order, so that there is only one."""
    kept, schema = _kept_columns(node), node.inputs[0].schema
    return [name for name, dtype in schema.items() if name in kept and not dtype.is_nested()]


def _kept_columns(node: Aggregate) -> set[str]:
    return {name for e in node.aggregation.outer for name in e.meta.root_names()}


def _prune_keys(state: PaneState) -> PaneState:
    """Forget the keys that no row has any more, once the table has doubled."""
    if not state.keys.overgrown:
        return state
    chunks = [chunk for level in state.levels for chunk in level]
    frames = [*state.open, *[chunk.rows for chunk in chunks]]
    if not frames:
        return replace(state, keys=KeyTable(keys=state.keys.keys.clear()))
    keys, recoded = state.keys.prune(frames)
    rest = iter(recoded[len(state.open) :])
    levels = tuple(
        tuple(replace(chunk, rows=next(rest)) for chunk in level) for level in state.levels
    )
    return replace(state, keys=keys, open=tuple(recoded[: len(state.open)]), levels=levels)
