"""From the statistics of the last epochs to the view that a policy decides by.

Laws: loads are those of the maps in force: an epoch with another map counts for nothing, nor does
the first one with this map if it had to read state. What is not known is left out, not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.control.bounds import Bounds
from penstock.control.placing import mean
from penstock.control.read_speed import READ_BYTES_PER_SECOND
from penstock.control.view import InstanceView, SubqueryView, View
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import Abilities
from penstock.plan.compiled import CompiledQuery
from penstock.plan.statistics import EpochStatistics, InstanceLoad, SubqueryLoad

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
_LEAST_SECONDS = 1e-6
"""No epoch is shorter; a clock that stands still does not make an instance infinitely busy."""


_NOTHING = InstanceLoad(
    instance=0,
    host="",
    rows=0,
    busy_seconds=0.0,
    cpu_seconds=0.0,
    queue_seconds=0.0,
    memory_bytes=0,
    state_bytes=0,
    restored_bytes=0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What is known of that which runs the query; the fields are those of `View`."""

    slots: int = 1
    most_slots: int = 1
    hosts: Mapping[str, int] = field(default_factory=dict)
    read_bytes_per_second: float = READ_BYTES_PER_SECOND
    abilities: Abilities = field(default_factory=Abilities)


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
    bounds: Bounds,
    since: Mapping[int, int] | None = None,
    moving: Mapping[int, tuple[int, ...]] | None = None,
    recovering: bool = False,
    runtime: Runtime | None = None,
) -> View:
    """Return what a policy sees after the last of some epochs.

    Args:
        query: The compiled query as it runs now.
        maps: Who owns the buckets of each subquery.
        epochs: Statistics, oldest first; at least one.
        bounds: How many epochs count, and what an instance may use.
        since: The first epoch in which each subquery had its map; the first of all unless given.
        moving: The buckets of each subquery that are on their way.
        recovering: Whether loads are not yet what they will be.
        runtime: What is known of the machines; one slot unless given.
    """
    last, recent = epochs[-1], list(epochs)[-bounds.smoothing :]
    on, stages = runtime or Runtime(), _stages(query)
    views: dict[int, SubqueryView] = {}
    for number, owners in sorted(maps.items()):
        spell = _spell(number, epochs, (since or {}).get(number, 0), bounds.smoothing)
        if spell is not None:
            seen = _subquery(
                query, number, owners, spell, bounds, tuple((moving or {}).get(number, ()))
            )
            reads = query.subqueries[number].head is None
            views[number] = replace(
                seen, stage=stages[number], backlog=last.backlog if reads else None
            )
    return View(
        epoch=last.epoch,
        at=last.at,
        interval_seconds=round(sum(e.interval_seconds for e in recent) / len(recent), 6),
        subqueries=tuple(views.values()),
        slots=on.slots,
        most_slots=on.most_slots,
        hosts=dict(on.hosts),
        backlog=last.backlog,
        latency_seconds=last.latency_seconds,
        epoch_seconds=last.seconds,
        recovering=recovering,
        busy_share=_busy_share(query, views, bounds),
        read_bytes_per_second=on.read_bytes_per_second,
        abilities=on.abilities,
    )


def _stages(query: CompiledQuery) -> dict[int, int]:
    """Return how many subqueries come before each, one after the other, if none are fused."""
    stages: dict[int, int] = {}
    for subquery in query.subqueries:
        before = [stages[edge.from_subquery] for edge in query.edges_into(subquery.id)]
        stages[subquery.id] = max(before, default=-1) + 1
    return stages


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
    bounds: Bounds,
    moving: tuple[int, ...],
) -> SubqueryView:
    head, movable = query.subqueries[number].head, query.is_movable(number)
    scattered = head is None and query.scattered
    newest, buckets = spell.loads[0], len(owners.owners)
    count = len(newest.instances) if scattered else owners.instances
    utilisations = _utilisations(spell, bounds, count)
    return SubqueryView(
        id=number,
        name=query.subquery_name(number),
        owners=owners,
        instances=_instances(spell, utilisations, bounds.instance_cores),
        bucket_loads=_bucket_loads(spell, owners, utilisations) if movable else (),
        bucket_rows=_mean_of([load.bucket_rows for load in spell.loads], buckets),
        bucket_seconds=_mean_of([load.bucket_seconds for load in spell.loads], buckets),
        bucket_bytes=newest.bucket_bytes if len(newest.bucket_bytes) == buckets else (),
        bucket_held_bytes=(
            newest.bucket_held_bytes if len(newest.bucket_held_bytes) == buckets else ()
        ),
        stateful=head is not None and query.nodes[head].stateful,
        movable=movable,
        ways=() if head is None else query.nodes[head].ways,
        fixed=query.is_fixed(number) or scattered,
        moving=tuple(sorted(moving)),
        epochs=len(spell.loads),
    )


def _utilisations(spell: _Spell, bounds: Bounds, count: int) -> Floats:
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
                shares[row, one.instance] += one.busy_seconds / (seconds * bounds.instance_cores)
    middle: Floats = np.median(shares, axis=0).round(6)
    return middle


def _instances(
    spell: _Spell, utilisations: Floats, instance_cores: float
) -> tuple[InstanceView, ...]:
    return tuple(
        _instance(spell, number, utilisation, instance_cores)
        for number, utilisation in enumerate(utilisations.tolist())
    )


def _instance(
    spell: _Spell, number: int, utilisation: float, instance_cores: float
) -> InstanceView:
    """Return one instance; if it did not report in an epoch, it had nothing to do."""
    newest = [one for one in spell.loads[0].instances if one.instance == number]
    spent = [load for load, idle in zip(spell.loads, spell.idle, strict=True) if not idle]
    told = [one for load in spent for one in load.instances if one.instance == number]
    epochs, seconds = len(spell.loads), sum(spell.seconds)
    rows, busy = sum(one.rows for one in told), sum(one.busy_seconds for one in told)
    waited = sum(one.queue_seconds for one in told)
    now = newest[0] if newest else _NOTHING
    return InstanceView(
        instance=number,
        host=now.host,
        utilisation=utilisation,
        rows=round(rows / epochs, 3),
        busy_seconds=round(busy / epochs, 9),
        arrival_rate=round(rows / seconds, 3),
        service_rate=round(rows / busy, 3) if busy else 0.0,
        latency_seconds=round((busy + waited) / epochs, 9),
        queue_seconds=now.queue_seconds,
        memory_bytes=now.held_bytes,
        cores=instance_cores,
    )


def _mean_of(told: Sequence[Sequence[float]], buckets: int) -> tuple[float, ...]:
    """Return the mean of what epochs told of each bucket; nothing if none told anything."""
    known = [np.asarray(one, dtype=np.float64) for one in told if len(one) == buckets]
    if not known:
        return ()
    return tuple((np.sum(known, axis=0) / len(told)).round(9).tolist())


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


def _busy_share(query: CompiledQuery, views: Mapping[int, SubqueryView], bounds: Bounds) -> float:
    """Return how long the stages of an epoch took together, as a share of it."""
    stages: dict[int, float] = {}
    for unit in query.units:
        utilisations = [views[n].utilisations for n in unit.subqueries if n in views]
        busy = sum(mean(found) for found in utilisations)
        stages[unit.stage] = max(stages.get(unit.stage, 0.0), busy)
    return round(sum(stages.values()) * bounds.instance_cores, 6)
