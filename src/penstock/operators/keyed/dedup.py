"""Dedup: drops rows whose key was kept a short while ago.

Rows wait until the watermark has passed them. Then each row points to the first row of its key that
may be kept after it, and who is kept is found by following the pointers of all keys at once, twice
as far each time. Laws: work grows with the rows whose turn it is, times the log of their number; a
kept time is forgotten as soon as it can no longer stop a row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.base.columns import ORDER, TIME
from penstock.base.hashing import key_columns
from penstock.base.times import NOT_STARTED
from penstock.operators.kernel import FOREVER, HIDDEN, UNTIL, Advanced, place_results
from penstock.operators.keyed.process_state import one_key
from penstock.operators.stores.key_runs import Numbers
from penstock.operators.stores.keyed_rows import KeyedRows
from penstock.operators.stores.keys import CODE
from penstock.operators.stores.pieces import Piece
from penstock.operators.stores.runs import Run, add_run, run_pieces, take_below
from penstock.operators.stores.waiting import Waiting, take_final
from penstock.query.dedup import Dedup

KEPT = "__kept"
"""When the last row of a key was kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupState:
    """Rows at or above the watermark, when each key was last kept, and when that is forgotten."""

    kept: KeyedRows
    waiting: Waiting = ()
    ending: tuple[Run, ...] = ()
    watermark: int = NOT_STARTED


