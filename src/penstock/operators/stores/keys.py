"""Key tables: the groups of an operator's state as small integers.

Merging partials is a group-by on (key, pane). On one integer it is several times as fast as on text
and a number. Laws: two rows get the same code exactly if their keys are equal, nulls included; to
encode or decode rows costs as much as there are rows, however many keys the table has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from penstock.operators.stores.key_runs import MISSING, Hashes, KeyRun, Numbers, add_run, hash_keys
from penstock.operators.stores.pieces import Piece

CODE = "__code"
_FEW = 4096
"""A table of so many keys is never pruned."""
_TIMES = 4
"""Where rows are so many times the keys, a join with the whole table is faster than a search."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyTable:
    """The keys seen so far, in runs by code; ``pruned`` is the table's size when it was pruned."""

    schema: Mapping[str, pl.DataType]
    runs: tuple[KeyRun, ...] = ()
    pruned: int = 0

    @classmethod
    def empty(cls, schema: Mapping[str, pl.DataType]) -> KeyTable:
        """Return the table of no keys."""
        return cls(schema=dict(schema))

    @property
    def by(self) -> list[str]:
        """The key columns."""
        return list(self.schema)

    @property
    def height(self) -> int:
        """How many keys there are."""
        return self.runs[-1].start + self.runs[-1].height if self.runs else 0

    @property
    def pieces(self) -> Iterator[Piece]:
        """What the table is made of."""
        return (piece for run in self.runs for piece in run.pieces)

    def encode(self, frame: pl.DataFrame) -> tuple[KeyTable, pl.DataFrame]:
        """Return the frame with codes instead of keys, and the table with its new keys.

        >>> table, rows = KeyTable.empty({"k": pl.String()}).encode(pl.DataFrame({"k": ["b", "b"]}))
        >>> rows[CODE].to_list(), table.decode(rows)["k"].to_list()
        ([0, 0], ['b', 'b'])
        """
        if not self.by:
            return self, frame.with_columns(pl.lit(0, dtype=pl.Int64).alias(CODE))
        if self.runs and frame.height >= _TIMES * self.height:
            return self._encode_by_join(frame)
        keys = frame.select(self.by)
        hashes = hash_keys(keys)
        codes, table = self._find(keys, hashes), self
        unknown = np.flatnonzero(codes == MISSING)
        if unknown.size:
            fresh, codes[unknown] = KeyRun.of_all(self.height, keys[unknown], hashes[unknown])
            table = replace(self, runs=add_run(self.runs, fresh))
        return table, frame.drop(self.by).with_columns(pl.Series(CODE, codes))

    def _encode_by_join(self, frame: pl.DataFrame) -> tuple[KeyTable, pl.DataFrame]:
        """Encode rows that are many beside the keys of the table."""
        coded = self._join(frame)
        if not coded[CODE].null_count():
            return self, coded.drop(self.by)
        unseen = coded.filter(pl.col(CODE).is_null()).select(self.by).unique()
        grown = replace(self, runs=add_run(self.runs, KeyRun.of(self.height, unseen)))
        return grown, grown._join(frame).drop(self.by)

    def _join(self, frame: pl.DataFrame) -> pl.DataFrame:
        codes = pl.int_range(self.height, dtype=pl.Int64, eager=True).alias(CODE)
        return frame.join(
            self._all_keys().with_columns(codes), on=self.by, how="left", nulls_equal=True
        )

    def _all_keys(self) -> pl.DataFrame:
        """Return all keys by code; a copy, unless they are in one run."""
        if len(self.runs) == 1:
            return self.runs[0].keys
        empty = pl.DataFrame(schema=self.schema)
        return pl.concat([empty, *[run.keys for run in self.runs]], rechunk=True)

    def _find(self, keys: pl.DataFrame, hashes: Hashes) -> Numbers:
        """Return the codes of keys; runs are asked from the largest on, and only for the rest."""
        if not self.runs:
            return np.full(keys.height, MISSING, dtype=np.int64)
        codes = self.runs[0].find(keys, hashes)
        for run in self.runs[1:]:
            rest = np.flatnonzero(codes == MISSING)
            if not rest.size:
                break
            codes[rest] = run.find(keys[rest], hashes[rest])
        return codes

    def decode(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return rows with their keys instead of codes."""
        rest = rows.drop(CODE)
        return self._keys_of(rows[CODE]).hstack(rest) if self.by else rest

    def _keys_of(self, codes: pl.Series) -> pl.DataFrame:
        """Return the keys of codes, in their order."""
        if len(self.runs) == 1 or codes.len() >= self.height:  # few keys beside the rows
            return self._all_keys().select(pl.all().gather(codes))
        order = codes.arg_sort()
        ordered = codes.gather(order)
        found = [pl.DataFrame(schema=self.schema)]
        first = 0
        for run in self.runs:
            last = int(ordered.search_sorted(run.start + run.height))
            places = ordered[first:last] - run.start
            found.append(run.keys.select(pl.all().gather(places)))
            first = last
        return pl.concat(found, rechunk=True).select(pl.all().gather(order.arg_sort()))

    def is_overgrown(self, dropped: int) -> bool:
        """Return whether pruning costs little for a key: the table has doubled since the last time.

        Args:
            dropped: How many rows have been dropped since. A key that is no longer used had one of
                them, so with few of them most keys are used and pruning would be in vain.
        """
        return self.height > max(2 * self.pruned, _FEW) and 2 * dropped >= self.height

    def prune(self, frames: Sequence[pl.DataFrame]) -> tuple[KeyTable, list[pl.DataFrame]]:
        """Return the table with only the keys of some frames, and the frames with new codes."""
        if not frames:
            return KeyTable.empty(self.schema), []
        used = pl.concat([frame[CODE].unique() for frame in frames]).unique().sort()
        kept = KeyRun.of(0, self._keys_of(used))
        recoded = [
            frame.with_columns(used.search_sorted(frame[CODE]).cast(pl.Int64).alias(CODE))
            for frame in frames
        ]
        return replace(self, runs=(kept,), pruned=kept.height), recoded
