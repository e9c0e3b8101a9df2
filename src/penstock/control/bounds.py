"""The bounds that a user sets for every policy, and how large a subquery can and must be by them.

Policies and the guard share this arithmetic, so that a policy does not propose what the guard is
sure to refuse.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.errors import QueryError
from penstock.control.view import SubqueryView, View
from penstock.plan.changes import PROTOCOLS, MoveProtocol
from penstock.plan.grid import Grid, bytes_held


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What every policy keeps to.

    Attributes:
        min: The fewest instances that a subquery has.
        max: The most.
        protocol: How state moves.
        cooldown_seconds: How long a subquery is left alone after a start or a change.
        smoothing: From how many epochs a load is taken.
        instance_cores: What an instance may use, in cores; utilisation is a share of it.
        memory_bytes: How much state an instance can hold in memory; 0 for no bound.
        dry_run: Only report what would be done.
    """

    min: int = 1
    max: int = 16
    protocol: MoveProtocol = "auto"
    cooldown_seconds: float = 5.0
    smoothing: int = 3
    instance_cores: float = 1.0
    memory_bytes: int = 0
    dry_run: bool = False

    def __post_init__(self) -> None:
        problems = find_mistakes(self)
        if problems:
            raise QueryError(problems=problems)


def find_mistakes(bounds: Bounds) -> list[str]:
    """Return what is wrong with some bounds, a sentence each."""
    checks = [
        (bounds.min < 1, f"elastic: min must be 1 or more; min={bounds.min!r}"),
        (bounds.max < bounds.min, f"elastic: max must be at least min; max={bounds.max!r}"),
        (
            bounds.protocol not in PROTOCOLS,
            f"elastic: unknown protocol {bounds.protocol!r}; known: {', '.join(PROTOCOLS)}",
        ),
        (bounds.cooldown_seconds < 0, "elastic: cooldown_seconds must not be negative"),
        (bounds.smoothing < 1, "elastic: smoothing must be 1 or more"),
        (bounds.instance_cores <= 0, "elastic: instance_cores must be positive"),
        (bounds.memory_bytes < 0, "elastic: memory_bytes must not be negative"),
    ]
    return [text for wrong, text in checks if wrong]


def task_slots(view: View, bounds: Bounds) -> int:
    """Return how many tasks could run at the same time at most; small ones share a slot."""
    return int(view.most_slots / min(1.0, bounds.instance_cores) + 1e-9)


def most_instances(view: View, subquery: SubqueryView, bounds: Bounds) -> int:
    """Return how many instances a subquery can have at most if it is alone in its stage.

    >>> from penstock.plan.buckets import BucketMap
    >>> one = SubqueryView(id=1, name="a", owners=BucketMap.even(8, 1), instances=())
    >>> view = View(epoch=1, at=0.0, interval_seconds=1.0, subqueries=(one,), most_slots=2)
    >>> most_instances(view, one, Bounds()), most_instances(view, one, Bounds(instance_cores=0.5))
    (2, 4)
    """
    return max(1, min(bounds.max, task_slots(view, bounds), len(subquery.owners.owners)))


def room_for(view: View, subquery: SubqueryView, bounds: Bounds, taken: int | None = None) -> int:
    """Return how many instances a subquery can have beside the others of its stage.

    It is never fewer than it has, nor than it must have: then tasks wait for each other.

    Args:
        view: What is known.
        subquery: The subquery.
        bounds: The user's bounds.
        taken: How many instances the others will have; as many as now unless given.
    """
    if taken is None:
        taken = sum(other.owners.instances for other in view.beside(subquery))
    most = most_instances(view, subquery, bounds)
    must = min(most, max(bounds.min, count_needed_for_memory(subquery, bounds)))
    return max(subquery.owners.instances, must, min(most, task_slots(view, bounds) - taken))


def count_needed_for_memory(subquery: SubqueryView, bounds: Bounds) -> int:
    """Return how many instances the state of a subquery needs; 1 if memory has no bound.

    >>> from penstock.plan.buckets import BucketMap
    >>> one = SubqueryView(
    ...     id=1, name="a", owners=BucketMap.even(2, 1), instances=(), bucket_held_bytes=(60, 50)
    ... )
    >>> [count_needed_for_memory(one, b) for b in (Bounds(memory_bytes=100), Bounds())]
    [2, 1]
    """
    if not bounds.memory_bytes:
        return 1
    if subquery.ways and subquery.bucket_held_bytes:
        return _count_needed_on_grid(subquery, bounds)
    whole = sum(subquery.bucket_held_bytes) or subquery.memory_bytes
    return max(1, -(-whole // bounds.memory_bytes))


def _count_needed_on_grid(subquery: SubqueryView, bounds: Bounds) -> int:
    """Return how many instances a grid needs; instances hold what their cells have in common."""
    grid = Grid.of(len(subquery.bucket_held_bytes))
    for instances in range(1, bounds.max):
        held = bytes_held(grid.owners(instances), subquery.bucket_held_bytes, subquery.ways)
        if max(held) <= bounds.memory_bytes:
            return instances
    return bounds.max
