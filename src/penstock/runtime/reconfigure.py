"""The record of a change that took effect: numbers, and one plain sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.plan.changes import Reconfiguration
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.runtime.layout import Applied


def record(
    applied: Applied,
    names: Mapping[int, str],
    plan: EpochPlan,
    reports: Sequence[TaskReport],
    *,
    number: int,
    at: float,
    seconds: float,
) -> Reconfiguration:
    """Return the record of a change that took effect with an epoch.

    Args:
        applied: The change and the map before it.
        names: The names of the subqueries.
        plan: The plan of the epoch.
        reports: What the epoch's tasks reported.
        number: The change's number among those of the epoch.
        at: When the epoch was committed.
        seconds: How long the epoch took.
    """
    change, before = applied.change, applied.before
    moved = sum(high - low for low, high in before.moved(change.owners).ranges)
    loads = [r.loads[change.subquery] for r in reports if change.subquery in r.loads]
    restored = sum(load.restored_bytes for load in loads)
    stored = any(load.restored_bytes for load in loads)
    name = names[change.subquery]
    return Reconfiguration(
        id=f"{plan.epoch}.{number}",
        epoch=plan.epoch,
        at=at,
        subquery=change.subquery,
        name=name,
        kind=change.kind,
        cause=change.cause,
        protocol="state" if stored else "",
        before=before.instances,
        after=change.owners.instances,
        buckets=moved,
        bytes=restored,
        seconds=seconds,
        outcome="done",
        sentence=_sentence(applied, name, plan.epoch, moved, restored, seconds),
    )


def _sentence(
    applied: Applied, name: str, epoch: int, moved: int, restored: int, seconds: float
) -> str:
    change, before = applied.change, applied.before.instances
    after = change.owners.instances
    who = {"user": "the user", "resources": "the resource manager"}.get(
        change.cause, f"the policy {change.cause}"
    )
    what = (
        f"gave {name} {after} instance{'s' * (after != 1)} instead of {before}"
        if after != before
        else f"moved buckets of {name} between its {after} instances"
    )
    why = f" because {change.reason}" if change.reason else ""
    return (
        f"{who} {what} from epoch {epoch} on{why}: {moved} of {len(change.owners.owners)} buckets "
        f"have a new owner, {restored / 1e6:.1f} MB of state were read, the epoch took "
        f"{seconds * 1000:.0f} ms"
    )
