"""Progress: what an operator has finished, by sets of buckets.

A *mark* is the watermark up to which a set of buckets has advanced. Usually all buckets of an
operator stand at the same mark, and there is one set; one that is held back has a lower mark of its
own. Laws: no mark goes back; a bucket stands at exactly one mark; what depends on the whole
operator may rely on the lowest mark and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.plan.buckets import BucketSet

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The marks of some buckets: ``sets`` has (mark, buckets) with one entry a mark, lowest first.

    >>> all_of_them = Progress.even(8, 5)
    >>> later = all_of_them.after([Progress.of([(9, BucketSet.of([0, 1, 2]))])])
    >>> later.sets, later.lowest
    (((5, ((3, 8),)), (9, ((0, 3),))), 5)
    """

    sets: tuple[tuple[int, Ranges], ...] = ()

    def __post_init__(self) -> None:
        marks = [mark for mark, _ in self.sets]
        if marks != sorted(set(marks)):
            raise ValueError(f"marks are different and the lowest comes first; marks={marks!r}")
        seen = BucketSet()
        for _, ranges in self.sets:
            if not ranges or BucketSet(ranges) & seen:
                raise ValueError(f"a bucket stands at exactly one mark; sets={self.sets!r}")
            seen |= BucketSet(ranges)

    @classmethod
    def of(cls, sets: Iterable[tuple[int, BucketSet]]) -> Progress:
        """Return the progress of disjoint sets; those at the same mark become one."""
        found: dict[int, BucketSet] = {}
        for mark, buckets in sets:
            if buckets:
                found[mark] = found.get(mark, BucketSet()) | buckets
        return cls(sets=tuple((mark, found[mark].ranges) for mark in sorted(found)))

    @classmethod
    def even(cls, buckets: int, mark: int) -> Progress:
        """Return the progress of buckets that all stand at one mark."""
        return cls(sets=((mark, ((0, buckets),)),))

    @property
    def lowest(self) -> int:
        """The lowest mark; there has to be one."""
        return self.sets[0][0]

    @property
    def shares(self) -> tuple[tuple[int, BucketSet], ...]:
        """The sets with their marks, lowest first."""
        return tuple((mark, BucketSet(ranges)) for mark, ranges in self.sets)

    @property
    def buckets(self) -> BucketSet:
        """All buckets."""
        every = BucketSet()
        for _, buckets in self.shares:
            every |= buckets
        return every

    def cut(self, buckets: BucketSet) -> Progress:
        """Return the progress of some of the buckets.

        >>> Progress.even(8, 5).cut(BucketSet.of([2])).sets
        ((5, ((2, 3),)),)
        """
        return Progress.of((mark, mine & buckets) for mark, mine in self.shares)

    def after(self, parts: Iterable[Progress]) -> Progress:
        """Return the progress once some buckets have reached other marks.

        Args:
            parts: The marks of different buckets, none of them unknown here.

        Raises:
            ValueError: A mark would go back.
        """
        reached = [share for part in parts for share in part.shares]
        for mark, buckets in reached:
            behind = [before for before, mine in self.shares if before > mark and mine & buckets]
            if behind:
                raise ValueError(f"a mark would go back from {behind[-1]} to {mark}")
        moved = BucketSet()
        for _, buckets in reached:
            moved |= buckets
        stayed = [(mark, mine - moved) for mark, mine in self.shares]
        return Progress.of([*stayed, *reached])
