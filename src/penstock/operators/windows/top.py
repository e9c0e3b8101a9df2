"""The k first rows by an expression, per group and window.

Only the k first rows of a group and pane leave a load balancer, are kept and are merged: what is
not among the first of its pane is not among the first of a window. Without a window a pane is one
event time. Laws: the result depends on the rows alone, not on how they came together, since rows
are in one order: by value, by place in the stream, by their columns; a window is written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from penstock.base.columns import ORDER, TIME
from penstock.base.hashing import key_columns
from penstock.base.times import NOT_STARTED
from penstock.operators.kernel import UNTIL, Advanced, empty_results, place_results
from penstock.operators.stores.chunks import PANE
from penstock.operators.stores.levels import WINDOW, Levels, Nodes, level_pieces
from penstock.operators.stores.pieces import Piece
from penstock.operators.stores.runs import Run, add_run, run_pieces, take_below
from penstock.operators.windows.panes import Panes
from penstock.query.top import RANK, Top

_BOUND, _FEW = "__bound", "__few"
_VALUE = "__top_order"
_MOMENT = Panes(width_us=1, per_window=1, step=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopState:
    """First rows of open panes, of sealed panes by level, and how far windows have closed."""

    open: tuple[Run, ...] = ()
    levels: Levels = ()
    watermark: int = NOT_STARTED


class TopKernel:
    """The top of one operator; `operator` tells it apart in the order of results."""

    def __init__(self, node: Top, operator: int, ordered: bool) -> None:
        """Prepare the order of rows."""
        self.node, self.operator, self.ordered = node, operator, ordered
        self.by = list(node.by)
        self.panes = _MOMENT if node.window is None else Panes.of(node.window)
        depth = self.panes.per_window.bit_length() - 1 if self.panes.per_window > 3 else 0
        self.nodes = Nodes(panes=self.panes, depth=depth, merge=self.first_rows)
        schema = node.inputs[0].schema
        flat = [name for name, dtype in schema.items() if not dtype.is_nested()]
        self.order = [_VALUE, *ORDER, *flat]
        self.rest = [name for name in schema if name not in self.by]

    def pieces(self, state: TopState) -> Iterable[Piece]:
        """Return what a state is made of."""
        return (*run_pieces(state.open), *level_pieces(state.levels))

    def prepare(self, rows: pl.LazyFrame, port: int = 0) -> pl.LazyFrame:
        """Return all columns, the order, and what is compared."""
        keys = key_columns(self.by, self.node.schema)
        pane = self.panes.pane_of(pl.col(TIME)).alias(PANE)
        return rows.select(*keys, *self.rest, *ORDER, pane, self.node.order.alias(_VALUE))

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return the first rows of each group and pane."""
        return self.first_rows(prepared)

    def first_rows(self, rows: pl.DataFrame, node: str = PANE) -> pl.DataFrame:
        """Return the first rows of each group in each pane, node or window, in order."""
        if rows.height <= self.node.k:
            return rows
        return (
            self._sort(self._candidates(rows, node))
            .group_by([*self.by, node], maintain_order=True)
            .head(self.node.k)
            .select(rows.columns)
        )

    def _candidates(self, rows: pl.DataFrame, node: str) -> pl.DataFrame:
        """Return the rows of each group that k others do not beat, so that few have to be sorted.

        A group with fewer than k values that compare as numbers is returned as it is.
        """
        dtype = rows.schema[_VALUE]
        if not (dtype.is_numeric() or dtype.is_temporal()):
            return rows
        group, value = [*self.by, node], pl.col(_VALUE)
        known = value.drop_nulls()
        known = known.drop_nans() if dtype.is_float() else known
        k, down = self.node.k, self.node.descending
        bound = known.top_k(k).min() if down else known.bottom_k(k).max()
        bounds = rows.group_by(group).agg(bound.alias(_BOUND), (known.len() < k).alias(_FEW))
        inside = value >= pl.col(_BOUND) if down else value <= pl.col(_BOUND)
        return (
            rows.join(bounds, on=group, nulls_equal=True, maintain_order="left")
            .filter(pl.col(_FEW) | inside)
            .select(rows.columns)
        )

    def _sort(self, rows: pl.DataFrame) -> pl.DataFrame:
        descending = [self.node.descending, *[False] * (len(self.order) - 1)]
        nulls_last = [True, *[False] * (len(self.order) - 1)]
        return rows.sort(self.order, descending=descending, nulls_last=nulls_last)

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> TopState:
        """Return the state at a watermark from the deltas of the past."""
        rows = [d.filter(pl.col(UNTIL) > watermark).drop(UNTIL) for d in deltas]
        found = [frame for frame in rows if frame.height]
        if not found:
            return TopState(watermark=watermark)
        sealed, runs = take_below((self._run(found),), PANE, self.panes.sealed_before(watermark))
        levels = self.nodes.seal((), sealed[0] if sealed else None, NOT_STARTED, watermark)
        return TopState(open=runs, levels=levels, watermark=watermark)

    def catch_up(self, state: TopState, deltas: Sequence[pl.DataFrame], watermark: int) -> TopState:
        """Return the state at a watermark from an older one and the deltas since then."""
        rows = [self.compact(deltas, watermark).drop(UNTIL)] if deltas else []
        caught: TopState = self.advance(state, rows, watermark).state
        return caught

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of an epoch with the watermark at which nobody needs them."""
        fresh = [frame for frame in arrived if frame.height]
        return self._with_until(pl.concat(fresh)) if fresh else pl.DataFrame()

    def advance(self, state: TopState, arrived: Sequence[pl.DataFrame], watermark: int) -> Advanced:
        """Take the rows of an epoch and close the windows that the watermark reached."""
        watermark = max(watermark, state.watermark)
        runs, levels = state.open, state.levels
        fresh = [frame for frame in arrived if frame.height]
        if fresh:
            runs = add_run(runs, self._run(fresh), self._run)
        below, runs = take_below(runs, PANE, self.panes.sealed_before(watermark))
        sealed = self.first_rows(pl.concat(below)) if below else None
        if self.panes.per_window == 1:  # a window is a pane
            closed = None if sealed is None else sealed.rename({PANE: WINDOW})
        else:
            grown = self.nodes.seal(levels, sealed, state.watermark, watermark)
            closed = self.nodes.closed(grown, state.watermark, watermark)
            levels = self.nodes.drop_closed(grown, watermark)
        after = TopState(open=runs, levels=levels, watermark=watermark)
        empty = empty_results(self.node.schema, self.ordered)
        return Advanced(state=after, results=empty if closed is None else self._results(closed))

    def compact(
        self, deltas: Sequence[pl.DataFrame], watermark: int, whole: bool = False
    ) -> pl.DataFrame:
        """Return one delta that stands for several at a watermark."""
        rows = pl.concat([d.filter(pl.col(UNTIL) > watermark).drop(UNTIL) for d in deltas])
        return self._with_until(self.first_rows(rows))

    def _run(self, frames: Sequence[pl.DataFrame]) -> Run:
        rows = frames[0] if len(frames) == 1 else self.first_rows(pl.concat(frames, rechunk=True))
        return Run.of(rows, PANE)

    def _with_until(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(self.panes.until(pl.col(PANE)).alias(UNTIL))

    def _results(self, closed: pl.DataFrame) -> pl.DataFrame:
        """Return the first rows of windows with their rank and times."""
        rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over([*self.by, WINDOW])
        ranked = self._sort(closed).lazy().with_columns(rank.alias(RANK), *self._times())
        names = empty_results(self.node.schema, self.ordered).columns
        return place_results(ranked, self.operator, self.ordered).select(names).collect()

    def _times(self) -> list[pl.Expr]:
        if self.node.window is None:
            return []
        start = self.panes.window_start(pl.col(WINDOW))
        end = self.panes.window_end(pl.col(WINDOW))
        return [
            start.cast(self.node.schema["window_start"]).alias("window_start"),
            end.cast(self.node.schema["window_end"]).alias("window_end"),
            end.alias(TIME),
        ]
