"""The user's rules as text: ``min=1,max=8,target=0.6``, on the command line and in settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from penstock.base.errors import QueryError
from penstock.control.bounds import Bounds
from penstock.control.elastic import Elastic, make_rules
from penstock.control.policies import POLICIES

_WORDS = {"true": True, "false": False}


def parse_rules(text: str, **more: Any) -> Elastic:
    """Return the rules that a text gives; names and meanings are those of `elastic`.

    Args:
        text: Names and values, separated by commas; empty for the rules as they are.
        more: Rules that win over the text.

    >>> parse_rules("min=2, max=8, target=0.7, policy=streamcloud").max
    8
    >>> parse_rules("maximum=8,target=high")
    Traceback (most recent call last):
    ...
    penstock.base.errors.QueryError: the query has 2 mistakes:
      1. elastic: unknown rule 'maximum'; did you mean 'max'?
      2. elastic: target must be a number; target='high'
    """
    parts = [part.strip() for part in text.split(",")]
    pairs = [[side.strip() for side in part.split("=", 1)] for part in parts if part]
    told = {pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}
    kinds = _kinds_of(str(more.get("policy", told.get("policy", Elastic().policy))))
    problems: list[str] = []
    given: dict[str, Any] = {}
    for name, value in told.items():
        if name not in kinds:
            problems.append(f"elastic: unknown rule {name!r}; {_guess_meant(name, list(kinds))}")
            continue
        try:
            given[name] = _value(value, kinds[name])
        except ValueError:
            wanted = {"int": "a whole number", "float": "a number"}.get(
                kinds[name], "true or false"
            )
            problems.append(f"elastic: {name} must be {wanted}; {name}={value!r}")
    if problems:
        raise QueryError(problems=problems)
    return make_rules(given | more)


def _kinds_of(policy: str) -> Mapping[str, str]:
    """Return what kind of value each rule has; of policies' own rules, those of one come first."""
    kinds = {bound.name: str(bound.type) for bound in fields(Bounds)} | {"policy": "str"}
    for name in sorted(POLICIES, key=lambda name: name != policy):
        for field in fields(POLICIES[name].parameters):
            kinds.setdefault(field.name, str(field.type))
    return kinds


def _value(text: str, kind: str) -> Any:
    if kind == "bool":
        if text.lower() not in _WORDS:
            raise ValueError(text)
        return _WORDS[text.lower()]
    return {"int": int, "float": float}.get(kind, str)(text)


def _guess_meant(name: str, known: list[str]) -> str:
    close = [k for k in known if k.startswith(name[:3]) or name.startswith(k)]
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
