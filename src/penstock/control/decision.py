"""What a policy answers, what every policy offers, and what it lets the user choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.control.bounds import Bounds
from penstock.control.view import View
from penstock.plan.changes import Change

Memory = Mapping[str, Any]
"""What a policy wants to remember until it is asked again: JSON values under names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a policy proposes.

    Attributes:
        plan: The changes, the most important first; none for leaving everything as it is.
        memory: What to show to the policy next time.
        reasons: Why, one sentence each; also why nothing is to be done.
    """

    plan: tuple[Change, ...] = ()
    memory: Memory = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What a user can choose of one policy, beside the bounds of all: each field is a rule.

    A policy with parameters derives a class from this one. Its fields are numbers, words and
    truth values with defaults, and it raises a `QueryError` on construction if they are wrong.
    """


class Policy(Protocol):
    """Maps a view to a plan: no clock, randomness, configuration, logging or Spark inside."""

    @property
    def name(self) -> str:
        """The name under which the policy is known."""
        ...

    def decide(self, view: View, memory: Memory) -> Decision:
        """Return what to change after an epoch, and why."""
        ...


class PolicyKind(Protocol):
    """A policy before it has its rules; the classes of policies are such kinds."""

    @property
    def name(self) -> str:
        """The name under which users ask for it."""
        ...

    @property
    def parameters(self) -> type[Parameters]:
        """What users can choose of it."""
        ...

    def __call__(self, bounds: Bounds, parameters: Any) -> Policy:
        """Return the policy with a user's bounds, and parameters of its own class."""
        ...
