"""The first sizes of a query, from what its tuples cost (StreamCloud's query instantiator).

Law: every subquery has at least one instance, one that is alone has exactly one, and no other
division of the same instances has a smaller greatest load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.base.errors import ConfigError

MOST = 4096
"""No subquery gets more instances than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubqueryCost:
    """What a subquery costs.

    Attributes:
        subquery: The subquery.
        name: The name of its head.
        rows: How many rows come to it for one row that the query reads.
        seconds: How long it is busy with one row that comes to it.
        alone: Whether it always has one instance.
    """

    subquery: int
    name: str
    rows: float
    seconds: float
    alone: bool = False

    @property
    def load(self) -> float:
        """How long it is busy for one row that the query reads."""
        return self.rows * self.seconds


def share_instances(costs: Sequence[SubqueryCost], instances: int) -> dict[int, int]:
    """Divide a number of instances among subqueries so that the greatest load is least.

    Each subquery gets at least one, so it may take more than were given.

    >>> scan = SubqueryCost(subquery=0, name="sources", rows=1.0, seconds=3e-7)
    >>> count = SubqueryCost(subquery=1, name="aggregate-0", rows=0.5, seconds=2e-7)
    >>> share_instances([scan, count], 8)
    {0: 6, 1: 2}
    """
    if instances < 1:
        raise ConfigError(name="instances", value=instances, allowed="1 or more")
    sizes = {cost.subquery: 1 for cost in costs}
    for _ in range(instances - len(sizes)):
        growing = [c for c in costs if not c.alone and c.load > 0 and sizes[c.subquery] < MOST]
        if not growing:
            break
        slowest = max(growing, key=lambda c: (c.load / sizes[c.subquery], -c.subquery))
        sizes[slowest.subquery] += 1
    return sizes


def instances_for_rate(
    costs: Sequence[SubqueryCost], rate: float, *, target: float = 0.6, cores: float = 1.0
) -> dict[int, int]:
    """Return how many instances each subquery needs for a rate.

    Args:
        costs: What the subqueries cost.
        rate: How many rows a second the query shall read.
        target: How busy an instance shall be, as a share of what it may use.
        cores: What an instance may use, in cores.

    >>> scan = SubqueryCost(subquery=0, name="sources", rows=1.0, seconds=3e-7)
    >>> instances_for_rate([scan], 10_000_000, target=0.6)
    {0: 5}
    """
    if not 0 < target <= 1:
        raise ConfigError(name="target", value=target, allowed="more than 0, at most 1")
    if rate <= 0:
        raise ConfigError(name="rate", value=rate, allowed="a positive number of rows a second")
    return {
        cost.subquery: 1
        if cost.alone
        else min(MOST, max(1, math.ceil(rate * cost.load / (target * cores) - 1e-9)))
        for cost in costs
    }


def within(
    sizes: Mapping[int, int], costs: Sequence[SubqueryCost], least: int, most: int
) -> dict[int, int]:
    """Return sizes that keep to bounds; those that are alone stay so."""
    alone = {cost.subquery for cost in costs if cost.alone}
    return {s: n if s in alone else min(most, max(least, n)) for s, n in sizes.items()}
