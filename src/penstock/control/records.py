"""The record of a decision: everything that is needed to take it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.control.decision import Decision
from penstock.control.elastic import Elastic
from penstock.control.view import View
from penstock.plan.changes import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """A decision with what it was made from.

    Attributes:
        epoch: The epoch after which it was made.
        at: When, in seconds since 1970.
        rules: The user's rules; they name the policy.
        view: What the policy saw.
        memory: What the policy remembered before.
        guard_memory: What the guard remembered before.
        proposed: What the policy answered.
        accepted: The changes that the guard let through.
        refused: Why it stopped the others, one sentence each.
    """

    epoch: int
    at: float
    rules: Elastic
    view: View
    memory: Mapping[str, Any] = field(default_factory=dict)
    guard_memory: Mapping[str, Any] = field(default_factory=dict)
    proposed: Decision
    accepted: tuple[Change, ...] = ()
    refused: tuple[str, ...] = ()
