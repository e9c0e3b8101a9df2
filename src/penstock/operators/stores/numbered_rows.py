"""The numbered rows of many groups, of which the older ones are dropped in time.

Rows are stored in chunks of neighbouring numbers, by group and chunk, and the newest number by
group. Laws: to add rows costs as much as they are, and a chunk for each group; to read or drop rows
costs as much as they are, and the chunks that hold them, however many rows a group has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from penstock.operators.stores.keyed_rows import KeyedRows
from penstock.operators.stores.pieces import Piece

NUMBER = "__number_in_group"
"""A row's number in its group, from 0; null while it waits."""
FROM, TO = "__from", "__to"
"""The first and the last number of a range."""
NEEDED = "__needed"
"""The first number of a group that is still needed."""
_CHUNK = "__chunk"
_LARGEST = 256


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NumberedRows:
    """Rows by group and chunk, and the newest number of each group."""

    by: tuple[str, ...]
    chunk: int
    newest: KeyedRows
    rows: KeyedRows

    @classmethod
    def empty(
        cls, by: Sequence[str], schema: Mapping[str, pl.DataType], usual: int
    ) -> NumberedRows:
        """Return no rows; ``usual`` is how many of a group are read at a time."""
        numbers = {key: schema[key] for key in by} | {NUMBER: schema[NUMBER]}
        return cls(
            by=tuple(by),
            chunk=min(usual, _LARGEST),
            newest=KeyedRows.empty(by, numbers),
            rows=KeyedRows.empty([*by, _CHUNK], {**schema, _CHUNK: pl.Int64()}),
        )

    def find(self, ranges: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of ranges, by number.

        Args:
            ranges: Groups with ``FROM`` and ``TO``, at most one range of a group.
        """
        wanted = ranges.filter(pl.col(FROM) <= pl.col(TO))
        found = self.rows.find(self._chunks(wanted)).drop(_CHUNK)
        if found.is_empty():
            return found
        inside = pl.col(NUMBER).is_between(pl.col(FROM), pl.col(TO))
        ends = wanted.select(*self.by, FROM, TO)
        if self.by:
            ranged = found.join(ends, on=self.by, nulls_equal=True)
        else:
            ranged = found.join(ends, how="cross")
        return ranged.filter(inside).select(found.columns).sort(NUMBER)

    def add(self, rows: pl.DataFrame, groups: pl.DataFrame) -> NumberedRows:
        """Return the store with more rows, and without those that are needed no more.

        Args:
            rows: Rows that are needed, those of a group by number.
            groups: All groups that got rows: ``NUMBER`` is the newest one, those before ``TO`` were
                there already; what was needed began at ``FROM`` and now begins at ``NEEDED``.
        """
        first = pl.max_horizontal(pl.col(TO).floordiv(self.chunk) * self.chunk, NEEDED)
        begun = groups.select(*self.by, first.alias(FROM), pl.col(TO) - 1)
        both = pl.concat([self.find(begun), rows.select(self.columns)])
        chunked = both.with_columns(pl.col(NUMBER).floordiv(self.chunk).alias(_CHUNK))
        last = pl.col(NEEDED).floordiv(self.chunk) * self.chunk - 1
        gone = groups.select(*self.by, FROM, pl.min_horizontal(last, pl.col(TO) - 1).alias(TO))
        over = self._chunks(gone.filter(pl.col(FROM) <= pl.col(TO)))
        touched = pl.concat([over, chunked.select(over.columns)])
        return replace(
            self,
            newest=self.newest.replace(groups, groups),
            rows=self.rows.replace(touched, chunked),
        )

    @property
    def pieces(self) -> Iterator[Piece]:
        """What the store is made of."""
        yield from self.newest.pieces
        yield from self.rows.pieces

    @property
    def columns(self) -> list[str]:
        """The columns of the rows."""
        return [name for name in self.rows.schema if name != _CHUNK]

    def _chunks(self, ranges: pl.DataFrame) -> pl.DataFrame:
        low, high = pl.col(FROM).floordiv(self.chunk), pl.col(TO).floordiv(self.chunk)
        chunks = ranges.select(*self.by, pl.int_ranges(low, high + 1).alias(_CHUNK))
        return chunks.explode(_CHUNK)
