"""From the statistics of the last epochs to the view that a policy decides by.

Laws: loads are those of the maps in force: an epoch with another map counts for nothing, nor does
the first one with this map if it had to read state. What is not known is left out, not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.control.elastic import Elastic
from penstock.control.placing import mean
from penstock.control.view import InstanceView, SubqueryView, View
from penstock.plan.buckets import BucketMap
from penstock.plan.compiled import CompiledQuery
from penstock.plan.statistics import EpochStatistics, SubqueryLoad

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
_LEAST_SECONDS = 1e-6
"""No epoch is shorter; a clock that stands still does not make an instance infinitely busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spell:
    """What a subquery did in the epochs that count, newest first, and how long each one was.

    An epoch without input is idle, whatever it cost.
    """

    loads: tuple[SubqueryLoad, ...]
    seconds: tuple[float, ...]
    idle: tuple[bool, ...]


def make_view(
    query: CompiledQuery,
    maps: Mapping[int, BucketMap],
    epochs: Sequence[EpochStatistics],
    *,
    rules: Elastic,
    since: Mapping[int, int] | None = None,
    slots: int = 1,
    most_slots: int = 1,
    moving: Mapping[int, tuple[int, ...]] | None = None,
    recovering: bool = False,
) -> View:
    """Return what a policy sees after the last of some epochs.

    Args:
        query: The compiled query as it runs now.
        maps: Who owns the buckets of each subquery.
        epochs: Statistics, oldest first; at least one.
        rules: How many epochs count, and what an instance may use.
        since: The first epoch in which each subquery had its map; the first of all unless given.
        slots: How many tasks can run at the same time now.
        most_slots: How many could at most.
        moving: The buckets of each subquery that are on their way.
        recovering: Whether loads are not yet what they will be.
    """
    last, recent = epochs[-1], list(epochs)[-rules.smoothing :]
    views: dict[int, SubqueryView] = {}
    for number, owners in sorted(maps.items()):
        spell = _spell(number, epochs, (since or {}).get(number, 0), rules.smoothing)
        if spell is not None:
            views[number] = _subquery(
                query, number, owners, spell, rules, tuple((moving or {}).get(number, ()))
            )
    return View(
        epoch=last.epoch,
        at=last.at,
        interval_seconds=round(sum(e.interval_seconds for e in recent) / len(recent), 6),
        subqueries=tuple(views.values()),
        slots=slots,
        most_slots=most_slots,
        backlog=last.backlog,
        recovering=recovering,
        busy_share=_busy_share(query, views, rules),
    )


def _spell(
    subquery: int,
    epochs: Sequence[EpochStatistics],
    since: int,
    smoothing: int,
) -> _Spell | None:
    """Return the loads of a subquery that say something about its map; None if there are none."""
    found: list[tuple[SubqueryLoad, float, bool]] = []
    for epoch in reversed(epochs):
        if len(found) == smoothing or epoch.epoch < since:
            break
        load = next((one for one in epoch.subqueries if one.subquery == subquery), None)
        if load is None or not load.instances:
            continue
        restored = any(instance.restored_bytes for instance in load.instances)
        if epoch.epoch == since and restored:
            break
        idle = epoch.rows == 0 and not any(instance.rows for instance in load.instances)
        found.append((load, max(epoch.interval_seconds, _LEAST_SECONDS), idle))
    if not found:
        return None
    loads, seconds, idle_ones = zip(*found, strict=True)
    return _Spell(loads=loads, seconds=seconds, idle=idle_ones)


def _subquery(
    query: CompiledQuery,
    number: int,
    owners: BucketMap,
    spell: _Spell,
    rules: Elastic,
    moving: tuple[int, ...],
) -> SubqueryView:
    head, movable = query.subqueries[number].head, query.movable(number)
    scattered = head is None and query.scattered
    newest, buckets = spell.loads[0], len(owners.owners)
    count = len(newest.instances) if scattered else owners.instances
    utilisations = _utilisations(spell, rules, count)
    return SubqueryView(
        id=number,
        name=query.subquery_name(number),
        owners=owners,
        instances=_instances(newest, utilisations),
        bucket_loads=_bucket_loads(spell, owners, utilisations) if movable else (),
        bucket_bytes=newest.bucket_bytes if len(newest.bucket_bytes) == buckets else (),
        bucket_held_bytes=(
            newest.bucket_held_bytes if len(newest.bucket_held_bytes) == buckets else ()
        ),
        stateful=head is not None and query.nodes[head].stateful,
        movable=movable,
        ways=() if head is None else query.nodes[head].ways,
        fixed=query.fixed(number) or scattered,
        moving=tuple(sorted(moving)),
        epochs=len(spell.loads),
    )


def _utilisations(spell: _Spell, rules: Elastic, count: int) -> Floats:
    """Return the utilisation of each instance: the median of the epochs.

    One pause of a process then does not make its instance look busy for as long as a mean would
    remember it.
    """
    shares = np.zeros((len(spell.loads), count))
    for row, (load, seconds, idle) in enumerate(
        zip(spell.loads, spell.seconds, spell.idle, strict=True)
    ):
        for one in load.instances:
            if one.instance < count and not idle:
                shares[row, one.instance] += one.busy_seconds / (seconds * rules.instance_cores)
    middle: Floats = np.median(shares, axis=0).round(6)
    return middle


def _instances(newest: SubqueryLoad, utilisations: Floats) -> tuple[InstanceView, ...]:
    known = {one.instance: one for one in newest.instances}
    views = []
    for number, utilisation in enumerate(utilisations.tolist()):
        now = known.get(number)
        views.append(
            InstanceView(
                instance=number,
                host=now.host if now else "",
                utilisation=utilisation,
                queue_seconds=now.queue_seconds if now else 0.0,
                state_bytes=now.state_bytes if now else 0,
                memory_bytes=now.memory_bytes if now else 0,
                held_bytes=now.held_bytes if now else 0,
            )
        )
    return tuple(views)


def _bucket_loads(spell: _Spell, owners: BucketMap, utilisations: Floats) -> tuple[float, ...]:
    """Return the part of each bucket in the utilisation of its owner, by the time it took."""
    buckets = len(owners.owners)
    seconds = np.zeros(buckets)
    for load, idle in zip(spell.loads, spell.idle, strict=True):
        if len(load.bucket_seconds) == buckets and not idle:
            seconds += np.asarray(load.bucket_seconds)
    if not seconds.any():
        return ()
    owner = np.asarray(owners.owners)
    whole = np.bincount(owner, weights=seconds, minlength=len(utilisations))
    factor = np.divide(utilisations, whole, out=np.zeros_like(whole), where=whole > 0)
    return tuple((seconds * factor[owner]).round(9).tolist())


def _busy_share(query: CompiledQuery, views: Mapping[int, SubqueryView], rules: Elastic) -> float:
    """Return how long the stages of an epoch took together, as a share of it."""
    stages: dict[int, float] = {}
    for unit in query.units:
        utilisations = [views[n].utilisations for n in unit.subqueries if n in views]
        busy = sum(mean(found) for found in utilisations)
        stages[unit.stage] = max(stages.get(unit.stage, 0.0), busy)
    return round(sum(stages.values()) * rules.instance_cores, 6)
