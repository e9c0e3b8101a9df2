"""Where buckets go: pure arithmetic over loads, shared by policies, the guard and users' wishes.

Laws: balancing never makes the loads more uneven; a bucket on its way stays where it is; the same
loads give the same map.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.control.view import SubqueryView
from penstock.plan.buckets import BucketMap
from penstock.plan.grid import Grid

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
_LEAST_GAIN = 1e-4
"""A move that improves the deviation by a smaller share than this is never worth it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A map with the utilisation that each instance is expected to have under it."""

    owners: BucketMap
    utilisations: tuple[float, ...]

    @property
    def deviation(self) -> float:
        """The standard deviation of the expected utilisations."""
        return deviation(self.utilisations)

    @property
    def worst(self) -> float:
        """The highest of the expected utilisations."""
        return max(self.utilisations)


def deviation(utilisations: Sequence[float]) -> float:
    """Return the standard deviation of some utilisations.

    Figure 12 of StreamCloud has the root of the sum of squares, which grows with the number of
    instances; this is the root of their mean, so that a threshold means the same at any size.

    >>> deviation([0.2, 0.4, 0.6, 0.4]), deviation([])
    (0.1414213562373095, 0.0)
    """
    return float(np.std(np.asarray(utilisations))) if len(utilisations) else 0.0


def mean(utilisations: Sequence[float]) -> float:
    """Return the mean of some utilisations; 0 if there are none."""
    return sum(utilisations) / len(utilisations) if utilisations else 0.0


def known_loads(view: SubqueryView) -> Floats | None:
    """Return what each bucket adds to its owner's utilisation; None if that is not known."""
    if not view.movable or len(view.bucket_loads) != len(view.owners.owners):
        return None
    loads = np.asarray(view.bucket_loads, dtype=np.float64)
    return loads if loads.any() else None


def expect_utilisations(view: SubqueryView, owners: BucketMap) -> tuple[float, ...]:
    """Return the utilisation of each instance under another map.

    What buckets do not explain stays with its instance while the size stays, and is spread evenly
    over the instances of another size. So the whole load stays the same.
    """
    now, loads = np.asarray(view.utilisations), known_loads(view)
    if loads is None:
        same = owners.instances == len(now)
        return tuple(
            view.utilisations if same else [float(now.sum() / owners.instances)] * owners.instances
        )
    before = np.bincount(view.owners.owners, weights=loads, minlength=len(now))[: len(now)]
    after = np.bincount(owners.owners, weights=loads, minlength=owners.instances)
    rest = now - before
    if owners.instances != len(now):
        rest = np.full(owners.instances, rest.sum() / owners.instances)
    return tuple(float(u) for u in np.maximum(after + rest, 0.0))


def resize(view: SubqueryView, instances: int) -> Placed | None:
    """Return a map for another number of instances, balanced by load, that moves few buckets.

    It is None if a bucket is still on its way to an instance that would go.
    """
    if view.ways:
        owners = Grid.of(len(view.owners.owners)).owners(instances)
    elif not view.movable:
        owners = BucketMap.even(len(view.owners.owners), instances)
    else:
        loads = known_loads(view)
        owners = view.owners.resize(instances, () if loads is None else loads.tolist())
        stay = {b: view.owners.owners[b] for b in view.moving}
        if any(owner >= instances for owner in stay.values()):
            return None
        owners = owners.with_owners(stay)
    return Placed(owners=owners, utilisations=expect_utilisations(view, owners))


def balance(
    placed: Placed,
    loads: Floats,
    *,
    frozen: Iterable[int] = (),
    enough: float = 0.0,
    improvement: float = 0.01,
) -> Placed:
    """Return a map under which the instances are more alike, by StreamCloud's greedy moves.

    Again and again the most loaded instance gives a bucket to the least loaded: the one that brings
    the two closest together. That is the bucket with the highest load, as in the paper, as long as
    no bucket is larger than half the gap between the two; a larger one would go to and fro. An
    instance that cannot give a bucket which helps is left out, and the next one gives.

    Args:
        placed: The map now, and the utilisations under it.
        loads: What each bucket adds to the utilisation of its owner.
        frozen: Buckets that must stay where they are.
        enough: Above this deviation any move that helps is made, below it only good ones.
        improvement: A good move improves the deviation by this share of it at least.

    >>> even = Placed(owners=BucketMap.even(4, 2), utilisations=(0.9, 0.2))
    >>> balance(even, np.array([0.6, 0.3, 0.1, 0.1])).owners.owners
    (0, 1, 1, 1)
    """
    owners, now = np.array(placed.owners.owners), np.array(placed.utilisations)
    may = loads > 0
    may[list(frozen)] = False
    gives = np.ones(len(now), dtype=bool)
    for _ in range(2 * len(loads) + len(now)):
        high, low = int(np.argmax(np.where(gives, now, -np.inf))), int(np.argmin(now))
        gap = now[high] - now[low]
        mine = np.flatnonzero((owners == high) & may)
        gains = loads[mine] * (gap - loads[mine])  # half of what the sum of squares loses
        if not gives.any() or gap <= 0:
            break
        if not len(mine) or gains.max() <= 0:
            gives[high] = False
            continue
        before = float(np.std(now))
        best = int(np.argmax(gains))
        after = np.sqrt(max(0.0, before**2 - 2 * gains[best] / len(now)))
        share = (before - after) / before if before else 0.0
        if share < _LEAST_GAIN or (before <= enough and share < improvement):
            break
        bucket = mine[best]
        owners[bucket] = low
        now[high] -= loads[bucket]
        now[low] += loads[bucket]
    return Placed(
        owners=BucketMap(owners=tuple(int(o) for o in owners), instances=placed.owners.instances),
        utilisations=tuple(float(u) for u in now),
    )


def find_hottest(view: SubqueryView) -> tuple[int, float] | None:
    """Return the bucket with the highest load and the load; None if loads are not known."""
    loads = known_loads(view)
    if loads is None:
        return None
    bucket = int(np.argmax(loads))
    return bucket, float(loads[bucket])
