"""Take a recorded decision again.

Law: a record has all that a decision was made from, so the same policy and guard give the same
plan; if they do not, the code has changed since, and `differences` says in what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.control.decision import Decision
from penstock.control.elastic import make_policy
from penstock.control.guard import Verdict, guard
from penstock.control.records import DecisionRecord
from penstock.plan.changes import PARTS, Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What the policy and the guard say today about a recorded view."""

    decision: Decision
    verdict: Verdict


def replay(record: DecisionRecord) -> Replayed:
    """Return what is decided today from what was seen then."""
    decision = make_policy(record.rules).decide(record.view, record.memory)
    verdict = guard(record.view, decision, record.rules, record.guard_memory)
    return Replayed(decision=decision, verdict=verdict)


def differences(record: DecisionRecord) -> tuple[str, ...]:
    """Return in what a decision would be another today, one sentence each; none if it is the same.

    Reasons and memories are compared too, since later decisions follow from them.
    """
    again = replay(record)
    found = [
        *_changes("proposed", record.proposed.plan, again.decision.plan),
        *_changes("accepted", record.accepted, again.verdict.accepted),
        *_texts("reason", record.proposed.reasons, again.decision.reasons),
        *_texts("refusal", record.refused, again.verdict.refused),
    ]
    if record.proposed.memory != again.decision.memory:
        found.append("the policy would remember something else")
    return tuple(found)


def _changes(what: str, then: Sequence[Change], now: Sequence[Change]) -> list[str]:
    before, after = ({c.subquery: c for c in changes} for changes in (then, now))
    found = []
    for number in sorted(before.keys() | after.keys()):
        old, new = before.get(number), after.get(number)
        if old is None or new is None:
            had = "not " if old is None else ""
            has = "" if old is None else "not "
            found.append(f"subquery {number}: a change was {had}{what}, and today it is {has}so")
        elif old != new:
            found.append(f"subquery {number}: {_difference(what, old, new)}")
    return found


def _difference(what: str, old: Change, new: Change) -> str:
    if old.owners.instances != new.owners.instances:
        return f"{old.owners.instances} instances were {what}, today it is {new.owners.instances}"
    moved = sum(1 for _ in old.owners.find_moved(new.owners))
    if moved:
        return f"{moved} buckets would have another owner than was {what}"
    for part in PARTS:
        if getattr(old, part) != getattr(new, part):
            return f"the {part} would be others than were {what}"
    return f"the change that was {what} would have another kind, cause, reason or protocol"


def _texts(what: str, then: Sequence[str], now: Sequence[str]) -> list[str]:
    gone = [f"the {what} {text!r} is not given today" for text in then if text not in now]
    return gone + [f"the {what} {text!r} is new" for text in now if text not in then]
