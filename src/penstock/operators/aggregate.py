"""Windowed aggregates over panes.

Rows become partials per group and pane, before the shuffle where the functions allow it. A pane is
sealed when the watermark passes its end; sealed panes are grouped into nodes of 2, 4, 8, … panes,
and a window is merged from a handful of nodes, however many panes it has. Laws: a row is touched
once; a window is written once, when the watermark reaches its end; nothing is ever subtracted, so
results do not drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from penstock.operators.chunks import PANE, Chunk, add_rows, rows_between, rows_of
from penstock.operators.functions import Parts, parts_of
from penstock.operators.kernel import UNTIL, Advanced
from penstock.operators.panes import NOT_STARTED, Panes
from penstock.query.nodes import ORDER, POSITION, SOURCE, TIME, Aggregate

WINDOW = "__window"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaneState:
    """Open panes as they came, sealed panes by level, and how far windows have closed."""

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
        self.parts: list[Parts] | None = (
            None if calls is None else [parts_of(i, call) for i, call in enumerate(calls)]
        )
        deep = self.parts is not None and self.panes.per_window > 3
        self.levels = self.panes.per_window.bit_length() - 1 if deep else 0

    def combine(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Return partials per group and pane, or the rows with their pane."""
        pane = pl.col(TIME).floordiv(self.panes.width_us).alias(PANE)
        if self.parts is None:
            columns = sorted(_kept_columns(self.node))
            return rows.select(*self.by, *[c for c in columns if c not in self.by], *ORDER, pane)
        partials = [expression for parts in self.parts for expression in parts.partial]
        return rows.group_by(*self.by, pane).agg(partials)

    def merge(self, frame: pl.DataFrame, node: str = PANE) -> pl.DataFrame:
        """Return one partial per group and node."""
        if self.parts is None:
            return frame
        merges = [expression for parts in self.parts for expression in parts.merge]
        return frame.group_by(*self.by, node).agg(merges)

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> PaneState:
        """Return the state at a watermark from the deltas of the past."""
        state = PaneState(watermark=watermark)
        rows = [d.filter(pl.col(UNTIL) > watermark).drop(UNTIL) for d in deltas]
        rows = [frame for frame in rows if frame.height]
        if not rows:
            return state
        sealed, waiting = self._split(self._merged(rows), watermark)
        return PaneState(
            open=waiting, levels=self._seal((), sealed, NOT_STARTED, watermark), watermark=watermark
        )

    def advance(
        self, state: PaneState, arrived: Sequence[pl.DataFrame], watermark: int
    ) -> Advanced:
        """Take the partials of an epoch and close the windows that the watermark reached."""
        new = self._merged([frame for frame in arrived if frame.height]) if arrived else None
        delta = self._delta(new)
        waiting = [*state.open, *([new] if new is not None and new.height else [])]
        watermark = max(watermark, state.watermark)
        sealed, kept = self._split_all(waiting, watermark)
        if self.panes.per_window == 1:  # a window is a pane, and a sealed pane is a closed window
            results = (
                self._empty() if sealed is None else self._finish(sealed.rename({PANE: WINDOW}))
            )
            return Advanced(
                state=PaneState(open=kept, watermark=watermark), results=results, delta=delta
            )
        levels = self._seal(state.levels, sealed, state.watermark, watermark)
        results = self._close(levels, state.watermark, watermark)
        after = PaneState(open=kept, levels=self._prune(levels, watermark), watermark=watermark)
        return Advanced(state=after, results=results, delta=delta)

    def compact(self, deltas: Sequence[pl.DataFrame], watermark: int) -> pl.DataFrame:
        """Return one delta that stands for several at a watermark."""
        rows = [d.filter(pl.col(UNTIL) > watermark).drop(UNTIL) for d in deltas]
        return self._delta(self._merged(rows))

    def _merged(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
        if not frames:
            return None
        return frames[0] if len(frames) == 1 else self.merge(pl.concat(frames))

    def _delta(self, rows: pl.DataFrame | None) -> pl.DataFrame:
        if rows is None:
            return pl.DataFrame()
        panes = self.panes
        end = (pl.col(PANE).floordiv(panes.step) * panes.step + panes.per_window) * panes.width_us
        return rows.with_columns(end.alias(UNTIL))

    def _split_all(
        self, frames: Sequence[pl.DataFrame], watermark: int
    ) -> tuple[pl.DataFrame | None, tuple[pl.DataFrame, ...]]:
        parts = [self._split(frame, watermark) for frame in frames]
        sealed = [frame for frame, _ in parts if frame is not None and frame.height]
        return self._merged(sealed), tuple(frame for _, kept in parts for frame in kept)

    def _split(
        self, frame: pl.DataFrame | None, watermark: int
    ) -> tuple[pl.DataFrame | None, tuple[pl.DataFrame, ...]]:
        if frame is None:
            return None, ()
        frontier = self.panes.sealed_before(watermark)
        highest = frame[PANE].max()
        assert isinstance(highest, int)
        if highest < frontier:
            return frame, ()
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

    def _close(self, levels: tuple[tuple[Chunk, ...], ...], before: int, now: int) -> pl.DataFrame:
        """Return the results of the windows that close between two watermarks."""
        filled = [pane for chunk in levels[0] for pane in chunk.nodes]
        windows = self.panes.closing(filled, before, now)
        if not windows:
            return self._empty()
        members = [
            (level, node, window)
            for window in windows
            for level, node in self.panes.nodes_of(window, self.levels)
        ]
        return self._finish(self._gather(levels, members))

    def _gather(
        self, levels: tuple[tuple[Chunk, ...], ...], members: list[tuple[int, int, int]]
    ) -> pl.DataFrame:
        """Return the rows of each window: its nodes' rows, then merged."""
        table = pl.DataFrame(
            members, schema={"level": pl.Int64, PANE: pl.Int64, WINDOW: pl.Int64}, orient="row"
        )
        found = []
        for level, chunks in enumerate(levels):
            wanted = table.filter(pl.col("level") == level).drop("level")
            rows = rows_of(chunks, wanted[PANE].unique().to_list()) if wanted.height else None
            if rows is not None:
                found.append(rows.join(wanted, on=PANE).drop(PANE))
        return self.merge(pl.concat(found), WINDOW)

    def _finish(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return result rows from merged partials (or kept rows) with their window."""
        node, outer = self.node, self.node.aggregation.outer
        values = [
            e.cast(node.schema[name]).alias(name)
            for name, e in zip(node.aggregation.names, outer, strict=True)
        ]
        start = pl.col(WINDOW) * node.window.every_us
        times = [
            start.cast(pl.Datetime("us")).alias("window_start"),
            (start + node.window.size_us).cast(pl.Datetime("us")).alias("window_end"),
            (start + node.window.size_us).alias(TIME),
        ]
        if self.parts is None:
            groups = rows.sort(*ORDER).group_by(*self.by, WINDOW, maintain_order=True)
            lazy = groups.agg(values).lazy()
        else:
            lazy = rows.lazy().with_columns(parts.finish for parts in self.parts)
            lazy = lazy.with_columns(values)
        hidden = [TIME, SOURCE, POSITION] if self.ordered else [TIME]
        places = [
            pl.lit(self.operator, dtype=pl.Int32).alias(SOURCE),
            pl.lit(0, dtype=pl.Int64).alias(POSITION),
        ]
        return lazy.with_columns(*times, *places).select(*node.schema, *hidden).collect()

    def _empty(self) -> pl.DataFrame:
        schema = dict(self.node.schema) | {TIME: pl.Int64()}
        if self.ordered:
            schema |= {SOURCE: pl.Int32(), POSITION: pl.Int64()}
        return pl.DataFrame(schema=schema)

    def _prune(
        self, levels: tuple[tuple[Chunk, ...], ...], watermark: int
    ) -> tuple[tuple[Chunk, ...], ...]:
        """Drop the chunks that no open window needs."""
        oldest = (self.panes.last_closed(watermark) + 1) * self.panes.step
        return tuple(
            tuple(chunk for chunk in chunks if (chunk.nodes[-1] + 1) << level > oldest)
            for level, chunks in enumerate(levels)
        )


def _kept_columns(node: Aggregate) -> set[str]:
    return {name for e in node.aggregation.outer for name in e.meta.root_names()}
