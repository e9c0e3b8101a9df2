"""The registry of policies: one file each, and one line here.

Law: what a policy lets users choose is said once, by its class of parameters; the text form of the
rules, their checks and their records follow from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal

from penstock.base.errors import QueryError
from penstock.control.decision import Parameters, PolicyKind
from penstock.control.policies.fixed import Fixed
from penstock.control.policies.streamcloud import StreamCloud

PolicyName = Literal["streamcloud", "fixed"]
"""The names in `POLICIES`, for type checkers."""
POLICIES: dict[str, PolicyKind] = {
    "streamcloud": StreamCloud,
    "fixed": Fixed,
}


def names_of(policy: str) -> tuple[str, ...]:
    """Return the rules that a policy has of its own.

    >>> names_of("streamcloud")[:3], names_of("fixed")
    (('target', 'lower', 'upper'), ())
    """
    return tuple(field.name for field in fields(POLICIES[policy].parameters))


def make_parameters(policy: str, given: Mapping[str, Any]) -> Parameters:
    """Return the parameters of a policy.

    Args:
        policy: The name of the policy.
        given: Some of them by name; the others have their defaults.

    Raises:
        QueryError: There is no such policy, it has no such parameters, or they are wrong.

    >>> make_parameters("fixed", {"target": 0.6})
    Traceback (most recent call last):
    ...
    penstock.base.errors.QueryError: the query has 1 mistake:
      1. elastic: target is a rule of the policy streamcloud, not of fixed
    """
    if policy not in POLICIES:
        known = ", ".join(POLICIES)
        raise QueryError(problems=[f"elastic: unknown policy {policy!r}; known: {known}"])
    problems = [_refuse(name, policy) for name in given if name not in names_of(policy)]
    if problems:
        raise QueryError(problems=problems)
    return POLICIES[policy].parameters(**given)


def _refuse(name: str, policy: str) -> str:
    others = [other for other in POLICIES if name in names_of(other)]
    if others:
        return f"elastic: {name} is a rule of the policy {others[0]}, not of {policy}"
    return f"elastic: unknown rule {name!r}"
