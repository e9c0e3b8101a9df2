"""The guard: policies propose, it disposes, and says why not.

Laws: whatever a policy proposes, what is accepted keeps the user's bounds, moves no bucket that is
on its way, needs no more memory than an instance has, and leaves a subquery alone for the cool-down
after a start or a change. It is a function of the view, the decision, the rules and its memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from penstock.control.bounds import most_instances, needed_for_memory
from penstock.control.decision import Decision, Memory
from penstock.control.elastic import Elastic
from penstock.control.placing import deviation, expected
from penstock.control.view import SubqueryView, View
from penstock.plan.changes import Change
from penstock.plan.grid import bytes_held

MOVE_BYTES_PER_SECOND = 200e6
"""How fast new owners read and check state: an assumption, not a measurement."""
MOVE_SECONDS = 0.02
"""What a move costs at least: new owners, caches that miss, files that are opened."""
LASTING_EPOCHS = 10
"""A balance is taken to last so many epochs, or the cool-down if that is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the guard let through.

    Attributes:
        accepted: The changes; some may move fewer buckets than was proposed.
        refused: What it stopped and why, one sentence each.
        memory: What to show to the guard next time.
    """

    accepted: tuple[Change, ...] = ()
    refused: tuple[str, ...] = ()
    memory: Memory = field(default_factory=dict)


def guard(view: View, decision: Decision, rules: Elastic, memory: Memory) -> Verdict:
    """Return which of the proposed changes may happen.

    Args:
        view: What the policy saw.
        decision: What it proposed.
        rules: The user's rules.
        memory: What the guard remembered: when each subquery was started or changed, under
            ``changed``.
    """
    changed = dict(memory.get("changed", {}))
    known = {subquery.id: subquery for subquery in view.subqueries}
    accepted: list[Change] = []
    refused: list[str] = []
    for change in decision.plan:
        subquery = known.get(change.subquery)
        if subquery is None:
            refused.append(f"subquery {change.subquery}: nothing is known about its load")
            continue
        fitting, kept = without_moving(subquery, change)
        refused += kept
        why = "" if fitting is None else _objection(view, subquery, fitting, rules, changed)
        if why:
            refused.append(f"{subquery.name}: {why}")
        elif fitting is not None:
            accepted.append(fitting)
            changed[subquery.name] = view.at
    return Verdict(accepted=tuple(accepted), refused=tuple(refused), memory={"changed": changed})


def without_moving(subquery: SubqueryView, change: Change) -> tuple[Change | None, tuple[str, ...]]:
    """Return a change without the buckets that are on their way; None if nothing can be left."""
    before, after = subquery.owners, change.owners
    count, given = len(before.owners), len(after.owners)
    if count != given:
        return None, (f"{subquery.name}: it has {count} buckets, but the map has {given}",)
    busy = [b for b in subquery.moving if before.owners[b] != after.owners[b]]
    if not busy:
        return change, ()
    told = f"{subquery.name}: {len(busy)} buckets are still on their way"
    stay = {b: before.owners[b] for b in busy}
    if max(stay.values()) >= after.instances:
        return None, (f"{told}, some at an instance that would go; it has to wait",)
    after = after.with_owners(stay)
    if after == before:
        return None, (f"{told}, and no others would move",)
    return replace(change, owners=after), (f"{told} and stay where they are",)


def _objection(
    view: View, subquery: SubqueryView, change: Change, rules: Elastic, changed: Memory
) -> str:
    """Return the first reason against a change; empty if there is none."""
    if view.recovering:
        return "the query is recovering, so its loads are not yet what they will be"
    for check in (_bounds, _memory, _benefit):
        why = check(view, subquery, change, rules)
        if why:
            return why
    ago = view.at - changed.get(subquery.name, -np.inf)
    if 0 <= ago < rules.cooldown_seconds:
        return (
            f"it was started or changed {ago:.1f} s ago and is left alone for "
            f"{rules.cooldown_seconds:.1f} s"
        )
    if rules.dry_run:
        return f"a dry run, so it was not done: {change.reason or change.kind}"
    return ""


def _bounds(view: View, subquery: SubqueryView, change: Change, rules: Elastic) -> str:
    before, after = subquery.owners.instances, change.owners.instances
    most = most_instances(view, subquery, rules)
    if subquery.fixed and after != before:
        return f"it always has {before} instances, so it cannot have {after}"
    if after > most and after > before:
        return (
            f"{after} instances are more than {most}: at most {rules.max} are asked for, "
            f"and {view.most_slots} slots can be had for {rules.instance_cores:g} cores each"
        )
    if after > rules.max:
        return f"{after} instances are more than the {rules.max} that are asked for"
    if after < min(rules.min, most):
        return f"{after} instances are fewer than the {rules.min} that are asked for"
    return ""


def _memory(view: View, subquery: SubqueryView, change: Change, rules: Elastic) -> str:
    """Return why the state would not fit; a change that leaves no instance worse off is fine."""
    if not rules.memory_bytes:
        return ""
    needed = min(needed_for_memory(subquery, rules), most_instances(view, subquery, rules))
    after = change.owners.instances
    if after < needed and after < subquery.owners.instances:
        return f"its state needs {needed} instances of {rules.memory_bytes} bytes, not {after}"
    bytes_of = subquery.bucket_held_bytes
    if not bytes_of:
        return ""
    most = max(bytes_held(change.owners, bytes_of, subquery.ways))
    least = max(bytes_held(subquery.owners, bytes_of, subquery.ways))
    if most > max(rules.memory_bytes, least):
        return (
            f"an instance would have {most} bytes of state, "
            f"more than the {rules.memory_bytes} it can hold"
        )
    return ""


def _benefit(view: View, subquery: SubqueryView, change: Change, rules: Elastic) -> str:
    """Return why moving buckets costs more than it gains; another size is not weighed."""
    if change.owners.instances != subquery.owners.instances:
        return ""
    after, now = expected(subquery, change.owners), subquery.utilisations
    gained = max(max(now) - max(after), deviation(now) - deviation(after))
    lasting = max(rules.cooldown_seconds, LASTING_EPOCHS * view.interval_seconds)
    gain = gained * rules.instance_cores * lasting
    cost = move_seconds(subquery, change)
    if gain > cost:
        return ""
    return (
        f"moving buckets would cost {cost:.3f} s and gain {max(gain, 0.0):.3f} s "
        f"in the next {lasting:.0f} s"
    )


def move_seconds(subquery: SubqueryView, change: Change) -> float:
    """Return about how long new owners take to get the state of the buckets of a change."""
    bytes_of = subquery.bucket_bytes
    moved = sum(bytes_of[b] for b in subquery.owners.moved(change.owners)) if bytes_of else 0
    return MOVE_SECONDS + moved / MOVE_BYTES_PER_SECOND
