"""What a policy answers, and what every policy offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.control.view import View
from penstock.plan.changes import Change

Memory = Mapping[str, Any]
"""What a policy wants to remember until it is asked again: JSON values under names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a policy proposes.

    Attributes:
        plan: The changes; none for leaving everything as it is.
        memory: What to show to the policy next time.
        reasons: Why, one sentence each; also why nothing is to be done.
    """

    plan: tuple[Change, ...] = ()
    memory: Memory = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


class Policy(Protocol):
    """Maps a view to a plan: no clock, randomness, configuration, logging or Spark inside."""

    @property
    def name(self) -> str:
        """The name under which the policy is known."""
        ...

    def decide(self, view: View, memory: Memory) -> Decision:
        """Return what to change after an epoch, and why."""
        ...
