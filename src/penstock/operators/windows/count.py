"""Aggregates over count windows: of every group, so many rows in stream order.

Rows wait until the watermark has passed them, since an earlier row of their group may still come.
Then they get their number in the group; a window is written when its last row has one. Of a group
there stay the rows that are in windows to come, and its newest row, which carries the count.

Laws: the number of a row depends on the rows of its group alone; an epoch touches the groups that
got final rows, and of these the rows of windows that are full now; of all windows that become full
in an epoch a row is looked at once (`sliding`), where the functions allow it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from penstock.base.columns import ORDER, POSITION, SOURCE, TIME
from penstock.operators.kernel import FOREVER, HIDDEN, UNTIL, Advanced
from penstock.operators.rowwise.blame import Refusal
from penstock.operators.stores.keyed_rows import KeyedRows
from penstock.operators.stores.numbered_rows import FROM, NEEDED, NUMBER, TO, NumberedRows
from penstock.operators.stores.pieces import Piece
from penstock.operators.stores.runs import run_pieces
from penstock.operators.stores.waiting import Waiting, take_final, waiting_of
from penstock.operators.windows.sliding import Blocks, Places, can_slide, slide
from penstock.operators.windows.window_values import (
    END,
    KEY,
    START,
    WINDOW,
    WindowValues,
    by_key,
    key_changes,
)
from penstock.query.nodes import Aggregate, Apply, Filter, Map, Node, Source, Spread
from penstock.query.windows import CountWindow

_NEW, _PLACE = "__new", "__place"
_MOST = 4_000_000
"""So many rows at most are laid out window by window at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountState:
    """Rows that wait for the watermark, by time, and rows with their number, by key."""

    waiting: Waiting = ()
    rows: NumberedRows


