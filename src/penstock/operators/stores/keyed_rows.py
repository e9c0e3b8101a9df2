"""Rows by key: an immutable store for operators that look at a few keys among many.

A key's rows are replaced as a whole, perhaps by none. The store is a few blocks, the largest and
oldest first; a key in a newer block hides what older blocks say of it. Neighbouring blocks of like
size are joined, and all of them once half of the rows are hidden. Laws: `find` gives what was last
put in for a key, in that order; to find or replace costs as much as the rows in question, times
O(log n) where blocks are joined, however many rows there are; memory follows the rows that count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import polars as pl

from penstock.operators.stores.key_runs import MISSING, Hashes, KeyRun, Numbers, hash_keys
from penstock.operators.stores.pieces import Piece

_TIMES = 4
"""A block that is at most so many times the size of the next one is joined with it."""
_FEW = 1024
"""So many hidden rows are never worth a copy of the rest."""
_ALL = "__all"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Block:
    """Some keys, and the rows of each: those of key ``i`` at ``begins[i]`` to ``begins[i + 1]``."""

    keys: KeyRun
    rows: pl.DataFrame
    begins: Numbers

    @classmethod
    def of(cls, keys: pl.DataFrame, rows: pl.DataFrame, owners: pl.DataFrame) -> _Block:
        """Return the block of different keys and rows, each of which belongs to one of them."""
        run = KeyRun.of(0, keys)
        numbers = run.find(owners, hash_keys(owners))
        begins = np.zeros(run.height + 1, dtype=np.int64)
        np.cumsum(np.bincount(numbers, minlength=run.height), out=begins[1:])
        ordered = rows[np.argsort(numbers, kind="stable")] if rows.height else rows
        return cls(keys=run, rows=ordered, begins=begins)

    @property
    def size(self) -> int:
        return self.keys.height + self.rows.height

    def lengths(self, numbers: Numbers) -> Numbers:
        """Return how many rows some keys have."""
        return self.begins[numbers + 1] - self.begins[numbers]

    def rows_of(self, numbers: Numbers) -> pl.DataFrame:
        """Return the rows of some keys, key by key."""
        lengths = self.lengths(numbers)
        ends = np.cumsum(lengths)
        within = np.arange(ends[-1] if ends.size else 0) - np.repeat(ends - lengths, lengths)
        places = np.repeat(self.begins[numbers], lengths) + within
        return self.rows.select(pl.all().gather(places))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyedRows:
    """Rows by the columns ``by``; without such columns all rows belong to one key.

    ``live`` is how many rows count.
    """

    by: tuple[str, ...]
    schema: Mapping[str, pl.DataType]
    blocks: tuple[_Block, ...] = ()
    live: int = 0

    @classmethod
    def empty(cls, by: Sequence[str], schema: Mapping[str, pl.DataType]) -> KeyedRows:
        """Return the store of no rows.

        >>> store = KeyedRows.empty(["k"], {"k": pl.String(), "x": pl.Int64()})
        >>> rows = pl.DataFrame({"k": ["a", "b", "a"], "x": [1, 2, 3]})
        >>> store = store.replace(rows, rows).replace(pl.DataFrame({"k": ["b"]}))
        >>> store.find(pl.DataFrame({"k": ["a", "b", "c"]}))["x"].to_list()
        [1, 3]
        """
        return cls(by=tuple(by), schema=dict(schema))

    def find(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of some keys, those of a key together and in the order they were given.

        Args:
            keys: A frame with the key columns; a key may be in it several times.
        """
        found = [pl.DataFrame(schema=self.schema)]
        for block, numbers in self._places(self._different(keys)):
            found.append(block.rows_of(numbers))
        return pl.concat(found)

    def replace(self, keys: pl.DataFrame, rows: pl.DataFrame | None = None) -> KeyedRows:
        """Return the store in which some keys have these rows and no others.

        Args:
            keys: A frame with the key columns; a key may be in it several times.
            rows: Rows of these keys; none unless given.
        """
        rows = pl.DataFrame(schema=self.schema) if rows is None else rows.select(list(self.schema))
        different = self._different(keys)
        if not different.height:
            return self
        hidden = sum(int(b.lengths(numbers).sum()) for b, numbers in self._places(different))
        live = self.live - hidden + rows.height
        fresh = _Block.of(different, rows, self._keys(rows))
        grown = replace(self, blocks=_join_blocks([*self.blocks, fresh]), live=live)
        stored = sum(block.rows.height for block in grown.blocks)
        return grown._pack() if stored > 2 * live + _FEW else grown

    @property
    def pieces(self) -> Iterator[Piece]:
        """What the store is made of."""
        for block in self.blocks:
            yield from (*block.keys.pieces, block.rows, block.begins)

    def everything(self) -> pl.DataFrame:
        """Return all rows; a copy."""
        blocks = self._pack().blocks
        return pl.concat([pl.DataFrame(schema=self.schema), *[block.rows for block in blocks]])

    def _pack(self) -> KeyedRows:
        """Return the same rows in one block."""
        if not self.blocks:
            return self
        return replace(self, blocks=_without_empty(reduce(_join, self.blocks)))

    def _keys(self, frame: pl.DataFrame) -> pl.DataFrame:
        if self.by:
            return frame.select(self.by)
        return pl.DataFrame({_ALL: np.zeros(frame.height, dtype=np.int8)})

    def _different(self, keys: pl.DataFrame) -> pl.DataFrame:
        if self.by:
            return keys.select(self.by).unique()
        return pl.DataFrame({_ALL: np.zeros(1, dtype=np.int8)})

    def _places(self, keys: pl.DataFrame) -> list[tuple[_Block, Numbers]]:
        """Return the newest block that knows each key, with the keys' numbers in it."""
        found = []
        hashes: Hashes = hash_keys(keys)
        for block in reversed(self.blocks):
            numbers = block.keys.find(keys, hashes)
            known = numbers != MISSING
            if known.any():
                found.append((block, numbers[known]))
                rest = np.flatnonzero(~known)
                keys, hashes = keys[rest], hashes[rest]
            if not hashes.size:
                break
        return found


