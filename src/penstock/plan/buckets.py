"""Buckets, the maps that give them to instances, and sets of them.

Law: at any time every bucket has exactly one owner, so every key has exactly one owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby


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

    @classmethod
    def of_runs(cls, runs: Iterable[Sequence[int]], instances: int) -> BucketMap:
        """Return the map of the runs that `runs` gave."""
        owners = tuple(owner for owner, length in runs for _ in range(length))
        return cls(owners=owners, instances=instances)

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """The owners of neighbouring buckets as (owner, how many): the short form for files.

        If the last instance owns nothing, it still has a run, so that it is not forgotten.

        >>> BucketMap.even(6, 2).runs, BucketMap(owners=(0, 0, 0), instances=2).runs
        (((0, 3), (1, 3)), ((0, 3), (1, 0)))
        """
        runs = tuple((owner, len(list(run))) for owner, run in groupby(self.owners))
        last = self.instances - 1
        return runs if last in self.owners else (*runs, (last, 0))

    def owned_by(self, instance: int) -> BucketSet:
        """Return the buckets of an instance."""
        return BucketSet.of(b for b, owner in enumerate(self.owners) if owner == instance)

    def with_owners(self, moves: Mapping[int, int]) -> BucketMap:
        """Return the map after some buckets have got other owners.

        >>> BucketMap.even(4, 2).with_owners({0: 1}).owners
        (1, 0, 1, 1)
        """
        owners = tuple(moves.get(bucket, owner) for bucket, owner in enumerate(self.owners))
        return BucketMap(owners=owners, instances=self.instances)

    def find_moved(self, after: BucketMap) -> BucketSet:
        """Return the buckets that have another owner in another map."""
        pairs = zip(self.owners, after.owners, strict=True)
        return BucketSet.of(b for b, (old, new) in enumerate(pairs) if old != new)

    def resize(self, instances: int, loads: Sequence[float] = ()) -> BucketMap:
        """Return a balanced map for another number of instances that moves few buckets.

        Args:
            instances: How many instances there are to be.
            loads: What each bucket weighs; all the same unless given.

        >>> BucketMap.even(6, 2).resize(3).owners, BucketMap.even(6, 3).resize(2).owners
        ((0, 0, 2, 1, 1, 2), (0, 0, 1, 1, 0, 1))
        """
        weights = list(loads) if loads and sum(loads) > 0 else [1.0] * len(self.owners)
        share = sum(weights) / instances * (1 + 1e-9)
        owners = list(self.owners)
        load = [0.0] * instances
        homeless: list[int] = []
        for bucket, owner in enumerate(owners):
            if owner < instances and load[owner] + weights[bucket] <= share:
                load[owner] += weights[bucket]
            else:
                homeless.append(bucket)
        home = -1
        for bucket in sorted(homeless, key=lambda b: (-weights[b], b)):
            if home < 0 or load[home] + weights[bucket] > share:  # neighbours stay together
                home = min(range(instances), key=lambda i: (load[i], i))
            owners[bucket] = home
            load[home] += weights[bucket]
        return BucketMap(owners=tuple(owners), instances=instances)


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
        return BucketSet(_ranges(_bits(self.ranges) & _bits(other.ranges)))

    def __or__(self, other: BucketSet) -> BucketSet:
        return BucketSet(_ranges(_bits(self.ranges) | _bits(other.ranges)))

    def __sub__(self, other: BucketSet) -> BucketSet:
        return BucketSet(_ranges(_bits(self.ranges) & ~_bits(other.ranges)))


# After many moves a set has many ranges, and each segment is cut by it several times an epoch; as
# numbers with a bit for each bucket, sets are cut in one step.
@lru_cache(maxsize=8192)
def _bits(ranges: tuple[tuple[int, int], ...]) -> int:
    return sum((1 << high) - (1 << low) for low, high in ranges)


@lru_cache(maxsize=8192)
def _ranges(bits: int) -> tuple[tuple[int, int], ...]:
    """Return the runs of ones in a number.

    >>> _ranges(0b1000_0111)
    ((0, 3), (7, 8))
    """
    ranges, low = [], 0
    while bits:
        zeros = (bits & -bits).bit_length() - 1
        bits, low = bits >> zeros, low + zeros
        ones = (~bits & (bits + 1)).bit_length() - 1
        ranges.append((low, low + ones))
        bits, low = bits >> ones, low + ones
    return tuple(ranges)
