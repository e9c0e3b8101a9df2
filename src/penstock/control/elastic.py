"""The user's rules for elasticity: ``start(…, elastic=ps.elastic(min=1, max=16, target=0.6))``.

Law: rules are bounds that all policies share, and parameters of the policy that was chosen. Rules
that say anything else, or anything wrong, cannot be made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from penstock.base.errors import QueryError
from penstock.control.bounds import Bounds, find_mistakes
from penstock.control.decision import Policy
from penstock.control.policies import POLICIES, PolicyName, make_parameters
from penstock.control.policies.streamcloud import Provisioning
from penstock.plan.changes import MoveProtocol

BOUNDS = tuple(bound.name for bound in fields(Bounds))
"""The names of the bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic(Bounds):
    """How a query fits itself to its load; made by `elastic`.

    Attributes:
        policy: Who decides: a name in `penstock.control.policies.POLICIES`.
        parameters: What was chosen of that policy, by name, and its defaults for the rest. They
            are plain values, so that rules can be written to a record whatever policy they name.
    """

    policy: str = "streamcloud"
    parameters: Mapping[str, bool | int | float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems = find_mistakes(self)
        try:
            chosen = asdict(make_parameters(self.policy, self.parameters))
            object.__setattr__(self, "parameters", chosen)
        except QueryError as error:
            problems += error.problems
        if problems:
            raise QueryError(problems=problems)


def make_policy(rules: Elastic) -> Policy:
    """Return the policy that some rules name, with their bounds and its parameters.

    >>> make_policy(Elastic()).name, make_policy(Elastic(policy="fixed")).name
    ('streamcloud', 'fixed')
    """
    parameters = make_parameters(rules.policy, rules.parameters)
    return POLICIES[rules.policy](rules, parameters)


def make_rules(given: Mapping[str, Any]) -> Elastic:
    """Return the rules with some of them given by name, bounds and parameters alike."""
    chosen = {name: value for name, value in given.items() if name in (*BOUNDS, "policy")}
    parameters = {name: value for name, value in given.items() if name not in chosen}
    return Elastic(**chosen, parameters=parameters)


def elastic(
    *,
    min: int = 1,
    max: int = 16,
    policy: PolicyName = "streamcloud",
    protocol: MoveProtocol = "auto",
    cooldown_seconds: float = 5.0,
    smoothing: int = 3,
    instance_cores: float = 1.0,
    memory_bytes: int = 0,
    dry_run: bool = False,
    target: float | None = None,
    lower: float | None = None,
    upper: float | None = None,
    imbalance: float | None = None,
    improvement: float | None = None,
    provisioning: Provisioning | None = None,
) -> Elastic:
    """Return rules for elasticity.

    The first nine hold for every policy. The others are those of one policy, and refused for
    another; what is not given has the policy's default.

    Args:
        min: The fewest instances that a subquery has.
        max: The most.
        policy: Who decides: ``streamcloud``, or ``fixed`` to leave everything as it is.
        protocol: How state moves: ``state``, ``window``, or ``auto`` for the cheaper one.
        cooldown_seconds: How long a subquery is left alone after a start or a change.
        smoothing: From how many epochs a load is taken.
        instance_cores: What an instance may use, in cores.
        memory_bytes: How much state an instance can hold; 0 for no bound.
        dry_run: Only report what would be done.
        target: ``streamcloud``: the utilisation that a change aims at.
        lower: ``streamcloud``: below this mean utilisation instances are given back.
        upper: ``streamcloud``: above it instances are added.
        imbalance: ``streamcloud``: above this deviation of the utilisation buckets move.
        improvement: ``streamcloud``: by which share a balance must improve it.
        provisioning: ``streamcloud``: ``load-aware`` or ``individual``.

    Raises:
        QueryError: Rules are wrong; all mistakes are told at once.

    >>> elastic(min=1, max=8, target=0.7, lower=0.4).parameters["upper"]
    0.9
    >>> elastic(min=0, target=0.95)
    Traceback (most recent call last):
    ...
    penstock.base.errors.QueryError: the query has 2 mistakes:
      1. elastic: min must be 1 or more; min=0
      2. elastic: 0 < lower < target < upper must hold; lower=0.5, target=0.95, upper=0.9
    """
    own = {
        "target": target,
        "lower": lower,
        "upper": upper,
        "imbalance": imbalance,
        "improvement": improvement,
        "provisioning": provisioning,
    }
    return Elastic(
        min=min,
        max=max,
        policy=policy,
        protocol=protocol,
        cooldown_seconds=cooldown_seconds,
        smoothing=smoothing,
        instance_cores=instance_cores,
        memory_bytes=memory_bytes,
        dry_run=dry_run,
        parameters={name: value for name, value in own.items() if value is not None},
    )
