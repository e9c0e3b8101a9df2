"""Enrich: columns of the newest row of a table that changes.

Rows wait until the watermark of both inputs has passed them. Laws: a row gets the last row of its
key, in the order of the table's stream, that is not later than itself; of the table the newest row
of each key below the watermark is kept, and all above it; an epoch looks only at keys of rows whose
turn it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import polars as pl

from penstock.base.columns import ORDER, TIME
from penstock.base.hashing import key_columns
from penstock.base.times import NOT_STARTED
from penstock.operators.kernel import (
    FOREVER,
    HIDDEN,
    SIDE,
    UNTIL,
    Advanced,
    empty_results,
    place_results,
)
from penstock.operators.stores.keyed_rows import KeyedRows
from penstock.operators.stores.keys import CODE
from penstock.operators.stores.pieces import Piece
from penstock.operators.stores.runs import run_pieces
from penstock.operators.stores.waiting import Waiting, take_final
from penstock.query.enrich import Enrich

_FOUND = "__found"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrichState:
    """The newest row of each key below the watermark; rows of both sides above it."""

    table: KeyedRows
    waiting: tuple[Waiting, Waiting] = ((), ())
    watermark: int = NOT_STARTED


class EnrichKernel:
    """Gives each row of the left input the newest row of the right one."""

    def __init__(self, node: Enrich, operator: int, ordered: bool) -> None:
        """Prepare the columns of both sides; the table's have their names in the result."""
        self.node, self.operator, self.ordered = node, operator, ordered
        self.on = list(node.on)
        left, right = (source.schema for source in node.inputs)
        self.names = dict(node.renamed)
        keys = {key: left[key] for key in self.on}
        added = {name: right[column] for column, name in node.renamed}
        self.sides = (dict(left) | HIDDEN, keys | added | HIDDEN)
        self.ties = [n for n in [*keys, *added] if not self.sides[1][n].is_nested()]
        self.added = list(added)
        marks: dict[str, pl.DataType] = {SIDE: pl.Int8(), UNTIL: pl.Int64()}
        self.nothing = pl.DataFrame(schema=self.sides[0] | added | marks)

    def pieces(self, state: EnrichState) -> Iterable[Piece]:
        """Return what a state is made of."""
        return (*state.table.pieces, *[p for side in state.waiting for p in run_pieces(side)])

    def prepare(self, rows: pl.LazyFrame, port: int = 0) -> pl.LazyFrame:
        """Return the columns of a side that are needed, and which side it is."""
        schema = self.node.inputs[port].schema
        plain = rows.with_columns(key_columns(self.on, schema))
        side = pl.lit(port, dtype=pl.Int8).alias(SIDE)
        if port == 0:
            return plain.select(*self.sides[0], side)
        known = plain.filter(pl.all_horizontal(pl.col(self.on).is_not_null()))
        return known.rename(self.names).select(*self.sides[1], side)

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return the rows as they are."""
        return prepared

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return rows with the watermark at which they have left; the table's have none."""
        fresh = [frame for frame in arrived if frame.height]
        if not fresh:
            return pl.DataFrame()
        until = pl.when(pl.col(SIDE) == 0).then(pl.col(TIME) + 1).otherwise(FOREVER).alias(UNTIL)
        return pl.concat([self.nothing, *[f.with_columns(until) for f in fresh]], how="diagonal")

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> EnrichState:
        """Return the rows that wait and the newest row of each key."""
        empty = EnrichState(table=KeyedRows.empty(self.on, self.sides[1]))
        return self.catch_up(empty, deltas, watermark)

    def catch_up(
        self, state: EnrichState, deltas: Sequence[pl.DataFrame], watermark: int
    ) -> EnrichState:
        """Return the state at a watermark from an older one and the deltas since then."""
        rows = self.compact(deltas, watermark)
        sides = [rows.filter(pl.col(SIDE) == side) for side in (0, 1)]
        _, left = self._split_ready(state, sides, watermark, 0)
        changes, right = self._split_ready(state, sides, watermark, 1)
        return self._settle(state, self._in_order(changes), (left, right), watermark)

    def compact(
        self, deltas: Sequence[pl.DataFrame], watermark: int, whole: bool = False
    ) -> pl.DataFrame:
        """Return one delta with the rows that wait and the newest row of each key."""
        rows = pl.concat([self.nothing, *deltas]).filter(pl.col(UNTIL) > watermark)
        final = (pl.col(SIDE) == 1) & (pl.col(TIME) < watermark)
        return pl.concat([rows.filter(~final), self._keep_last(self._in_order(rows.filter(final)))])

    def advance(
        self, state: EnrichState, arrived: Sequence[pl.DataFrame], watermark: int
    ) -> Advanced:
        """Take the rows of an epoch; answer the left ones below the watermark."""
        watermark = max(watermark, state.watermark)
        rows, left = self._split_ready(state, arrived, watermark, 0)
        changes, right = self._split_ready(state, arrived, watermark, 1)
        ordered = self._in_order(changes)
        results = self._answers(state.table, rows, ordered)
        after = self._settle(state, ordered, (left, right), watermark)
        return Advanced(state=after, results=results)

    def _settle(
        self,
        state: EnrichState,
        changes: pl.DataFrame,
        waiting: tuple[Waiting, Waiting],
        watermark: int,
    ) -> EnrichState:
        """Return the state after changes of the table, which are in order."""
        newest = self._keep_last(changes)
        table = state.table.replace(newest, newest)
        return replace(state, table=table, waiting=waiting, watermark=watermark)

    def _split_ready(
        self, state: EnrichState, arrived: Sequence[pl.DataFrame], watermark: int, side: int
    ) -> tuple[pl.DataFrame, Waiting]:
        """Return the rows of a side whose turn it is, and those that wait on."""
        columns = list(self.sides[side])
        fresh = [f.select(columns) for f in arrived if f.height and f[SIDE][0] == side]
        taken = take_final(state.waiting[side], fresh, watermark)
        return pl.concat([pl.DataFrame(schema=self.sides[side]), *taken.final]), taken.waiting

    def _answers(self, table: KeyedRows, rows: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
        """Return left rows with what they find in the table and among its changes, in order."""
        if not rows.height:
            return empty_results(self.node.schema, self.ordered)
        keys = rows.select(self.on).drop_nulls().unique().with_row_index(CODE)
        versions = pl.concat([table.find(keys), changes]).join(keys, on=self.on)
        last = versions.unique([CODE, TIME], keep="last", maintain_order=True)
        found = last.select(CODE, TIME, *self.added, pl.lit(True).alias(_FOUND)).sort(TIME)
        coded = rows.join(keys, on=self.on, how="left").sort(TIME)
        joined = coded.join_asof(found, on=TIME, by=CODE, check_sortedness=False)
        if self.node.how == "inner":
            joined = joined.filter(pl.col(_FOUND))
        lazy = joined.lazy().select(*self.node.schema, TIME)
        return place_results(lazy, self.operator, self.ordered).collect()

    def _in_order(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows.sort(*ORDER, *self.ties)

    def _keep_last(self, ordered: pl.DataFrame) -> pl.DataFrame:
        return ordered.unique(self.on, keep="last", maintain_order=True)
