"""StreamCloud's cost model of the parallelisation strategies (section XI).

``cost = alpha * fan_out + beta * rate * hops``: fan-out is the number of channels between
instances, hops is how often a row changes instance.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.compiled import CompiledQuery
from penstock.query.nodes import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyCost:
    """The two parts of a strategy's cost."""

    strategy: str
    fan_out: float
    hops: int

    def total(self, *, rate: float, alpha: float = 0.01, beta: float = 1.0) -> float:
        """Return the weighted cost at a rate of rows a second."""
        return alpha * self.fan_out + beta * rate * self.hops


def strategy_cost(strategy: str, *, nodes: int, operators: int, stateful: int) -> StrategyCost:
    """Return the cost of a strategy for a query with a stateless prefix.

    Args:
        strategy: One of the three strategies.
        nodes: N, how many machines the query has.
        operators: l, how many operators it has.
        stateful: s, how many of them are stateful.

    >>> strategy_cost("query-cloud", nodes=90, operators=6, stateful=2).fan_out
    8010.0
    >>> strategy_cost("operator-set-cloud", nodes=90, operators=6, stateful=2).hops
    2
    """
    if strategy == "query-cloud":
        return StrategyCost(strategy=strategy, fan_out=float(nodes * (nodes - 1)), hops=stateful)
    subclusters = operators if strategy == "operator-cloud" else stateful + 1
    hops = subclusters - 1
    return StrategyCost(strategy=strategy, fan_out=nodes / subclusters * hops, hops=hops)


def query_costs(query: CompiledQuery, nodes: int) -> tuple[StrategyCost, ...]:
    """Return the cost of every strategy for a query on a number of machines."""
    operators = sum(not isinstance(node, Source) for node in query.nodes)
    begun = sum(node.begins or i in query.heads for i, node in enumerate(query.nodes))
    return tuple(
        strategy_cost(strategy, nodes=nodes, operators=max(operators, 1), stateful=begun)
        for strategy in ("operator-set-cloud", "operator-cloud", "query-cloud")
    )
