"""The worker's cache: the merged state of an operator's buckets after the last epochs.

An entry is named by the segments that it stands for. Segment names are never reused, so an entry
that fits is right, whichever attempt, driver or epoch left it there. An executor has several worker
processes and gives a task to any of them, so a worker may find that it has missed some epochs; what
it has then still stands for most of the segments, and `missing` tells which others there are. Law:
no row of a segment is ever in a state twice.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from penstock.plan.buckets import BucketSet
from penstock.plan.epoch import SegmentRef

Parts = tuple[tuple[str, BucketSet], ...]
Key = tuple[str, str, BucketSet, int, Parts]
_LIMIT = 64
_AGE_EPOCHS = 8
"""A state that so many epochs have passed over only takes memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A state, the segments that it stands for, and the run and the epoch that left it."""

    state: Any
    refs: tuple[SegmentRef, ...] = ()
    writer: str = ""
    epoch: int = 0


Entries = OrderedDict[Key, Entry]
_ENTRIES: Entries = OrderedDict()
_FRAMES: dict[str, pl.DataFrame] = {}
_FRAMES_OF: tuple[str, int] = ("", 0)


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


def get(key: Key) -> Any | None:
    """Return a cached state, or None."""
    if key in _ENTRIES:
        _ENTRIES.move_to_end(key)
        return _ENTRIES[key].state
    return None


def put(
    key: Key,
    state: Any,
    refs: Sequence[SegmentRef] = (),
    *,
    writer: str = "",
    epoch: int = 0,
) -> None:
    """Keep a state; of each operator's buckets the two newest stay, for a task that is repeated."""
    same = [known for known in _ENTRIES if known[:3] == key[:3]]
    old = [
        known
        for known, entry in _ENTRIES.items()
        if known[:2] == key[:2] and entry.epoch < epoch - _AGE_EPOCHS
    ]
    for known in {*same[:-1], *old}:
        del _ENTRIES[known]
    _ENTRIES[key] = Entry(state=state, refs=tuple(refs), writer=writer, epoch=epoch)
    while len(_ENTRIES) > _LIMIT:
        _ENTRIES.popitem(last=False)


def behind(
    key: Key, refs: Sequence[SegmentRef], writer: str
) -> tuple[Any, tuple[SegmentRef, ...]] | None:
    """Return the newest older state of the same buckets, and the segments that it lacks.

    Args:
        key: The name of the state that is wanted.
        refs: The segments that it stands for.
        writer: The run; what another one has left may stand for segments that were repaired since.
    """
    for known, entry in reversed(_ENTRIES.items()):
        if known[:3] == key[:3] and entry.writer == writer and known[3] <= key[3]:
            lacking = missing(entry.refs, refs, key[2], key[3])
            if lacking is not None:
                return entry.state, lacking
    return None


def around(key: Key) -> list[Any]:
    """Return states in memory that have exactly what is wanted, among others or in pieces.

    One state of more buckets that are at the same mark, or several of fewer that are all of them
    together; none if there is no such thing.

    Args:
        key: The name of the state that is wanted.
    """
    pieces, left = [], key[2]
    for known, entry in reversed(_ENTRIES.items()):
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


def missing(
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
    >>> [r.name for r in missing([a, b], [a, b, c], whole, 0)]
    ['c']
    >>> [r.name for r in missing([a, b], [ref("ab", ("a", "b")), c], whole, 0)]
    ['c']
    >>> missing([a], [ref("ab", ("a", "b"))], whole, 0) is None
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


def frames_of(run: str, epoch: int) -> dict[str, pl.DataFrame]:
    """Return the segments that tasks of an epoch have read here, and forget those of others.

    After a rescale several instances read parts of the same file, some of them in this process.
    """
    global _FRAMES_OF
    if (run, epoch) != _FRAMES_OF:
        _FRAMES_OF = run, epoch
        _FRAMES.clear()
    return _FRAMES


def use(entries: Entries) -> None:
    """Go on with other entries, as if this were another worker process."""
    global _ENTRIES
    _ENTRIES = entries
    _FRAMES.clear()


def clear() -> None:
    """Forget everything, as a new worker process would."""
    _ENTRIES.clear()
    _FRAMES.clear()