class CountKernel:
    """The aggregate of one operator over count windows."""

    def __init__(self, node: Aggregate, operator: int, ordered: bool) -> None:
        """Prepare the expressions of an aggregate node."""
        assert isinstance(node.window, CountWindow)
        self.size, self.every = node.window.size, node.window.every
        self.values = values = WindowValues(node, operator, ordered)
        self.by = values.by
        values.runs = self.size > 1
        ties = [c for c in values.told_apart if c not in self.by]
        self.ties: list[pl.Expr] = []
        if values.parts is not None:
            wanted = ties if may_tie(node.inputs[0]) else []
            self.ties = [pl.col(c).alias(f"__t{i}") for i, c in enumerate(wanted)]
            ties = [f"__t{i}" for i in range(len(wanted))]
        self.order = [*ORDER, *ties]
        self.forgotten = [SOURCE, POSITION, *[tie.meta.output_name() for tie in self.ties]]
        calls = list(zip(range(len(values.over)), values.over, values.parts or (), strict=True))
        self.sliding = [one for one in calls if can_slide(one[1])]
        self.others = [e for _, call, parts in calls if not can_slide(call) for e in parts.partial]

    def pieces(self, state: CountState) -> Iterable[Piece]:
        """Return what a state is made of."""
        return (*run_pieces(state.waiting), *state.rows.pieces)

    def prepare(self, rows: pl.LazyFrame, port: int = 0) -> pl.LazyFrame:
        """Return keys, order and arguments."""
        return self.values.prepare(rows, [*ORDER, *self.ties])

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they are: which window a row is in is not known yet."""
        return prepared

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> CountState:
        """Return the state at a watermark from the deltas of the past."""
        none = NumberedRows.empty(self.by, self._schema(), self.size)
        rows = [d.filter(pl.col(UNTIL) > watermark).select(none.columns) for d in deltas]
        found = pl.concat([pl.DataFrame(schema=self._schema()), *rows])
        waiting = found.filter(pl.col(NUMBER).is_null())
        numbered = self._keep_needed(found.filter(pl.col(NUMBER).is_not_null())).sort(NUMBER)
        groups = self._groups(by_key(numbered, self.by)).with_columns(pl.col(NEEDED).alias(FROM))
        return CountState(
            waiting=waiting_of(waiting),
            rows=none.add(numbered, groups) if numbered.height else none,
        )

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return the rows of an epoch with the watermark at which they have got their number."""
        fresh = self._fresh(arrived)
        if not fresh:
            return pl.DataFrame()
        return pl.concat(fresh).with_columns((pl.col(TIME) + 1).alias(UNTIL))

    def advance(
        self, state: CountState, arrived: Sequence[pl.DataFrame], watermark: int
    ) -> Advanced:
        """Take the rows of an epoch and number those below the watermark."""
        taken = take_final(state.waiting, self._fresh(arrived), watermark)
        final, waiting = taken.final, taken.waiting
        if not final:
            after = CountState(waiting=waiting, rows=state.rows)
            return Advanced(state=after, results=self.values.no_results())
        fresh = self._number(state.rows.newest, pl.concat(final).sort(self.order))
        groups = self._groups(fresh)
        results, refusals = self._results(self._with_earlier(state.rows, groups, fresh))
        needed = fresh.join(groups.select(KEY, NEEDED), on=KEY, maintain_order="left")
        needed = needed.filter(pl.col(NUMBER) >= pl.col(NEEDED))
        until = pl.lit(FOREVER, dtype=pl.Int64).alias(UNTIL)
        return Advanced(
            state=CountState(waiting=waiting, rows=state.rows.add(needed, groups)),
            results=results,
            refusals=refusals,
            kept=needed.select(*state.rows.columns, until),
        )

    def compact(
        self, deltas: Sequence[pl.DataFrame], watermark: int, whole: bool = False
    ) -> pl.DataFrame:
        """Return one delta, without rows that, as far as it shows, are in no window to come."""
        rows = pl.concat([d.filter(pl.col(UNTIL) > watermark) for d in deltas])
        waits = pl.col(NUMBER).is_null()
        return pl.concat([rows.filter(waits), self._keep_needed(rows.filter(~waits))])

    def _schema(self) -> Mapping[str, pl.DataType]:
        """Return the columns of state rows."""
        given = pl.LazyFrame(schema={**self.values.node.inputs[0].schema, **HIDDEN})
        return {**self.prepare(given).collect_schema(), NUMBER: pl.Int64()}

    def _fresh(self, arrived: Sequence[pl.DataFrame]) -> list[pl.DataFrame]:
        number = pl.lit(None, dtype=pl.Int64).alias(NUMBER)
        return [frame.with_columns(number) for frame in arrived if frame.height]

    def _number(self, newest: KeyedRows, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows, which are in stream order, group by group with their numbers."""
        place, number = pl.col(_PLACE), pl.col(NUMBER)
        before = pl.when(key_changes()).then(number.fill_null(0) - place).forward_fill()
        both = pl.concat([rows.clear(), newest.find(rows), rows], how="diagonal")
        return (
            by_key(both, self.by)
            .lazy()
            .with_columns(
                number.is_null().alias(_NEW),
                pl.int_range(pl.len(), dtype=pl.Int64).alias(_PLACE),
                # A row with a number is in order for good.
                *[pl.lit(None, dtype=rows.schema[c]).alias(c) for c in self.forgotten],
            )
            .with_columns((before + place).alias(NUMBER))
            .filter(_NEW)
            .collect()
        )

    def _groups(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the groups of numbered rows, as `NumberedRows.add` wants them."""
        number = pl.col(NUMBER)
        grouped = rows.group_by(KEY).agg(
            *[pl.col(name).first() for name in self.by], number.min().alias(TO), number.max()
        )
        return grouped.with_columns(
            self._first_needed(pl.col(TO) - 1).alias(FROM),
            self._first_needed(number).alias(NEEDED),
        )

    def _first_needed(self, newest: pl.Expr) -> pl.Expr:
        """Return the first row that is in a window to come; the newest row if none is."""
        start = ((newest - self.size + 1).floordiv(self.every) + 1) * self.every
        return pl.min_horizontal(newest, start).clip(0)

    def _keep_needed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that are in windows to come, and each group's newest row."""
        newest = pl.col(NUMBER).max()
        first = self._first_needed(newest.over(self.by) if self.by else newest)
        return rows.filter(pl.col(NUMBER) >= first)

    def _with_earlier(
        self, rows: NumberedRows, groups: pl.DataFrame, fresh: pl.DataFrame
    ) -> pl.DataFrame:
        """Return new rows with those before them that are in windows which are full now."""
        past = pl.col(TO) - self.size + 1
        start = (-(-past).floordiv(self.every) * self.every).clip(0)
        full = start + self.size - 1 <= pl.col(NUMBER)
        ranges = groups.filter(full).select(*self.by, start.alias(FROM), pl.col(TO) - 1)
        earlier = rows.find(ranges)
        if earlier.is_empty():
            return fresh.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(_PLACE))
        new = pl.lit(False).alias(_NEW)
        both = pl.concat([earlier.with_columns(new), fresh.select(*earlier.columns, _NEW)])
        place = pl.int_range(pl.len(), dtype=pl.Int64).alias(_PLACE)
        return by_key(both, self.by).with_columns(place)

    def _results(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Refusal, ...]]:
        """Return the results of the windows whose last row is new."""
        results, refusals = [self.values.no_results()], list[Refusal]()
        for windows in self._close(rows):
            found, refused = self.values.finish(windows)
            results.append(found)
            refusals += refused
        return pl.concat(results), tuple(refusals)

    def _close(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Yield what `WindowValues.finish` needs of the windows whose last row is new."""
        past = pl.col(NUMBER) - (self.size - 1)
        ends = rows.filter(pl.col(_NEW) & (past >= 0) & (past % self.every == 0))
        if ends.is_empty():
            return
        starts: Places = ends[_PLACE].to_numpy() - (self.size - 1)
        windows = ends.select(
            *self.by,
            rows[TIME].gather(starts).alias(START),
            pl.col(TIME).alias(END),
            pl.int_range(pl.len(), dtype=pl.Int64).alias(WINDOW),
        )
        if self.values.parts is None:
            yield from self._lay_out(rows, windows, starts)
            return
        if self.sliding:
            blocks = Blocks.of(starts, ends[KEY].cast(pl.Int64).to_numpy(), self.size)
            inside = rows.select(pl.all().gather(blocks.rows))
            windows = windows.hstack(slide(inside, blocks, self.sliding))
        if self.others:
            parts = [
                laid.group_by(WINDOW, maintain_order=True).agg(self.others).drop(WINDOW)
                for laid in self._lay_out(rows, windows, starts)
            ]
            windows = windows.hstack(pl.concat(parts))
        yield windows

    def _lay_out(
        self, rows: pl.DataFrame, windows: pl.DataFrame, starts: Places
    ) -> Iterator[pl.DataFrame]:
        """Yield all rows of each window, some windows at a time."""
        many = max(1, _MOST // self.size)
        payload = rows.drop(*self.forgotten, NUMBER, KEY, _NEW, _PLACE)
        for first in range(0, starts.size, many):
            some = starts[first : first + many]
            places = (some[:, None] + np.arange(self.size)).reshape(-1)
            of_window = np.repeat(np.arange(first, first + some.size), self.size)
            laid = payload.select(pl.all().gather(places))
            times = windows.select(pl.col(START, END, WINDOW).gather(of_window))
            yield laid.hstack(times).with_columns(pl.col(WINDOW).set_sorted())


def may_tie(node: Node) -> bool:
    """Return whether two rows of an operator can have the same place in stream order.

    Rows of a source have places of their own. What is united may be the same row twice, and
    results have no place but their event time.
    """
    while isinstance(node, Map | Filter | Apply | Spread):
        (node,) = node.inputs
    return not isinstance(node, Source)
