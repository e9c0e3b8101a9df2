"""Buckets, the maps that give them to instances, and sets of them.

Law: at any time every bucket has exactly one owner, so every key has exactly one owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketMap:
    """Which instance owns each bucket; ``owners[b]`` is the instance of bucket b."""

    owners: tuple[int, ...]
    instances: int

    def __post_init__(self) -> None:
        if not self.owners or min(self.owners) < 0 or max(self.owners) >= self.instances:
            raise ValueError(f"every bucket needs an owner among {self.instances} instances")

    @classmethod
    def even(cls, buckets: int, instances: int) -> BucketMap:
        """Return the map that gives each instance a run of neighbouring buckets.

        >>> BucketMap.even(6, 3).owners
        (0, 0, 1, 1, 2, 2)
        """
        owners = tuple(b * instances // buckets for b in range(buckets))
        return cls(owners=owners, instances=instances)

    def owned_by(self, instance: int) -> BucketSet:
        """Return the buckets of an instance."""
        return BucketSet.of(b for b, owner in enumerate(self.owners) if owner == instance)


@dataclass(frozen=True, slots=True)
class BucketSet:
    """A set of buckets as sorted, disjoint, half-open ranges.

    >>> s = BucketSet.of([0, 1, 2, 7])
    >>> s.ranges, 2 in s, 3 in s, (s - BucketSet.of([1])).ranges
    (((0, 3), (7, 8)), True, False, ((0, 1), (2, 3), (7, 8)))
    """

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, buckets: Iterable[int]) -> BucketSet:
        """Return the set of some buckets."""
        ranges: list[tuple[int, int]] = []
        for bucket in sorted(set(buckets)):
            if ranges and ranges[-1][1] == bucket:
                ranges[-1] = (ranges[-1][0], bucket + 1)
            else:
                ranges.append((bucket, bucket + 1))
        return cls(tuple(ranges))

    def __iter__(self) -> Iterator[int]:
        return (b for lo, hi in self.ranges for b in range(lo, hi))

    def __contains__(self, bucket: int) -> bool:
        return any(lo <= bucket < hi for lo, hi in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __and__(self, other: BucketSet) -> BucketSet:
        return BucketSet(
            tuple(
                (max(a, c), min(b, d))
                for a, b in self.ranges
                for c, d in other.ranges
                if max(a, c) < min(b, d)
            )
        )

    def __sub__(self, other: BucketSet) -> BucketSet:
        return BucketSet.of(set(self) - set(other))
