"""Bands: rows by key and time, so that rows of the same key within a span of time are neighbours.

A band is sorted by one integer, a part of the key's hash before the time. What is called time here
may be any number that a row has, such as its turn. Laws: the rows of a key within a span are found
after two searches, however many rows there are; keys themselves are compared, so equal hashes of
different keys only cost time; n rows are in O(log n) bands, and a row is copied O(log n) times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.base.columns import TIME
from penstock.operators.pairs.results import Places, ranges_in_blocks
from penstock.operators.stores import runs
from penstock.operators.stores.key_runs import Hashes, hash_keys
from penstock.operators.stores.pieces import Piece

TIME_BITS = 40
"""How many bits of the integer are the time at most; the others are the hash."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Band:
    """Rows of one side, sorted by hash and time.

    Attributes:
        rows: The rows.
        keys: The key columns.
        column: The column that has the time.
        hashes: The hash of each row's key.
        times: The time of each row.
        slots: What rows are sorted by: the first bits of the hash, then the time since ``base``.
        groups: A number for each row that changes where its key is not that of the row before.
        by_time: The places of the rows by time, if they are wanted.
        base: The time at which slots begin.
        low: The lowest time.
        middle: A time up to which half of the rows are.
        high: The highest time.
        bits: How many bits of a slot are time.
        shift: How many bits of the time are left out of a slot.
    """

    rows: pl.DataFrame
    keys: tuple[str, ...]
    column: str
    hashes: Hashes
    times: Places
    slots: Hashes
    groups: Places
    by_time: npt.NDArray[np.uint32] | None
    base: int
    low: int
    middle: int
    high: int
    bits: int
    shift: int

    @classmethod
    def of(
        cls, rows: pl.DataFrame, keys: Sequence[str], column: str = TIME, *, by_time: bool = False
    ) -> Band:
        """Return the band of rows in any order; there must be one at least.

        Args:
            rows: The rows.
            keys: The key columns.
            column: The column that has the time.
            by_time: Whether rows will be asked for by time, too.
        """
        times, hashes = rows[column].to_numpy(), hash_keys(rows.select(keys))
        low, high = int(times.min()), int(times.max())
        span = (high - low).bit_length()
        bits, shift = min(span, TIME_BITS), max(span - TIME_BITS, 0)
        slots = _slots(hashes, times - low, bits, shift)
        order = pl.Series(slots).arg_sort().to_numpy()
        ordered, times = rows[order], times[order]
        return cls(
            rows=ordered,
            keys=tuple(keys),
            column=column,
            hashes=hashes[order],
            times=times,
            slots=slots[order],
            groups=_groups(ordered.select(keys)),
            by_time=pl.Series(times).arg_sort().to_numpy() if by_time else None,
            base=low,
            low=low,
            middle=_middle(times),
            high=high,
            bits=bits,
            shift=shift,
        )

    def only(self, kept: npt.NDArray[np.bool_]) -> Band:
        """Return the band with some of the rows, of which there must be one at least."""
        times = self.times[kept]
        return replace(
            self,
            rows=self.rows.filter(pl.Series(kept)),
            hashes=self.hashes[kept],
            times=times,
            slots=self.slots[kept],
            groups=self.groups[kept],
            by_time=None if self.by_time is None else pl.Series(times).arg_sort().to_numpy(),
            low=int(times.min()),
            middle=_middle(times),
            high=int(times.max()),
        )

    @property
    def height(self) -> int:
        """How many rows there are."""
        return self.rows.height

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """What the band is made of."""
        arrays = (self.hashes, self.times, self.slots, self.groups, self.by_time)
        return (self.rows, *[array for array in arrays if array is not None])

    def _until(self, time: int) -> int:
        """Return how many rows have a time up to this one."""
        if time < self.low:
            return 0
        if time >= self.high:
            return self.height
        assert self.by_time is not None
        return int(np.searchsorted(self.times, time, side="right", sorter=self.by_time))

    def between(self, after: int, until: int) -> pl.DataFrame:
        """Return the rows with a time after one and up to another."""
        assert self.by_time is not None
        return self.rows[self.by_time[self._until(after) : self._until(until)]]

    def near(self, others: Band, within: int) -> Iterator[tuple[Places, Places]]:
        """Yield the pairs of places of others and of mine with the same key, in blocks.

        Their times are less than ``within`` apart.
        """
        if self.low - others.high >= within or others.low - self.high >= within:
            return
        first = np.maximum(others.times - (within - 1), self.low)
        last = np.minimum(others.times + (within - 1), self.high)
        asked = np.flatnonzero(first <= last)
        if not asked.size:
            return
        low, high = self._places(others.hashes[asked], first[asked], last[asked])
        some = low < high
        asked, low, high = asked[some], low[some], high[some]
        mixed = self.groups[low] != self.groups[high - 1]
        keys = list(self.keys)
        same = _is_same(others.rows[asked, keys], self.rows[low, keys])
        sure = ~mixed & same
        yield from self._pairs(others, asked[sure], low[sure], high[sure], within, check=False)
        if mixed.any():
            yield from self._pairs(
                others, asked[mixed], low[mixed], high[mixed], within, check=True
            )

    def last(self, others: Band, wanted: Places) -> Iterator[tuple[Places, Places]]:
        """Yield the pairs of others with my last rows before them with the same key, in blocks.

        Args:
            others: Rows with the same kind of time.
            wanted: How many pairs each of them wants at most.
        """
        before = np.minimum(others.times - 1, self.high)
        asked = np.flatnonzero((before >= self.low) & (wanted > 0))
        if not asked.size:
            return
        low, high = self._places(others.hashes[asked], np.full(asked.size, self.low), before[asked])
        some = low < high
        asked, low, high = asked[some], low[some], high[some]
        mixed = (self.groups[low] != self.groups[high - 1]) | (self.shift > 0)
        keys = list(self.keys)
        sure = ~mixed & _is_same(others.rows[asked, keys], self.rows[low, keys])
        first = np.maximum(low, high - wanted[asked])
        for i, mine in ranges_in_blocks(first[sure], high[sure]):
            yield asked[sure][i], mine
        if mixed.any():
            yield self._last_of_mixed(others, asked[mixed], low[mixed], high[mixed], wanted)

    def _last_of_mixed(
        self, others: Band, asked: Places, low: Places, high: Places, wanted: Places
    ) -> tuple[Places, Places]:
        """Return the same for ranges that hold rows of other keys too."""
        found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        found += self._pairs(others, asked, low, high, None, check=True)
        theirs, mine = (np.concatenate(part) for part in zip(*found, strict=True))
        earlier = self.times[mine] < others.times[theirs]
        theirs, mine = theirs[earlier], mine[earlier]
        order = np.lexsort((-self.times[mine], theirs))
        theirs, mine = theirs[order], mine[order]
        begins = np.searchsorted(theirs, theirs)
        chosen = np.arange(theirs.size) - begins < wanted[theirs]
        return theirs[chosen], mine[chosen]

    def latest(self, count: int) -> Band:
        """Return the band with the last rows of each key, so many and perhaps a few more."""
        ends = np.append(np.flatnonzero(np.diff(self.groups)), self.height - 1)
        kept = ends[np.searchsorted(ends, np.arange(self.height))] - np.arange(self.height) < count
        if kept.all():
            return self
        return self.only(kept)

    def _places(self, hashes: Hashes, first: Places, last: Places) -> tuple[Places, Places]:
        """Return where the slots of hashes between two times begin and end."""
        begin = _slots(hashes, first - self.base, self.bits, self.shift)
        end = _slots(hashes, last - self.base, self.bits, self.shift)
        return np.searchsorted(self.slots, begin), np.searchsorted(self.slots, end, side="right")

    def _pairs(
        self,
        others: Band,
        asked: Places,
        low: Places,
        high: Places,
        within: int | None,
        *,
        check: bool,
    ) -> Iterator[tuple[Places, Places]]:
        for i, mine in ranges_in_blocks(low, high):
            theirs = asked[i]
            if self.shift and within is not None:
                close = np.abs(others.times[theirs] - self.times[mine]) < within
                theirs, mine = theirs[close], mine[close]
            if check:
                keys = list(self.keys)
                same = _is_same(others.rows[theirs, keys], self.rows[mine, keys])
                theirs, mine = theirs[same], mine[same]
            yield theirs, mine