def _join_blocks(blocks: list[_Block]) -> tuple[_Block, ...]:
    """Join the newest blocks until each is much larger than the next."""
    while len(blocks) > 1 and blocks[-2].size <= _TIMES * blocks[-1].size:
        newest = blocks.pop()
        blocks[-1] = _join(blocks[-1], newest)
    return _without_empty(blocks[0]) if len(blocks) == 1 else tuple(blocks)


def _join(older: _Block, newer: _Block) -> _Block:
    """Return one block of two; what the newer one says of a key counts."""
    hashes = np.empty(older.keys.height, dtype=np.uint64)
    hashes[older.keys.places] = older.keys.hashes
    stays = np.flatnonzero(newer.keys.find(older.keys.keys, hashes) == MISSING)
    keys = pl.concat([older.keys.keys[stays], newer.keys.keys], rechunk=True)
    rows = pl.concat([older.rows_of(stays), newer.rows], rechunk=True)
    lengths = [older.lengths(stays), np.diff(newer.begins)]
    begins = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.concatenate(lengths))])
    return _Block(keys=KeyRun.of(0, keys), rows=rows, begins=begins)


def _without_empty(oldest: _Block) -> tuple[_Block, ...]:
    """Return the oldest block without keys that have no rows: there is nothing for them to hide."""
    used = np.flatnonzero(np.diff(oldest.begins))
    if used.size == oldest.keys.height:
        return (oldest,)
    if not used.size:
        return ()
    begins = np.append(oldest.begins[used], oldest.begins[-1])
    return (_Block(keys=KeyRun.of(0, oldest.keys.keys[used]), rows=oldest.rows, begins=begins),)
