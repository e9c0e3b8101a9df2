"""The worker's cache: the merged state of an operator's buckets after the last epochs.

An entry is named by the segments that it stands for. Segment names are never reused, so an entry
that fits is right, whichever attempt, driver or epoch left it there. An executor has several worker
processes and gives a task to any of them, so a worker may find that it has missed some epochs; what
it has then still stands for most of the segments, and `find_missing` tells which others there are.
Laws: no row of a segment is ever in a state twice; all states together take no more bytes than the
bound, or there is only one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.operators.stores.pieces import Piece, piece_bytes
from penstock.plan.buckets import BucketSet
from penstock.plan.epoch import SegmentRef

Parts = tuple[tuple[str, BucketSet], ...]
Key = tuple[str, str, BucketSet, int, Parts]
_AGE_EPOCHS = 8
"""A state that so many epochs have passed over only takes memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A state and its pieces, its segments, and the run and the epoch that left it."""

    state: Any
    pieces: tuple[Piece, ...] = ()
    refs: tuple[SegmentRef, ...] = ()
    writer: str = ""
    epoch: int = 0


def cache_key(
    checkpoint: str, operator: str, buckets: BucketSet, watermark: int, refs: Sequence[SegmentRef]
) -> Key:
    """Return the name of the state that some segments make up for some buckets."""
    parts = tuple(
        sorted(
            ((ref.name, ref.buckets & buckets) for ref in refs if ref.buckets & buckets),
            key=lambda part: part[0],
        )
    )
    return checkpoint, operator, buckets, watermark, parts


class StateCache:
    """States by key, the least recently used first, within a bound of bytes.

    Attributes:
        bound: How many bytes all states may take together; None for no bound.
        bytes: How many they take; pieces that several states share count once.
    """

    def __init__(self, bound: int | None = None) -> None:
        """Begin with no states."""
        self.bound = bound
        self.bytes = 0
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._pieces: dict[int, list[int]] = {}  # by identity: bytes, and entries that have it

    def __len__(self) -> int:
        """Return how many states there are."""
        return len(self._entries)

    @property
    def states(self) -> list[Any]:
        """All states, the least recently used first."""
        return [entry.state for entry in self._entries.values()]

    def get(self, key: Key) -> Any | None:
        """Return a state, or None."""
        if key in self._entries:
            self._entries.move_to_end(key)
            return self._entries[key].state
        return None

    def put(
        self,
        key: Key,
        state: Any,
        refs: Sequence[SegmentRef] = (),
        *,
        pieces: Iterable[Piece] = (),
        writer: str = "",
        epoch: int = 0,
    ) -> int:
        """Keep a state and return how many bytes it takes.

        Of each operator's buckets the two newest stay, for a task that is repeated. If all are too
        large together, the older ones of two go first, and then those that were used least
        recently. The new one stays in any case: it has been in memory in this epoch, and without it
        the next epoch would read all of it again.

        Args:
            key: The name of the state.
            state: The state.
            refs: The segments that it stands for.
            pieces: What it is made of.
            writer: The run that has made it.
            epoch: The epoch after which it is the state.
        """
        self._forget_old(key, epoch)
        entry = Entry(
            state=state, pieces=tuple(pieces), refs=tuple(refs), writer=writer, epoch=epoch
        )
        self._add(key, entry)
        self._shrink()
        return sum(self._pieces[one][0] for one in {id(piece) for piece in entry.pieces})

    def _forget_old(self, key: Key, epoch: int) -> None:
        same = [known for known in self._entries if known[:3] == key[:3]]
        old = [
            known
            for known, entry in self._entries.items()
            if known[:2] == key[:2] and entry.epoch < epoch - _AGE_EPOCHS
        ]
        for known in {*same[:-1], *old, key} & self._entries.keys():
            self._drop(known)

    def _add(self, key: Key, entry: Entry) -> None:
        for piece in entry.pieces:
            known = self._pieces.get(id(piece))
            if known is None:
                known = self._pieces[id(piece)] = [piece_bytes(piece), 0]
                self.bytes += known[0]
            known[1] += 1
        self._entries[key] = entry

    def _drop(self, key: Key) -> None:
        for piece in self._entries.pop(key).pieces:
            known = self._pieces[id(piece)]
            known[1] -= 1
            if not known[1]:
                self.bytes -= known[0]
                del self._pieces[id(piece)]

    def _shrink(self) -> None:
        """Drop states until the rest is within the bound, or only the newest is left."""
        while self.bound is not None and self.bytes > self.bound and len(self) > 1:
            newest = {known[:3]: known for known in self._entries}
            superseded = [known for known in self._entries if newest[known[:3]] != known]
            self._drop(superseded[0] if superseded else next(iter(self._entries)))

    def behind(
        self, key: Key, refs: Sequence[SegmentRef], writer: str
    ) -> tuple[Any, tuple[SegmentRef, ...]] | None:
        """Return the newest older state of the same buckets, and the segments that it lacks.

        Args:
            key: The name of the state that is wanted.
            refs: The segments that it stands for.
            writer: The run; what another one has left may stand for segments that were repaired
                since.
        """
        for known, entry in reversed(self._entries.items()):
            if known[:3] == key[:3] and entry.writer == writer and known[3] <= key[3]:
                lacking = find_missing(entry.refs, refs, key[2], key[3])
                if lacking is not None:
                    return entry.state, lacking
        return None

    def around(self, key: Key) -> list[Any]:
        """Return states in memory that have exactly what is wanted, among others or in pieces.

        One state of more buckets that are at the same mark, or several of fewer that are all of
        them together; none if there is no such thing.

        Args:
            key: The name of the state that is wanted.
        """
        pieces, left = [], key[2]
        for known, entry in reversed(self._entries.items()):
            if known[:2] != key[:2] or known[3] != key[3]:
                continue
            if not key[2] - known[2] and _cut(known[4], key[2]) == key[4]:
                return [entry.state]
            if known[2] and not known[2] - left and _cut(key[4], known[2]) == known[4]:
                pieces.append(entry.state)
                left -= known[2]
        return [] if left else pieces


def _cut(parts: Parts, buckets: BucketSet) -> Parts:
    return tuple((name, mine & buckets) for name, mine in parts if mine & buckets)


def find_missing(
    had: Sequence[SegmentRef], refs: Sequence[SegmentRef], buckets: BucketSet, watermark: int
) -> tuple[SegmentRef, ...] | None:
    """Return the segments whose rows a state lacks, or None if that cannot be told.

    A segment that was merged from others is not lacking if the state has all of them. One that is
    gone must have expired or been merged.

    Args:
        had: The segments that the state stands for.
        refs: The segments that it shall stand for.
        buckets: The buckets of both.
        watermark: The watermark up to which rows are no longer needed.

    >>> def ref(name, merged=()):
    ...     return SegmentRef(name=name, rows=1, bytes=1, sha256="", until=9, live=((0, 4),),
    ...                       merged=merged)
    >>> a, b, c = ref("a"), ref("b"), ref("c")
    >>> whole = BucketSet(((0, 4),))
    >>> [r.name for r in find_missing([a, b], [a, b, c], whole, 0)]
    ['c']
    >>> [r.name for r in find_missing([a, b], [ref("ab", ("a", "b")), c], whole, 0)]
    ['c']
    >>> find_missing([a], [ref("ab", ("a", "b"))], whole, 0) is None
    True
    """
    known = {ref.name: ref for ref in had}
    now = {ref.name: ref for ref in refs}
    merged = {name for ref in refs if ref.name not in known for name in ref.merged}
    lacking = []
    for ref in refs:
        if ref.name in known:
            if known[ref.name].buckets & buckets != ref.buckets & buckets:
                return None
        elif not ref.merged:
            lacking.append(ref)
        elif not set(ref.merged) <= set(known):
            return None
    gone = [ref for ref in had if ref.name not in now and ref.name not in merged]
    return tuple(lacking) if all(ref.until <= watermark for ref in gone) else None
