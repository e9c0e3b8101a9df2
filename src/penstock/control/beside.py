"""What speaks against a change beside others: the part of the guard that looks across subqueries.

Subqueries of one stage share the slots, instances of all subqueries share the memory of their host,
and all state that moves is read in one epoch. Law: a change that takes nothing from the others is
never refused here.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.control.bounds import Bounds, room_for, task_slots
from penstock.control.view import SubqueryView, View
from penstock.control.words import count
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import Change
from penstock.plan.grid import bytes_held

BEARABLE_SECONDS = 1.0
"""So long an epoch may read state for several moves; or for as long as it takes anyway."""
Accepted = Mapping[int, Change]
"""The changes that were let through, by subquery."""


def object_to_plan(
    view: View, subquery: SubqueryView, change: Change, bounds: Bounds, accepted: Accepted
) -> str:
    """Return the first reason against a change beside those that were accepted; empty if none."""
    for check in (_slots, _hosts, _moves):
        why = check(view, subquery, change, bounds, accepted)
        if why:
            return why
    return ""


def _slots(
    view: View, subquery: SubqueryView, change: Change, bounds: Bounds, accepted: Accepted
) -> str:
    """Return why there are too few slots for all that runs at the same time."""
    if change.instances <= subquery.owners.instances:
        return ""
    taken = sum(_owners(other, accepted).instances for other in view.beside(subquery))
    if change.instances <= room_for(view, subquery, bounds, taken):
        return ""
    return (
        f"{change.instances} instances beside {taken} of subqueries that run at the same time are "
        f"more than the {task_slots(view, bounds)} tasks that there are slots for"
    )


def _hosts(
    view: View, subquery: SubqueryView, change: Change, bounds: Bounds, accepted: Accepted
) -> str:
    """Return why a host cannot hold its state; a change that adds nothing to a host is fine.

    On which host new instances will be is not known, so they count nowhere.
    """
    if not bounds.memory_bytes or not view.hosts:
        return ""
    before = sum_held_on_hosts(view, accepted)
    after = sum_held_on_hosts(view, {**accepted, subquery.id: change})
    for host, held in after.items():
        most = bounds.memory_bytes * view.hosts[host]
        if held > max(most, before[host]):
            return (
                f"host {host} would have {held} bytes of state of all subqueries, more than the "
                f"{most} that {count(view.hosts[host], 'slot')} can hold"
            )
    return ""


def sum_held_on_hosts(view: View, accepted: Accepted) -> dict[str, int]:
    """Return how much state of all subqueries each host has once some changes have happened."""
    held = dict.fromkeys(view.hosts, 0)
    for subquery in view.subqueries:
        for instance, size in zip(subquery.instances, _held(subquery, accepted), strict=False):
            if instance.host in held:
                held[instance.host] += size
    return held


def _held(subquery: SubqueryView, accepted: Accepted) -> list[int]:
    if not subquery.bucket_held_bytes:
        return [instance.memory_bytes for instance in subquery.instances]
    owners = _owners(subquery, accepted)
    return [int(size) for size in bytes_held(owners, subquery.bucket_held_bytes, subquery.ways)]


def _moves(
    view: View, subquery: SubqueryView, change: Change, bounds: Bounds, accepted: Accepted
) -> str:
    """Return why an epoch cannot bear one more move; a first one it bears, however long."""
    known = {one.id: one for one in view.subqueries}
    before = sum(reading_seconds(view, known[n], other) for n, other in accepted.items())
    mine = reading_seconds(view, subquery, change)
    bearable = max(view.interval_seconds, BEARABLE_SECONDS)
    if not before or not mine or before + mine <= bearable:
        return ""
    return (
        f"its new owners would read state for {mine:.1f} s, and those of other subqueries for "
        f"{before:.1f} s, more than the {bearable:.1f} s that an epoch can bear; it has to wait"
    )


def reading_seconds(view: View, subquery: SubqueryView, change: Change) -> float:
    """Return for how long the instance that gets the most state reads it."""
    if change.protocol == "window" or not subquery.bucket_bytes:
        return 0.0
    if subquery.ways:
        most = max(bytes_held(change.owners, subquery.bucket_bytes, subquery.ways))
        return most / view.read_bytes_per_second if change.owners != subquery.owners else 0.0
    given = [0] * change.instances
    for bucket in subquery.owners.find_moved(change.owners):
        given[change.owners.owners[bucket]] += subquery.bucket_bytes[bucket]
    return max(given) / view.read_bytes_per_second


def _owners(subquery: SubqueryView, accepted: Accepted) -> BucketMap:
    change = accepted.get(subquery.id)
    return subquery.owners if change is None else change.owners