class DedupKernel:
    """Keeps the first row of each key, for some time or for ever."""

    def __init__(self, node: Dedup, operator: int, ordered: bool) -> None:
        """Prepare the columns of a dedup."""
        self.node, self.operator, self.ordered = node, operator, ordered
        self.keys = one_key(node.by, node.schema)
        self.by = list(self.keys)
        self.rows = dict(node.schema) | self.keys | HIDDEN
        self.flat = [name for name, dtype in node.schema.items() if not dtype.is_nested()]
        marks: dict[str, pl.DataType] = {KEPT: pl.Int64(), UNTIL: pl.Int64()}
        self.nothing = pl.DataFrame(schema=self.rows | marks)

    def pieces(self, state: DedupState) -> Iterable[Piece]:
        """Return what a state is made of."""
        return (*state.kept.pieces, *run_pieces(state.waiting), *run_pieces(state.ending))

    def prepare(self, rows: pl.LazyFrame, port: int = 0) -> pl.LazyFrame:
        """Return the columns of the stream, and the order."""
        return rows.with_columns(
            key_columns(self.node.by, self.node.schema) or [pl.lit(0, pl.Int8).alias(self.by[0])]
        ).select(list(self.rows))

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they are."""
        return prepared

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return nothing: what an epoch adds is known once its work is done."""
        return pl.DataFrame()

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> DedupState:
        """Return the rows that wait and the times that still count."""
        empty = DedupState(kept=KeyedRows.empty(self.by, self.keys | {KEPT: pl.Int64()}))
        return self.catch_up(empty, deltas, watermark)

    def catch_up(
        self, state: DedupState, deltas: Sequence[pl.DataFrame], watermark: int
    ) -> DedupState:
        """Return the state at a watermark from an older one and the deltas since then."""
        rows = self.compact(deltas, watermark)
        waits = rows.filter(pl.col(KEPT).is_null()).select(list(self.rows))
        times = rows.filter(pl.col(KEPT).is_not_null()).select(*self.by, KEPT)
        waiting = take_final(state.waiting, [waits], watermark).waiting
        return self._settle(replace(state, waiting=waiting, watermark=watermark), times)

    def compact(
        self, deltas: Sequence[pl.DataFrame], watermark: int, whole: bool = False
    ) -> pl.DataFrame:
        """Return one delta with the rows that wait and the last time of each key."""
        rows = pl.concat([self.nothing, *deltas]).filter(pl.col(UNTIL) > watermark)
        waits = rows.filter(pl.col(KEPT).is_null())
        times = rows.filter(pl.col(KEPT).is_not_null()).sort(KEPT)
        return pl.concat([waits, times.unique(self.by, keep="last", maintain_order=True)])

    def advance(
        self, state: DedupState, arrived: Sequence[pl.DataFrame], watermark: int
    ) -> Advanced:
        """Take the rows of an epoch; decide on those below the watermark."""
        watermark = max(watermark, state.watermark)
        fresh = [frame.select(list(self.rows)) for frame in arrived if frame.height]
        taken = take_final(state.waiting, fresh, watermark)
        before = replace(state, waiting=taken.waiting, watermark=watermark)
        stays = self._keep_first(before, pl.concat([pl.DataFrame(schema=self.rows), *taken.final]))
        times = stays.group_by(self.by).agg(pl.col(TIME).max().alias(KEPT))
        waits = [frame.with_columns((pl.col(TIME) + 1).alias(UNTIL)) for frame in taken.later]
        written = times.with_columns(self._until().alias(UNTIL))
        results = stays.lazy().select(*self.node.schema, TIME)
        return Advanced(
            state=self._settle(before, times),
            results=place_results(results, self.operator, self.ordered).collect(),
            kept=pl.concat([self.nothing, *waits, written], how="diagonal"),
        )

    def _keep_first(self, state: DedupState, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows that stay."""
        if not rows.height:
            return rows
        keys = rows.select(self.by).unique()
        known = keys.join(state.kept.find(keys), on=self.by, how="left", nulls_equal=True)
        coded = rows.join(known.with_row_index(CODE), on=self.by, how="left", nulls_equal=True)
        ordered = coded.sort(CODE, *ORDER, *self.flat)
        if self.node.within_us is None:
            return ordered.filter(pl.col(CODE).is_first_distinct() & pl.col(KEPT).is_null())
        return ordered.filter(pl.Series(_chains(ordered, self.node.within_us)))

    def _settle(self, state: DedupState, times: pl.DataFrame) -> DedupState:
        """Return the state with new times, and without those that have come to their end."""
        kept = state.kept.replace(times, times)
        ended, ending = take_below(state.ending, UNTIL, state.watermark + 1)
        if ended:
            over = kept.find(pl.concat(ended)).filter(self._until() <= state.watermark)
            kept = kept.replace(over)
        return replace(state, kept=kept, ending=self._with_ends(ending, times))

    def _with_ends(self, runs: tuple[Run, ...], times: pl.DataFrame) -> tuple[Run, ...]:
        if self.node.within_us is None or not times.height:
            return runs
        ends = times.select(*self.by, self._until().alias(UNTIL))
        return add_run(runs, _by_end([ends]), _by_end)

    def _until(self) -> pl.Expr:
        if self.node.within_us is None:
            return pl.lit(FOREVER, dtype=pl.Int64)
        return pl.col(KEPT) + self.node.within_us


def _chains(rows: pl.DataFrame, within: int) -> npt.NDArray[np.bool_]:
    """Return which rows stay; rows are by key and stream order, with the last kept time or null.

    >>> frame = pl.DataFrame({CODE: [0] * 5 + [1] * 2, TIME: [0, 2, 3, 5, 6, 1, 9],
    ...                       KEPT: [None] * 5 + [-1] * 2})
    >>> _chains(frame, 3).tolist()
    [True, False, True, False, True, False, True]
    """
    codes, times = rows[CODE].to_numpy().astype(np.int64), rows[TIME].to_numpy()
    different, ranks = np.unique(times, return_inverse=True)
    places = codes * (different.size + 1) + ranks

    def first_from(code: Numbers, time: Numbers) -> Numbers:
        """Return the first row of a key at or after a time; the number of rows if there is none."""
        wanted = code * (different.size + 1) + np.searchsorted(different, time)
        found = np.searchsorted(places, wanted)
        there = codes[np.minimum(found, codes.size - 1)] == code
        return np.where((found < codes.size) & there, found, codes.size)

    following = np.append(first_from(codes, times + within), codes.size)
    begins = np.flatnonzero(np.diff(codes, prepend=-1))
    last = rows[KEPT].gather(begins)
    free = last.is_null().to_numpy()
    earliest = np.where(free, times[begins], last.fill_null(0).to_numpy() + within)
    stays = np.zeros(codes.size + 1, dtype=np.bool_)
    stays[first_from(codes[begins], earliest)] = True
    for _ in range(codes.size.bit_length()):
        stays[following[stays]] = True
        following = following[following]
    return stays[:-1]


def times_by_key(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return state rows as a user sees them: a row per key, with when a row of it was kept."""
    keys = list(by) or [name for name in rows.columns if name in one_key((), {})]
    found = rows.group_by(keys).agg(
        pl.col(KEPT).max().cast(pl.Datetime("us")),
        pl.col(KEPT).is_null().sum().alias("__waiting"),
    )
    return found.sort(keys).select(*by, KEPT, "__waiting")


def _by_end(frames: Sequence[pl.DataFrame]) -> Run:
    return Run.of(pl.concat(frames, rechunk=True), UNTIL)
