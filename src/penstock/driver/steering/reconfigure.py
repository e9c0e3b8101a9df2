"""The records of changes that took effect or came to their end: numbers, and one plain sentence.

Law: a change has one id; as long as old owners finish windows its record says ``moving``, and the
record that says ``done`` follows when the last of them has closed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.driver.epoch import find_ended_tails
from penstock.driver.steering.switch import Applied
from penstock.plan.changes import USER, Reconfiguration, UsedProtocol
from penstock.plan.epoch import EpochPlan, TaskReport


def records(
    changes: Sequence[Applied],
    names: Mapping[int, str],
    plan: EpochPlan,
    reports: Sequence[TaskReport],
    *,
    at: float,
    seconds: float,
) -> tuple[Reconfiguration, ...]:
    """Return the records of an epoch: of changes that end with it, then of those that begin.

    Args:
        changes: The changes that took effect with the epoch.
        names: The names of the subqueries.
        plan: The plan of the epoch.
        reports: What the epoch's tasks reported.
        at: When the epoch was committed.
        seconds: How long the epoch took.
    """
    ended = find_ended_tails(plan, reports)
    done = [_end_move(move, plan.epoch, at) for tail in ended for move in tail.moves]
    still = {tail.operator for tail in plan.tails if tail.epoch == plan.epoch and tail not in ended}
    begun = [
        _begin_move(applied, names, plan, reports, number=i, at=at, seconds=seconds, still=still)
        for i, applied in enumerate(changes)
    ]
    return (*done, *begun)


def _end_move(move: Reconfiguration, epoch: int, at: float) -> Reconfiguration:
    seconds = move.seconds + max(0.0, at - move.at)
    text = (
        f"{move.sentence}; the old owners closed their last window in epoch {epoch}, "
        f"{seconds:.1f} s after the change was asked for"
    )
    return replace(move, at=at, seconds=seconds, outcome="done", sentence=text)


def _begin_move(
    applied: Applied,
    names: Mapping[int, str],
    plan: EpochPlan,
    reports: Sequence[TaskReport],
    *,
    number: int,
    at: float,
    seconds: float,
    still: set[str],
) -> Reconfiguration:
    change, before = applied.change, applied.before
    read, protocol = applied.bytes, applied.protocol
    if read is None:  # no bucket of a grid has state of its own: what all of them read counts
        loads = [r.loads[change.subquery] for r in reports if change.subquery in r.loads]
        read = sum(load.restored_bytes for load in loads)
        protocol = "state" if read else ""
    name = names[change.subquery]
    moving = protocol == "window" and name in still
    took = max(seconds, at - applied.asked_at) if protocol == "window" else seconds
    moved = sum(high - low for low, high in before.find_moved(change.owners).ranges)
    return Reconfiguration(
        id=f"{plan.epoch}.{number}",
        epoch=plan.epoch,
        at=at,
        subquery=change.subquery,
        name=name,
        kind=change.kind,
        cause=change.cause,
        protocol=protocol,
        before=before.instances,
        after=change.owners.instances,
        buckets=moved,
        bytes=read,
        seconds=took,
        outcome="moving" if moving else "done",
        request=change.request,
        sentence=_sentence(applied, name, plan.epoch, moved, protocol, read, seconds),
    )


def _sentence(
    applied: Applied,
    name: str,
    epoch: int,
    moved: int,
    protocol: UsedProtocol,
    read: int,
    seconds: float,
) -> str:
    change, before = applied.change, applied.before.instances
    after = change.owners.instances
    who = "the user" if change.cause == USER else f"the policy {change.cause}"
    what = (
        f"gave {name} {after} instance{'s' * (after != 1)} instead of {before}"
        if after != before
        else f"moved buckets of {name} between its {after} instances"
    )
    why = f" because {change.reason}" if change.reason else ""
    return (
        f"{who} {what} from epoch {epoch} on{why}: {moved} of {len(change.owners.owners)} buckets "
        f"have a new owner, {_how(applied, protocol, read)}, the epoch took "
        f"{seconds * 1000:.0f} ms"
    )


def _how(applied: Applied, protocol: UsedProtocol, read: int) -> str:
    """Return what became of the state, and why."""
    if not protocol:
        return "there was no state to read"
    since = f" since {applied.why}" if applied.why else ""
    text = f"{read / 1e6:.1f} MB of state were read"
    if protocol == "state":
        return f"{text}{since}"
    rest = f" and {text} for the rest" if read else ""
    return f"the old owners finish their windows{since}{rest}"
