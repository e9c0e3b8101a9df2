"""Runs of keys: an immutable index from a key to its code, found by hash.

A run holds its keys by code, and their places ordered by a 64-bit hash. It also knows where each
leading part of a hash begins, so a key is found after a look at one or two places, however many
keys there are. Laws: a key is found exactly if the run has it, since keys themselves are compared
and equal hashes of different keys only cost time; n keys are in O(log n) runs, and a key is copied
O(log n) times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.operators.stores.pieces import Piece

MISSING = -1
"""What `KeyRun.find` says of a key that it does not have."""
Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]


def hash_keys(keys: pl.DataFrame) -> Hashes:
    """Return a hash of each row, nulls included; it means nothing outside this process.

    >>> a, b, c = hash_keys(pl.DataFrame({"k": ["x", "y", "x"]}))
    >>> bool(a == c), bool(a == b)
    (True, False)
    """
    return keys.hash_rows(seed=0).to_numpy()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KeyRun:
    """Keys with the codes ``start``, ``start + 1``, …; no key is in it twice.

    ``places[i]`` is the row of the key with the hash ``hashes[i]``, and hashes are sorted. Those
    that are ``p`` when shifted are at ``begins[p]`` to ``begins[p + 1]``.
    """

    start: int
    keys: pl.DataFrame
    hashes: Hashes
    places: npt.NDArray[np.uint32]
    begins: npt.NDArray[np.uint32]
    shift: np.uint64

    @classmethod
    def of(cls, start: int, keys: pl.DataFrame) -> KeyRun:
        """Return the run of some keys, which must differ."""
        index = pl.DataFrame({"hash": hash_keys(keys)}).with_row_index("place").sort("hash")
        return cls._of_sorted(start, keys.rechunk(), index)

    @classmethod
    def of_all(cls, start: int, keys: pl.DataFrame, hashes: Hashes) -> tuple[KeyRun, Numbers]:
        """Return the run of keys of which some may be the same, and the code of each row.

        One sort by hash finds the keys that are equal, and is the run's index as well.

        Args:
            start: The first code.
            keys: The keys; there must be one at least.
            hashes: Their hashes.
        """
        ordered = pl.DataFrame({"hash": hashes}).with_row_index("row").sort("hash")
        rows, sorted_hashes = ordered["row"].to_numpy(), ordered["hash"].to_numpy()
        first = np.ones(keys.height, dtype=np.bool_)
        np.not_equal(sorted_hashes[1:], sorted_hashes[:-1], out=first[1:])
        again = np.flatnonzero(~first)
        if again.size and not _equal(keys[rows[again]], keys[rows[again - 1]]).all():
            run = cls.of(start, keys.unique())  # two keys have one hash
            return run, run.find(keys, hashes)
        kept = np.zeros(keys.height, dtype=np.bool_)
        kept[rows[first]] = True
        places = (np.cumsum(kept) - 1)[rows[first]]
        codes = np.empty(keys.height, dtype=np.int64)
        codes[rows] = start + (places[np.cumsum(first) - 1] if again.size else places)
        index = pl.DataFrame({"place": places.astype(np.uint32), "hash": sorted_hashes[first]})
        distinct = keys.filter(pl.Series(kept)) if again.size else keys
        return cls._of_sorted(start, distinct.rechunk(), index), codes

    @classmethod
    def _of_sorted(cls, start: int, keys: pl.DataFrame, index: pl.DataFrame) -> KeyRun:
        hashes = index["hash"].to_numpy()
        bits = max(keys.height.bit_length(), 1)
        shift = np.uint64(64 - bits)
        counts = np.bincount((hashes >> shift).view(np.int64), minlength=1 << bits)
        begins = np.zeros((1 << bits) + 1, dtype=np.uint32)
        np.cumsum(counts, out=begins[1:])
        return cls(
            start=start,
            keys=keys,
            hashes=hashes,
            places=index["place"].to_numpy(),
            begins=begins,
            shift=shift,
        )

    @property
    def height(self) -> int:
        """How many keys there are."""
        return self.keys.height

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """What the run is made of."""
        return self.keys, self.hashes, self.places, self.begins

    def followed_by(self, other: KeyRun) -> KeyRun:
        """Return one run of two; the other has the next codes and none of these keys."""
        later = other._index().with_columns(pl.col("place") + self.height)
        index = self._index().merge_sorted(later, key="hash")
        keys = pl.concat([self.keys, other.keys], rechunk=True)
        return KeyRun._of_sorted(self.start, keys, index.rechunk())

    def _index(self) -> pl.DataFrame:
        return pl.DataFrame({"place": self.places, "hash": self.hashes})

    def find(self, keys: pl.DataFrame, hashes: Hashes) -> Numbers:
        """Return the codes of keys, or ``MISSING``."""
        codes = np.full(keys.height, MISSING, dtype=np.int64)
        prefix = (hashes >> self.shift).view(np.int64)
        rows = np.arange(keys.height)
        at, end = self.begins[prefix].astype(np.int64), self.begins[prefix + 1].astype(np.int64)
        while rows.size:
            rows, at, end = self._seek(hashes, rows, at, end)
            places = self.places[at]
            same = self._is_same(keys, rows, places)
            codes[rows[same]] = self.start + places[same].astype(np.int64)
            rows, at, end = rows[~same], at[~same] + 1, end[~same]
        return codes

    def _seek(
        self, hashes: Hashes, rows: Numbers, at: Numbers, end: Numbers
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Return the rows whose hash is there, and where it is first, from ``at`` on."""
        wanted = hashes[rows]
        found: list[tuple[Numbers, Numbers, Numbers]] = []
        while rows.size:
            inside = at < end
            if not inside.all():
                rows, at, end, wanted = rows[inside], at[inside], end[inside], wanted[inside]
            equal = self.hashes[at] == wanted
            found.append((rows[equal], at[equal], end[equal]))
            other = ~equal
            rows, at, end, wanted = rows[other], at[other] + 1, end[other], wanted[other]
        joined = [np.concatenate(part) for part in zip(*found, strict=True)]
        return joined[0], joined[1], joined[2]

    def _is_same(
        self, keys: pl.DataFrame, rows: Numbers, places: npt.NDArray[np.uint32]
    ) -> npt.NDArray[np.bool_]:
        """Return whether the keys at some rows are those at some places; nulls are equal."""
        return _equal(self.keys[places], keys[rows])


def _equal(mine: pl.DataFrame, theirs: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Return for each row whether it is the same in two frames; nulls are equal."""
    others = theirs.rename(lambda name: f"{name}?")
    equal = [pl.col(name).eq_missing(pl.col(f"{name}?")) for name in mine.columns]
    return mine.hstack(others).select(pl.all_horizontal(equal)).to_series().to_numpy()


def add_run(runs: tuple[KeyRun, ...], run: KeyRun) -> tuple[KeyRun, ...]:
    """Add a run with the next codes; neighbours of like size are joined, so runs stay few."""
    earlier = list(runs)
    while earlier and earlier[-1].height <= 4 * run.height:
        run = earlier.pop().followed_by(run)
    return (*earlier, run)
