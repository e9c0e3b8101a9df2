"""Aggregates over session windows: rows of a group that follow one another within a gap.

Rows become fragments before the shuffle: partials with the first and the last time of rows that
belong together. Fragments wait by the watermark at which they alone would end their session. When
it comes, those whose session has ended are merged to its result; the others are merged, written
anew and wait until their session's end, as far as it is known by then.

Laws: a session is written once, when the watermark is past its last row's time plus the gap. An
epoch touches the sessions that got rows and those that have fragments which no longer wait. A
fragment that is written anew waits until the end that its session has then, so it is written anew
again only if rows came that moved the end; all others of its session that waited have by then
become one with it. So there are at most as many rewritten fragments as fragments that came (a
session whose rows are kept copies them once for each gap that it lasts).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from penstock.base.columns import ORDER, TIME
from penstock.operators.kernel import HIDDEN, UNTIL, Advanced
from penstock.operators.stores.keyed_rows import KeyedRows
from penstock.operators.stores.pieces import Piece
from penstock.operators.stores.runs import Run, add_run, run_pieces, take_below
from penstock.operators.windows.parts import partial_names, partials_for
from penstock.operators.windows.window_values import (
    END,
    KEY,
    START,
    WINDOW,
    WindowValues,
    by_key,
    key_changes,
)
from penstock.query.nodes import Aggregate
from penstock.query.windows import SessionWindow

FIRST, LAST = "__session_first", "__session_last"
"""The times of a fragment's or a session's first and last row."""
_ROW = "__row"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """Open sessions by key (first and last time), and their fragments by ``UNTIL``."""

    sessions: KeyedRows
    fragments: tuple[Run, ...] = ()


class SessionKernel:
    """The aggregate of one operator over sessions."""

    def __init__(self, node: Aggregate, operator: int, ordered: bool) -> None:
        """Prepare the expressions of an aggregate node."""
        assert isinstance(node.window, SessionWindow)
        self.apart_us = node.window.gap_us + 1  # rows so far apart are in two sessions
        self.values = WindowValues(node, operator, ordered)
        self.by = self.values.by
        keys: Mapping[str, pl.DataType] = {key: node.schema[key] for key in self.by}
        self.none = KeyedRows.empty(self.by, {**keys, FIRST: HIDDEN[TIME], LAST: HIDDEN[TIME]})
        self.hidden = ORDER if node.aggregation.needs_order else (TIME,)

    def pieces(self, state: SessionState) -> Iterable[Piece]:
        """Return what a state is made of."""
        return (*state.sessions.pieces, *run_pieces(state.fragments))

    def prepare(self, rows: pl.LazyFrame, port: int = 0) -> pl.LazyFrame:
        """Return the columns that `combine` needs: keys, time or order, and arguments."""
        return self.values.prepare(rows, self.hidden)

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return fragments: of rows that belong together, or of one row each if rows are kept."""
        spans = prepared.with_columns(pl.col(TIME).alias(FIRST), pl.col(TIME).alias(LAST))
        if self.values.parts is None:
            return spans
        partials, after = partials_for(prepared, self.values.parts)
        merged = self._merge(self._number(spans, points=True), partials)
        names = partial_names(self.values.parts)
        return merged.with_columns(after).select(*self.none.schema, *names)

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> SessionState:
        """Return the state at a watermark from the deltas of the past."""
        return self.catch_up(SessionState(sessions=self.none), deltas, watermark)

    def catch_up(
        self, state: SessionState, deltas: Sequence[pl.DataFrame], watermark: int
    ) -> SessionState:
        """Return the state at a watermark from an older one and the deltas since then.

        A fragment that was due meanwhile either ended with its session or was written again.
        """
        due, fragments = take_below(state.fragments, UNTIL, watermark + 1)
        rows = [d.filter(pl.col(UNTIL) > watermark) for d in deltas]
        found = [frame for frame in rows if frame.height]
        if found:
            fragments = add_run(fragments, _by_until(found), _by_until)
        touched = pl.concat([
            pl.DataFrame(schema=self.none.schema),
            *[frame.select(list(self.none.schema)) for frame in (*due, *found)],
        ])  # fmt: skip
        known = pl.concat([state.sessions.find(touched), touched])
        open_ones = self._spans(known).filter(pl.col(LAST) + self.apart_us > watermark)
        return SessionState(
            sessions=state.sessions.replace(touched, open_ones), fragments=fragments
        )

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the fragments of an epoch with the watermark at which they would be an end."""
        fresh = [frame for frame in arrived if frame.height]
        until = (pl.col(LAST) + self.apart_us).alias(UNTIL)
        return pl.concat(fresh).with_columns(until) if fresh else pl.DataFrame()

    def advance(
        self, state: SessionState, arrived: Sequence[pl.DataFrame], watermark: int
    ) -> Advanced:
        """Take the fragments of an epoch and close the sessions that the watermark reached."""
        sessions, fragments = state.sessions, state.fragments
        fresh = self.delta(arrived)
        if fresh.height:
            known = sessions.find(fresh)
            sessions = sessions.replace(
                fresh, self._spans(pl.concat([known, fresh.select(known.columns)]))
            )
            fragments = add_run(fragments, Run.of(fresh, UNTIL), _by_until)
        due, fragments = take_below(fragments, UNTIL, watermark + 1)
        if not due:
            after = SessionState(sessions=sessions, fragments=fragments)
            return Advanced(state=after, results=self.values.no_results())
        spans, placed = self._place(sessions, pl.concat(due))
        ended = pl.col(END) <= watermark
        sessions = sessions.replace(spans, spans.filter(~ended))
        kept = self._keep_going_on(placed.filter(~ended))
        if kept.height:
            fragments = add_run(fragments, Run.of(kept, UNTIL), _by_until)
        results, refusals = self.values.finish(self._find_closing(placed.filter(ended)))
        return Advanced(
            state=SessionState(sessions=sessions, fragments=fragments),
            results=results,
            refusals=refusals,
            kept=kept,
        )

    def compact(
        self, deltas: Sequence[pl.DataFrame], watermark: int, whole: bool = False
    ) -> pl.DataFrame:
        """Return one delta; fragments of a session that wait for the same watermark become one."""
        rows = pl.concat([d.filter(pl.col(UNTIL) > watermark) for d in deltas])
        if self.values.parts is None or rows.is_empty():
            return rows
        spans = [pl.col(FIRST).min(), pl.col(LAST).max()]
        merged = rows.group_by(*self.by, UNTIL).agg(*spans, *self.values.merges)
        return merged.select(rows.columns)

    def join(self, fragments: pl.DataFrame) -> pl.DataFrame:
        """Return one fragment a session; how many there are depends on who read which row."""
        if self.values.parts is None or fragments.is_empty():
            return fragments
        values = [pl.col(UNTIL).max(), *self.values.merges]
        return self._merge(self._number(fragments), values).select(fragments.columns)

    def _number(self, frame: pl.DataFrame, *, points: bool = False) -> pl.DataFrame:
        """Return spans by key and time, each with the number of the session that they make.

        Args:
            frame: Spans of time: ``FIRST`` and ``LAST``.
            points: Whether each of them is one point in time.
        """
        reach = pl.col(LAST) if points else pl.col(LAST).cum_max().over(KEY)
        apart = pl.col(FIRST) - reach.shift() >= self.apart_us
        number = (key_changes() | apart).cum_sum().alias(WINDOW)
        return by_key(frame.sort(FIRST), self.by).with_columns(number).drop(KEY)

    def _merge(self, numbered: pl.DataFrame, values: Sequence[pl.Expr]) -> pl.DataFrame:
        """Return one row for each session of a numbered frame."""
        keys = [pl.col(name).first() for name in self.by]
        spans = [pl.col(FIRST).min(), pl.col(LAST).max()]
        return numbered.lazy().group_by(WINDOW).agg(*keys, *spans, *values).drop(WINDOW).collect()

    def _spans(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the sessions that spans of time make, by key."""
        return self._merge(self._number(frame.select(list(self.none.schema))), [])

    def _place(self, sessions: KeyedRows, due: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the open sessions of some fragments' keys, and the fragments with theirs."""
        span = [*self.by, FIRST, LAST]
        heads = sessions.find(due).select(*span, pl.lit(-1, dtype=pl.Int64).alias(_ROW))
        rows = due.select(*span, pl.int_range(pl.len()).alias(_ROW))
        marks = pl.concat([heads, rows]).sort(FIRST, _ROW)  # a session before its fragments
        head = pl.col(_ROW) < 0
        placed = by_key(marks, self.by).select(
            *span,
            _ROW,
            head.cum_sum().alias(WINDOW),
            pl.when(head).then(FIRST).forward_fill().alias(START),
            pl.when(head).then(pl.col(LAST) + self.apart_us).forward_fill().alias(END),
        )
        mine = placed.filter(~head).sort(_ROW).select(WINDOW, START, END)
        return placed.filter(head), due.hstack(mine)

    def _find_closing(self, ended: pl.DataFrame) -> pl.DataFrame:
        """Return what is needed to write ended sessions; they end a gap after their last row."""
        ended = ended.with_columns(pl.col(END) - 1)
        if self.values.parts is None:
            return ended.sort(*ORDER, *self.values.told_apart)
        names = (*self.by, START, END)
        return ended.group_by(WINDOW).agg(*[pl.col(c).first() for c in names], *self.values.merges)

    def _keep_going_on(self, placed: pl.DataFrame) -> pl.DataFrame:
        """Return fragments whose session goes on, as they wait from now on."""
        moved = placed.with_columns(pl.col(END).alias(UNTIL)).drop(START, END)
        if self.values.parts is None:
            return moved.drop(WINDOW)
        values = [pl.col(UNTIL).first(), *self.values.merges]
        return self._merge(moved, values).select(moved.drop(WINDOW).columns)


def _by_until(frames: Sequence[pl.DataFrame]) -> Run:
    return Run.of(pl.concat(frames, rechunk=True), UNTIL)
