"""How large a subquery can be, and must be: shared by the policies and the guard."""

from __future__ import annotations

from penstock.control.elastic import Elastic
from penstock.control.view import SubqueryView, View
from penstock.plan.grid import Grid, bytes_held


def most_instances(view: View, subquery: SubqueryView, rules: Elastic) -> int:
    """Return how many instances a subquery can have at most.

    >>> from penstock.plan.buckets import BucketMap
    >>> one = SubqueryView(id=1, name="a", owners=BucketMap.even(8, 1), instances=())
    >>> view = View(epoch=1, at=0.0, interval_seconds=1.0, subqueries=(one,), most_slots=2)
    >>> most_instances(view, one, Elastic()), most_instances(view, one, Elastic(instance_cores=0.5))
    (2, 4)
    """
    slots = int(view.most_slots / min(1.0, rules.instance_cores) + 1e-9)
    return max(1, min(rules.max, slots, len(subquery.owners.owners)))


def needed_for_memory(subquery: SubqueryView, rules: Elastic) -> int:
    """Return how many instances the state of a subquery needs; 1 if memory has no bound.

    >>> from penstock.plan.buckets import BucketMap
    >>> one = SubqueryView(
    ...     id=1, name="a", owners=BucketMap.even(2, 1), instances=(), bucket_held_bytes=(60, 50)
    ... )
    >>> needed_for_memory(one, Elastic(memory_bytes=100)), needed_for_memory(one, Elastic())
    (2, 1)
    """
    if not rules.memory_bytes:
        return 1
    if subquery.ways and subquery.bucket_held_bytes:
        return _needed_on_grid(subquery, rules)
    return max(1, -(-state_bytes(subquery) // rules.memory_bytes))


def _needed_on_grid(subquery: SubqueryView, rules: Elastic) -> int:
    """Return how many instances a grid needs; instances hold what their cells have in common."""
    grid = Grid.of(len(subquery.bucket_held_bytes))
    for instances in range(1, rules.max):
        held = bytes_held(grid.owners(instances), subquery.bucket_held_bytes, subquery.ways)
        if max(held) <= rules.memory_bytes:
            return instances
    return rules.max


def state_bytes(subquery: SubqueryView) -> int:
    """Return how much state a subquery has in memory."""
    if subquery.bucket_held_bytes:
        return sum(subquery.bucket_held_bytes)
    return sum(instance.held_bytes for instance in subquery.instances)
