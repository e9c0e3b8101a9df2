"""The user's rules for elasticity: ``start(…, elastic=ps.elastic(min=1, max=16, target=0.6))``."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.errors import QueryError
from penstock.plan.changes import PROTOCOLS

PROVISIONING = ("load-aware", "individual")
POLICY_NAMES = ("streamcloud", "fixed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """How a query fits itself to its load; made by `elastic`.

    Attributes:
        min: The fewest instances that a subquery has.
        max: The most.
        target: The utilisation that a change aims at (StreamCloud's TUT).
        lower: Below this mean utilisation instances are given back (LUT).
        upper: Above it instances are added (UUT).
        imbalance: Above this standard deviation of the instances' utilisation, buckets move (UIT).
        improvement: A balance must improve the deviation by this share of it; once the deviation is
            allowed, so must every further move (MIT).
        policy: Who decides: one of `POLICY_NAMES`.
        provisioning: ``load-aware`` goes to the target in one step, ``individual`` by one instance.
        protocol: How state moves, see `penstock.plan.changes.PROTOCOLS`.
        cooldown_seconds: How long a subquery is left alone after a start or a change.
        smoothing: From how many epochs a load is taken: it is their median.
        instance_cores: What an instance may use, in cores; utilisation is a share of it.
        memory_bytes: How much state an instance can hold in memory; 0 for no bound.
        dry_run: Only report what would be done.
    """

    min: int = 1
    max: int = 16
    target: float = 0.6
    lower: float = 0.5
    upper: float = 0.9
    imbalance: float = 0.1
    improvement: float = 0.01
    policy: str = "streamcloud"
    provisioning: str = "load-aware"
    protocol: str = "auto"
    cooldown_seconds: float = 5.0
    smoothing: int = 3
    instance_cores: float = 1.0
    memory_bytes: int = 0
    dry_run: bool = False

    def __post_init__(self) -> None:
        problems = [text for wrong, text in _checks(self) if wrong]
        if problems:
            raise QueryError(problems=problems)


def _checks(rules: Elastic) -> list[tuple[bool, str]]:
    """Return what may be wrong with the rules, and whether it is."""
    order = 0 < rules.lower < rules.target < rules.upper
    return [
        (rules.min < 1, f"elastic: min must be 1 or more; min={rules.min!r}"),
        (rules.max < rules.min, f"elastic: max must be at least min; max={rules.max!r}"),
        (
            not order,
            "elastic: 0 < lower < target < upper must hold; "
            f"lower={rules.lower!r}, target={rules.target!r}, upper={rules.upper!r}",
        ),
        (rules.imbalance <= 0, f"elastic: imbalance must be positive; got {rules.imbalance!r}"),
        (
            not 0 <= rules.improvement < 1,
            f"elastic: improvement must be in [0, 1); got {rules.improvement!r}",
        ),
        (
            rules.policy not in POLICY_NAMES,
            f"elastic: unknown policy {rules.policy!r}; known: {', '.join(POLICY_NAMES)}",
        ),
        (
            rules.provisioning not in PROVISIONING,
            f"elastic: unknown provisioning {rules.provisioning!r}; "
            f"known: {', '.join(PROVISIONING)}",
        ),
        (
            rules.protocol not in PROTOCOLS,
            f"elastic: unknown protocol {rules.protocol!r}; known: {', '.join(PROTOCOLS)}",
        ),
        (rules.cooldown_seconds < 0, "elastic: cooldown_seconds must not be negative"),
        (rules.smoothing < 1, "elastic: smoothing must be 1 or more"),
        (rules.instance_cores <= 0, "elastic: instance_cores must be positive"),
        (rules.memory_bytes < 0, "elastic: memory_bytes must not be negative"),
    ]


def elastic(**rules: object) -> Elastic:
    """Return rules for elasticity; `Elastic` says what there is.

    >>> elastic(min=1, max=8, target=0.7, lower=0.4).upper
    0.9
    >>> elastic(min=0, target=0.95)
    Traceback (most recent call last):
    ...
    penstock.base.errors.QueryError: the query has 2 mistakes:
      1. elastic: min must be 1 or more; min=0
      2. elastic: 0 < lower < target < upper must hold; lower=0.5, target=0.95, upper=0.9
    """
    return Elastic(**rules)  # type: ignore[arg-type]  # the class checks the values