def _slots(hashes: Hashes, since: Places, bits: int, shift: int) -> Hashes:
    """Return the first bits of hashes, followed by times."""
    if not bits:
        return hashes
    times = (since >> np.int64(shift)).astype(np.uint64)
    return (hashes >> np.uint64(bits)) << np.uint64(bits) | times


def _middle(times: Places) -> int:
    return int(np.partition(times, times.size // 2)[times.size // 2])


def _groups(keys: pl.DataFrame) -> Places:
    changes = [pl.col(name).ne_missing(pl.col(name).shift(1)) for name in keys.columns]
    changed = pl.any_horizontal(changes)
    return keys.select(changed.cast(pl.Int64).cum_sum()).to_series().to_numpy()


def _is_same(ours: pl.DataFrame, theirs: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Return whether keys are equal; one that is null equals none."""
    same = np.ones(ours.height, dtype=np.bool_)
    for mine, other in zip(ours, theirs, strict=True):
        equal = mine == other
        same &= (equal.fill_null(False) if equal.null_count() else equal).to_numpy()
    return same


def near(left: Band, right: Band, within: int) -> Iterator[tuple[Places, Places]]:
    """Yield the pairs of places of two bands with the same key and times near to each other."""
    if left.height <= right.height:
        yield from right.near(left, within)
    else:
        yield from ((li, ri) for ri, li in left.near(right, within))


def add_band(bands: Sequence[Band], band: Band, after: int) -> tuple[Band, ...]:
    """Add a band; neighbours of like size become one, without the rows up to a time."""
    earlier, later = list(bands), band
    while earlier and earlier[-1].height <= runs.FANOUT * later.height:
        both = [earlier.pop().rows, later.rows]
        rows = pl.concat([part.filter(pl.col(TIME) > after) for part in both], rechunk=True)
        later = Band.of(rows, band.keys, by_time=band.by_time is not None)
    return (*earlier, later)


def add_latest(bands: Sequence[Band], band: Band, count: int) -> tuple[Band, ...]:
    """Add a band with later rows; neighbours of like size become one, of the last rows of a key."""
    earlier, later = list(bands), band.latest(count)
    while earlier and earlier[-1].height <= runs.FANOUT * later.height:
        rows = pl.concat([earlier.pop().rows, later.rows], rechunk=True)
        later = Band.of(rows, band.keys, band.column).latest(count)
    return (*earlier, later)


def drop_until(bands: Sequence[Band], time: int) -> tuple[Band, ...]:
    """Return bands without most rows up to a time; a band that has few of them stays as it is."""
    live = [band for band in bands if band.high > time]
    return tuple(band.only(band.times > time) if band.middle <= time else band for band in live)
