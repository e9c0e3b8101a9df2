"""The switch of a bucket by window recreation, pure: from live segments to a tail.

Law: no row that is kept when a tail opens lies at or after its switch, so a window that starts
later has all its rows at the new owner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from penstock.control.protocol import Choice, choose
from penstock.operators.windows.panes import Panes
from penstock.plan.buckets import BucketMap, BucketSet
from penstock.plan.changes import Change, MoveProtocol, UsedProtocol
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import SegmentRef
from penstock.plan.tails import Tail, held_by, state_folder
from penstock.query.windows import TimeWindow
from penstock.state.manifests import Manifest

T = TypeVar("T")
Segments = Mapping[str, tuple[SegmentRef, ...]]
_UNKNOWN_US = 1 << 60
"""A watermark that goes further in an epoch has just begun or ended."""


def open_tail(
    operator: str,
    epoch: int,
    window: TimeWindow,
    refs: Iterable[SegmentRef],
    owners: Mapping[int, int],
) -> Tail | None:
    """Return the tail of buckets that move, or None if they have no state.

    The switch is the first start of a window above all rows that are kept: a segment tells when the
    last window of its rows ends. Where a clock skips a whole day, two windows end at once; then it
    is taken for the later one, and the tail lasts until all windows from before the switch end.

    Args:
        operator: The operator.
        epoch: The first epoch with the new owners.
        window: The operator's windows.
        refs: The live segments of its main lineage.
        owners: The old owner of each bucket that moves.
    """
    buckets = BucketSet.of(owners)
    ends = [ref.until for ref in refs if ref.buckets & buckets]
    if not ends:
        return None
    panes = Panes.of(window)
    switch = panes.sealed_before(max(ends)) - panes.per_window + panes.step
    last = panes.last_window(switch - 1)
    return Tail(
        operator=operator,
        epoch=epoch,
        before_us=panes.start_at(switch),
        until_us=panes.start_at(last * panes.step + panes.per_window),
        held=held_by(owners),
    )


def pass_on(segments: Segments, tail: Tail) -> dict[str, tuple[SegmentRef, ...]]:
    """Return the segments after a switch: what the buckets of a new tail have goes to the tail.

    A file may then be named by both lineages, for different buckets.
    """
    main, mine, buckets = [], [], tail.buckets
    for ref in segments.get(tail.operator, ()):
        left, passed = ref.buckets - buckets, ref.buckets & buckets
        main += [replace(ref, live=left.ranges)] if left else []
        mine += [replace(ref, live=passed.ranges)] if passed else []
    return {**segments, tail.operator: tuple(main), tail.name: tuple(mine)}


def only_open(lineages: Mapping[str, T], tails: Sequence[Tail]) -> dict[str, T]:
    """Return what belongs to lineages without what belongs to tails that have ended."""
    names = {tail.name for tail in tails}
    return {n: found for n, found in lineages.items() if state_folder(n) == n or n in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A change that takes effect, the map before it, and how its buckets' state moves.

    Attributes:
        change: The change.
        before: The map before it.
        asked_at: When it was asked for, in seconds since 1970.
        protocol: ``state``, ``window``, or empty if no state has to move.
        why: Why this protocol, as a clause; empty if it was asked for.
        bytes: How much state the new owners read; None if only they can tell.
    """

    change: Change
    before: BucketMap
    asked_at: float = 0.0
    protocol: UsedProtocol = ""
    why: str = ""
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What the choice of a protocol goes by.

    Attributes:
        bytes_of: Tells how much state each bucket has in some segments.
        pace_us: How far the watermark of each operator goes in an epoch, where that is known.
        read_bytes_per_second: How fast state is read.
    """

    bytes_of: Callable[[Sequence[SegmentRef], int], Sequence[float]]
    pace_us: Mapping[str, int]
    read_bytes_per_second: float


def switch_owners(
    query: CompiledQuery,
    epoch: int,
    last: Manifest,
    before: Mapping[int, BucketMap],
    after: Mapping[int, BucketMap],
    changes: Sequence[Applied],
    weights: Weights,
) -> tuple[tuple[Applied, ...], tuple[Tail, ...]]:
    """Return how the changes of an epoch move state, and the tails while it runs.

    If a bucket is moved several times, the last change counts; where its old owner goes, it is
    moved by state recreation, whatever was asked for.

    Args:
        query: The compiled query, as it runs with the new maps.
        epoch: The epoch.
        last: The manifest before it.
        before: The maps of that manifest.
        after: The new maps.
        changes: The changes, in the order in which they were asked for.
        weights: What the choice of a protocol goes by.
    """
    numbers = {query.subquery_name(s.id): s.id for s in query.subqueries}
    tails = [t.fit(after[numbers[t.operator]]) for t in last.tails if t.operator in numbers]
    decided = list(changes)
    for name, number in numbers.items():
        mine = [i for i, applied in enumerate(changes) if applied.change.subquery == number]
        if not mine or not query.is_movable(number):
            continue
        move = _Move(query, number, name, last, before[number], after[number], weights)
        held: dict[int, int] = {}
        for i, buckets in _last_mover(changes, mine, before[number], after[number]).items():
            decided[i], kept = move.decide(changes[i], buckets)
            held |= kept
        tail = open_tail(name, epoch, move.window, move.refs, held) if move.window else None
        tails += [tail] if tail else []
    return tuple(decided), tuple(tails)


def _last_mover(
    changes: Sequence[Applied], mine: Sequence[int], before: BucketMap, after: BucketMap
) -> dict[int, list[int]]:
    """Return the buckets that have a new owner in the end, by the change that moved them last."""
    mover = {
        bucket: i for i in mine for bucket in changes[i].before.find_moved(changes[i].change.owners)
    }
    found: dict[int, list[int]] = {i: [] for i in mine}
    for bucket in before.find_moved(after):
        found[mover[bucket]].append(bucket)
    return found


class _Move:
    """The moves of one subquery's buckets in one epoch."""

    def __init__(
        self,
        query: CompiledQuery,
        subquery: int,
        name: str,
        last: Manifest,
        before: BucketMap,
        after: BucketMap,
        weights: Weights,
    ) -> None:
        self.before, self.after = before, after
        self.window, self.refs = query.window_of(subquery), last.segments.get(name, ())
        self.bytes_of = weights.bytes_of(self.refs, query.buckets)
        self.read_bytes_per_second = weights.read_bytes_per_second
        self.moving = {b for t in last.tails if t.operator == name for b in t.buckets}
        self.rest_epochs = _rest(self.refs, last.watermarks.get(name), weights.pace_us.get(name))

    def decide(self, applied: Applied, buckets: Sequence[int]) -> tuple[Applied, dict[int, int]]:
        """Return a change with its protocol, and the buckets whose old owner finishes windows."""
        size = sum(self.bytes_of[b] for b in buckets)
        olds = {b: self.before.owners[b] for b in buckets}
        kept = {b: old for b, old in olds.items() if old < self.after.instances}
        choice = self._choice(applied.change.protocol, size, len(kept) == len(olds), olds)
        if choice.protocol != "window" or not size:
            kept = {}
        read = sum(self.bytes_of[b] for b in buckets if b not in kept)
        protocol: UsedProtocol = "window" if kept else "state" if read else ""
        return (
            replace(applied, protocol=protocol, why=choice.reason, bytes=round(read)),
            kept,
        )

    def _choice(
        self, asked: MoveProtocol, size: float, stays: bool, buckets: Mapping[int, int]
    ) -> Choice:
        if asked == "state" or (asked == "window" and self.window and stays):
            return Choice(protocol=asked, reason="")
        forced = asked == "window"
        found = choose(
            moved_bytes=size,
            window=self.window,
            rest_epochs=self.rest_epochs,
            read_bytes_per_second=self.read_bytes_per_second,
            stays=stays,
            moving=not self.moving.isdisjoint(buckets),
        )
        return replace(found, protocol="window") if forced and self.window else found


def _rest(refs: Sequence[SegmentRef], watermark: int | None, pace_us: int | None) -> float | None:
    """Return in how many epochs the last window of what is kept will have closed, if known."""
    if not refs or watermark is None or not pace_us:
        return None
    return max(0, max(ref.until for ref in refs) - watermark) / pace_us


def pace_us(before: Manifest | None, after: Manifest) -> dict[str, int]:
    """Return how far the watermark of each operator went in an epoch, where it did."""
    marks = before.watermarks if before else {}
    far = {name: mark - marks.get(name, mark) for name, mark in after.watermarks.items()}
    return {name: step for name, step in far.items() if 0 < step < _UNKNOWN_US}
