"""A query at a glance: what its newest events say, as one value.

`penstock top` shows it; scripts read it as JSON. Law: it is made from events alone, so it can be
made in another process, and after the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.control.records import DecisionRecord
from penstock.files.place import Place
from penstock.observe.events import ExecutorEvent
from penstock.observe.history import describe_all
from penstock.observe.log import read_events
from penstock.plan.changes import Reconfiguration, newest
from penstock.plan.statistics import EpochStatistics, SubqueryLoad

EPOCHS = 5
"""Shares and rates are those of so many epochs, as long as the instances are the same."""
_HOTTEST = 3
_CHANGES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceNow:
    """An instance: shares are of one core, unless rules say that it may use more or less."""

    instance: int
    host: str
    busy: float
    cpu: float
    rows_per_second: float
    queue_seconds: float
    memory_bytes: int
    state_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HotBucket:
    """A bucket and its share of the load of its subquery."""

    bucket: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HotKeyNow:
    """A key and its share of the rows that came to its subquery."""

    key: str
    bucket: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SubqueryNow:
    """A subquery with its instances, its hottest buckets and keys."""

    subquery: int
    name: str
    instances: tuple[InstanceNow, ...]
    hot_buckets: tuple[HotBucket, ...] = ()
    hot_keys: tuple[HotKeyNow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionNow:
    """The last decision, in words."""

    epoch: int
    at: float
    policy: str
    dry_run: bool
    proposed: tuple[str, ...]
    accepted: tuple[str, ...]
    refused: tuple[str, ...]
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a query does now; times are those of its newest epoch."""

    epoch: int
    at: float
    epoch_seconds: float
    interval_seconds: float
    latency_seconds: float
    backlog: int | None
    rows_per_second: float
    written_per_second: float
    subqueries: tuple[SubqueryNow, ...]
    reconfigurations: tuple[Reconfiguration, ...] = ()
    decision: DecisionNow | None = None
    executors: tuple[ExecutorEvent, ...] = ()
    files: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def read_snapshot(root: Place) -> Snapshot | None:
    """Return how the query of a checkpoint is doing; None if it has written nothing yet.

    Args:
        root: Penstock's folder in the checkpoint.

    Raises:
        CheckpointError: A file of events is damaged.
    """
    epochs = [
        e for e in read_events(root, "statistics", last=EPOCHS) if isinstance(e, EpochStatistics)
    ]
    if not epochs:
        return None
    changes = read_events(root, "reconfiguration", last=2 * _CHANGES)
    decisions = read_events(root, "decision", last=1)
    executors = read_events(root, "executor", last=_CHANGES)
    return snapshot(
        epochs,
        [e for e in changes if isinstance(e, Reconfiguration)],
        [e for e in decisions if isinstance(e, DecisionRecord)],
        [e for e in executors if isinstance(e, ExecutorEvent)],
    )


def snapshot(
    epochs: Sequence[EpochStatistics],
    changes: Sequence[Reconfiguration] = (),
    decisions: Sequence[DecisionRecord] = (),
    executors: Sequence[ExecutorEvent] = (),
) -> Snapshot:
    """Return a query at a glance.

    Args:
        epochs: The statistics of its newest epochs, oldest first; at least one.
        changes: Its newest changes, oldest first.
        decisions: Its newest decisions, oldest first.
        executors: Which executors came and went, oldest first.
    """
    now = epochs[-1]
    seconds = sum(epoch.interval_seconds for epoch in epochs) or 1.0
    cores = decisions[-1].rules.instance_cores if decisions else 1.0
    return Snapshot(
        epoch=now.epoch,
        at=now.at,
        epoch_seconds=now.seconds,
        interval_seconds=now.interval_seconds,
        latency_seconds=now.latency_seconds,
        backlog=now.backlog,
        rows_per_second=sum(epoch.rows for epoch in epochs) / seconds,
        written_per_second=sum(epoch.written for epoch in epochs) / seconds,
        subqueries=tuple(_subquery(load, epochs, cores) for load in now.subqueries),
        reconfigurations=tuple(newest(changes))[-_CHANGES:],
        decision=_decision(decisions[-1]) if decisions else None,
        executors=tuple(executors)[-_CHANGES:],
        files=now.file_totals,
    )


def _subquery(load: SubqueryLoad, epochs: Sequence[EpochStatistics], cores: float) -> SubqueryNow:
    past = _find_comparable(load, epochs)
    seconds = sum(interval for _, interval in past) or 1.0
    instances = []
    for place, now in enumerate(load.instances):
        mine = [found.instances[place] for found, _ in past]
        instances.append(
            InstanceNow(
                instance=now.instance,
                host=now.host,
                busy=sum(one.busy_seconds for one in mine) / (seconds * cores),
                cpu=sum(one.cpu_seconds for one in mine) / (seconds * cores),
                rows_per_second=sum(one.rows for one in mine) / seconds,
                queue_seconds=now.queue_seconds,
                memory_bytes=now.memory_bytes,
                state_bytes=now.state_bytes,
            )
        )
    return SubqueryNow(
        subquery=load.subquery,
        name=load.name,
        instances=tuple(instances),
        hot_buckets=_hot_buckets(load),
        hot_keys=_hot_keys(load),
    )


def _find_comparable(
    load: SubqueryLoad, epochs: Sequence[EpochStatistics]
) -> list[tuple[SubqueryLoad, float]]:
    """Return the newest epochs in which a subquery had the instances that it has now."""
    numbers = [instance.instance for instance in load.instances]
    found: list[tuple[SubqueryLoad, float]] = []
    for epoch in reversed(epochs):
        same = [one for one in epoch.subqueries if one.subquery == load.subquery]
        if not same or [instance.instance for instance in same[0].instances] != numbers:
            break
        found.append((same[0], epoch.interval_seconds))
    return found


def _hot_buckets(load: SubqueryLoad) -> tuple[HotBucket, ...]:
    weights: Sequence[float] = load.bucket_seconds or load.bucket_rows
    whole = sum(weights)
    order = sorted(range(len(weights)), key=lambda b: -weights[b])[:_HOTTEST]
    return tuple(HotBucket(bucket=b, share=weights[b] / whole) for b in order if weights[b])


def _hot_keys(load: SubqueryLoad) -> tuple[HotKeyNow, ...]:
    whole = sum(instance.rows for instance in load.instances) or 1
    return tuple(
        HotKeyNow(key=hot.key, bucket=hot.bucket, share=min(1.0, hot.rows / whole))
        for hot in load.hot_keys[:_HOTTEST]
    )


def _decision(record: DecisionRecord) -> DecisionNow:
    return DecisionNow(
        epoch=record.epoch,
        at=record.at,
        policy=record.rules.policy,
        dry_run=record.rules.dry_run,
        proposed=tuple(describe_all(record, record.proposed.plan)),
        accepted=tuple(describe_all(record, record.accepted)),
        refused=record.refused,
        reasons=record.proposed.reasons,
    )
