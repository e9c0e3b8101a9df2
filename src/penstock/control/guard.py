"""The guard: policies propose, it disposes, and says why not.

It judges a plan as a whole: each change by itself, and then beside those that it has let through.
It may accept a part of a plan. Of a change it takes out the buckets that are on their way; the rest
it accepts or refuses as a whole.

Laws: whatever a policy proposes, what is accepted keeps the user's bounds, asks for nothing that
the runtime cannot carry out, moves no bucket that is on its way, needs no more memory than an
instance or a host has, asks for no more tasks than can run at once, and leaves the buckets of a
subquery alone for the cool-down after a start or a change. It is a function of the view, the
decision, the bounds and its memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from penstock.control.beside import object_to_plan
from penstock.control.bounds import Bounds, count_needed_for_memory, most_instances
from penstock.control.decision import Decision, Memory
from penstock.control.placing import deviation, expect_utilisations
from penstock.control.view import SubqueryView, View
from penstock.control.words import count
from penstock.plan.changes import Change
from penstock.plan.grid import bytes_held

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


def guard(view: View, decision: Decision, bounds: Bounds, memory: Memory) -> Verdict:
    """Return which of the proposed changes may happen.

    Changes that give instances back are judged first, so that others can have their slots.

    Args:
        view: What the policy saw.
        decision: What it proposed.
        bounds: The user's bounds.
        memory: What the guard remembered: when each subquery was started or changed, under
            ``changed``.
    """
    changed = dict(memory.get("changed", {}))
    known = {subquery.id: subquery for subquery in view.subqueries}
    plan = decision.plan
    accepted: dict[int, Change] = {}
    places: list[int] = []
    refused: dict[int, tuple[str, ...]] = {}
    for place in sorted(range(len(plan)), key=lambda i: _growth(plan[i], known)):
        change = plan[place]
        if any(other.subquery == change.subquery for other in plan[:place]):
            refused[place] = (f"{_name(change, known)}: a plan changes a subquery once",)
            continue
        subquery = known.get(change.subquery)
        if subquery is None:
            refused[place] = (f"{_name(change, known)}: nothing is known about its load",)
            continue
        fitting, refused[place] = without_moving(subquery, change)
        if fitting is None:
            continue
        why = _object_to_change(view, subquery, fitting, bounds, changed)
        why = why or object_to_plan(view, subquery, fitting, bounds, accepted)
        if not why and bounds.dry_run:
            why = f"a dry run, so it was not done: {change.reason or change.kind}"
        if why:
            refused[place] = (*refused[place], f"{subquery.name}: {why}")
            continue
        accepted[change.subquery] = fitting
        places.append(place)
        if fitting.owners != subquery.owners:
            changed[subquery.name] = view.at
    return Verdict(
        accepted=tuple(accepted[plan[place].subquery] for place in sorted(places)),
        refused=tuple(text for place in sorted(refused) for text in refused[place]),
        memory={"changed": changed},
    )


def _growth(change: Change, known: dict[int, SubqueryView]) -> int:
    subquery = known.get(change.subquery)
    return change.instances - subquery.owners.instances if subquery else 0


def _name(change: Change, known: dict[int, SubqueryView]) -> str:
    subquery = known.get(change.subquery)
    return subquery.name if subquery else f"subquery {change.subquery}"


def without_moving(subquery: SubqueryView, change: Change) -> tuple[Change | None, tuple[str, ...]]:
    """Return a change without the buckets that are on their way; None if nothing can be left."""
    before, after = subquery.owners, change.owners
    has, given = len(before.owners), len(after.owners)
    if has != given:
        return None, (f"{subquery.name}: it has {has} buckets, but the map has {given}",)
    busy = [b for b in subquery.moving if before.owners[b] != after.owners[b]]
    if not busy:
        return change, ()
    told = f"{subquery.name}: {count(len(busy), 'bucket')} must finish an earlier move first"
    stay = {b: before.owners[b] for b in busy}
    if max(stay.values()) >= after.instances:
        return None, (f"{told}, some at an instance that would go; it has to wait",)
    after = after.with_owners(stay)
    if after == before:
        return None, (f"{told}, and no others would move",)
    return replace(change, owners=after), (f"{told}; the others move",)


def _object_to_change(
    view: View, subquery: SubqueryView, change: Change, bounds: Bounds, changed: Memory
) -> str:
    """Return the first reason against a change by itself; empty if there is none."""
    if view.recovering:
        return "the query is recovering, so its loads are not yet what they will be"
    for check in (_abilities, _bounds, _memory, _benefit):
        why = check(view, subquery, change, bounds)
        if why:
            return why
    ago = view.at - changed.get(subquery.name, -np.inf)
    if change.owners != subquery.owners and 0 <= ago < bounds.cooldown_seconds:
        return (
            f"it was started or changed {ago:.1f} s ago and is left alone for "
            f"{bounds.cooldown_seconds:.1f} s"
        )
    return ""


def _abilities(view: View, subquery: SubqueryView, change: Change, bounds: Bounds) -> str:
    lacking = view.abilities.find_lacking(change)
    if not lacking:
        return ""
    return f"{' and '.join(lacking)} are not supported by this runtime"


def _bounds(view: View, subquery: SubqueryView, change: Change, bounds: Bounds) -> str:
    before, after = subquery.owners.instances, change.instances
    most = most_instances(view, subquery, bounds)
    if subquery.fixed and after != before:
        return f"it always has {count(before, 'instance')}, so it cannot have {after}"
    if after > most and after > before:
        return (
            f"{after} instances are more than {most}: at most {bounds.max} are asked for, "
            f"and {count(view.most_slots, 'slot')} can be had for "
            f"{count(bounds.instance_cores, 'core')} each"
        )
    if after > bounds.max:
        return f"{after} instances are more than the {bounds.max} that are asked for"
    if after < min(bounds.min, most):
        return f"{count(after, 'instance')} would be fewer than the {bounds.min} that are asked for"
    return ""


def _memory(view: View, subquery: SubqueryView, change: Change, bounds: Bounds) -> str:
    """Return why the state would not fit; a change that leaves no instance worse off is fine."""
    if not bounds.memory_bytes:
        return ""
    needed = min(count_needed_for_memory(subquery, bounds), most_instances(view, subquery, bounds))
    after = change.instances
    if after < needed and after < subquery.owners.instances:
        return f"its state needs {needed} instances of {bounds.memory_bytes} bytes, not {after}"
    bytes_of = subquery.bucket_held_bytes
    if not bytes_of:
        return ""
    most = max(bytes_held(change.owners, bytes_of, subquery.ways))
    least = max(bytes_held(subquery.owners, bytes_of, subquery.ways))
    if most > max(bounds.memory_bytes, least):
        return (
            f"an instance would have {most} bytes of state, "
            f"more than the {bounds.memory_bytes} it can hold"
        )
    return ""


def _benefit(view: View, subquery: SubqueryView, change: Change, bounds: Bounds) -> str:
    """Return why moving buckets costs more than it gains; another size is not weighed."""
    if change.instances != subquery.owners.instances:
        return ""
    if change.owners == subquery.owners and change.parts:
        return ""
    after, now = expect_utilisations(subquery, change.owners), subquery.utilisations
    gained = max(max(now) - max(after), deviation(now) - deviation(after))
    lasting = max(bounds.cooldown_seconds, LASTING_EPOCHS * view.interval_seconds)
    gain = gained * bounds.instance_cores * lasting
    cost = move_seconds(view, subquery, change)
    if gain > cost:
        return ""
    return (
        f"moving buckets would cost {cost:.3f} s and gain {max(gain, 0.0):.3f} s "
        f"in the next {lasting:.0f} s"
    )


def move_seconds(view: View, subquery: SubqueryView, change: Change) -> float:
    """Return how much work new owners have with the state of the buckets of a change."""
    bytes_of = subquery.bucket_bytes
    moved = sum(bytes_of[b] for b in subquery.owners.find_moved(change.owners)) if bytes_of else 0
    return MOVE_SECONDS + moved / view.read_bytes_per_second
