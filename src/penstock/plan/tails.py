"""Tails: the windows that a bucket's old owner still finishes after a move by window recreation.

An operator's state is kept in lineages: the main one under the operator's name, and one for each
open tail under ``operator~epoch``, the epoch of the switch. Their files are in the operator's one
folder. Laws: every window of a bucket belongs to exactly one lineage; every row goes to all
lineages that have a window with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from penstock.plan.buckets import BucketMap, BucketSet
from penstock.plan.changes import Reconfiguration
from penstock.plan.progress import Progress

_MARK = "~"


def lineage_name(operator: str, epoch: int) -> str:
    """Return the name under which a tail keeps its state.

    >>> lineage_name("aggregate-0", 12)
    'aggregate-0~000000000012'
    """
    return f"{operator}{_MARK}{epoch:012d}"


def state_folder(name: str) -> str:
    """Return the operator, and so the folder, that a lineage belongs to.

    >>> state_folder("aggregate-0~000000000012"), state_folder("aggregate-0")
    ('aggregate-0', 'aggregate-0')
    """
    return name.partition(_MARK)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """Windows of some buckets that stay with their old owners.

    Attributes:
        operator: The operator; also the name of its subquery.
        epoch: The first epoch with the new bucket map.
        before_us: The switch: windows that start before it belong to the tail, later ones do not.
        until_us: When the last of them ends; rows from then on are not the tail's.
        held: Who finishes them, as (first bucket, bucket after the last, instance).
        moves: The records of the changes that it comes from, which it will end.
    """

    operator: str
    epoch: int
    before_us: int
    until_us: int
    held: tuple[tuple[int, int, int], ...]
    moves: tuple[Reconfiguration, ...] = ()

    @property
    def name(self) -> str:
        """The name of its lineage."""
        return lineage_name(self.operator, self.epoch)

    @property
    def buckets(self) -> BucketSet:
        """The buckets that it has windows of."""
        return BucketSet.of(self.owners)

    @property
    def owners(self) -> dict[int, int]:
        """The instance that finishes the windows of each bucket."""
        return {b: owner for low, high, owner in self.held for b in range(low, high)}

    def fit(self, after: BucketMap) -> Tail:
        """Return the tail among other instances: what has lost its owner goes where rows go now.

        >>> tail = Tail(operator="a", epoch=1, before_us=0, until_us=0, held=((0, 1, 0), (1, 3, 2)))
        >>> tail.fit(BucketMap.even(4, 2)).held
        ((0, 2, 0), (2, 3, 1))
        """
        if all(owner < after.instances for _, _, owner in self.held):
            return self
        owners = {
            bucket: owner if owner < after.instances else after.owners[bucket]
            for bucket, owner in self.owners.items()
        }
        return replace(self, held=held_by(owners))


def held_by(owners: Mapping[int, int]) -> tuple[tuple[int, int, int], ...]:
    """Return the owners of buckets in the short form of `Tail.held`.

    >>> held_by({0: 1, 1: 1, 2: 0, 7: 0})
    ((0, 2, 1), (2, 3, 0), (7, 8, 0))
    """
    held = []
    runs = groupby(enumerate(sorted(owners)), key=lambda item: (item[1] - item[0], owners[item[1]]))
    for (_, owner), run in runs:
        buckets = [bucket for _, bucket in run]
        held.append((buckets[0], buckets[-1] + 1, owner))
    return tuple(held)


def still_open(tails: Sequence[Tail], progress: Mapping[str, Progress]) -> tuple[Tail, ...]:
    """Return the tails that have windows which some of their buckets have not closed.

    >>> tail = Tail(operator="a", epoch=1, before_us=20, until_us=30, held=((0, 1, 0),))
    >>> [still_open([tail], {tail.name: Progress.even(1, mark)}) == (tail,) for mark in (29, 30)]
    [True, False]
    """
    return tuple(tail for tail in tails if progress[tail.name].lowest < tail.until_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """A lineage of an operator's state: whose rows and windows are its own.

    Attributes:
        name: Its name.
        owners: The instance of each bucket; -1 for buckets that it has nothing of.
        since_us: For some buckets, the start of the first window that belongs to it.
        before_us: The start from which on windows no longer do; None if all do.
        until_us: The time from which on it needs no rows; None if it needs all.
    """

    name: str
    owners: tuple[int, ...]
    since_us: Mapping[int, int]
    before_us: int | None = None
    until_us: int | None = None

    def owned_by(self, instance: int) -> BucketSet:
        """Return the buckets of an instance."""
        return BucketSet.of(b for b, owner in enumerate(self.owners) if owner == instance)


def lineages_of(operator: str, owners: BucketMap, tails: Iterable[Tail]) -> tuple[Lineage, ...]:
    """Return the lineages of an operator, the main one first.

    >>> tail = Tail(operator="a", epoch=1, before_us=20, until_us=30, held=((0, 1, 0),))
    >>> main, old = lineages_of("a", BucketMap.even(2, 1), [tail])
    >>> main.since_us, main.owners, old.since_us, old.before_us, old.owners
    ({0: 20}, (0, 0), {}, 20, (0, -1))
    """
    found: list[Lineage] = []
    since: dict[int, int] = {}
    for tail in sorted((t for t in tails if t.operator == operator), key=lambda t: t.epoch):
        held = tail.owners
        found.append(
            Lineage(
                name=tail.name,
                owners=tuple(held.get(bucket, -1) for bucket in range(len(owners.owners))),
                since_us={b: start for b, start in since.items() if b in held},
                before_us=tail.before_us,
                until_us=tail.until_us,
            )
        )
        since |= {b: max(since.get(b, tail.before_us), tail.before_us) for b in held}
    return (Lineage(name=operator, owners=owners.owners, since_us=since), *found)
