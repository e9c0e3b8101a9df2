"""The compiler: from a logical query to stages of tasks, one pass per file.

Each pass takes a `CompiledQuery` and returns a new one. `PASSES` is their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from penstock.base.config import STRATEGIES
from penstock.base.errors import ConfigError, QueryError
from penstock.compiler.connect import connect_subqueries
from penstock.compiler.cost import StrategyCost, strategy_cost
from penstock.compiler.explain import explain
from penstock.compiler.fuse import fuse_units
from penstock.compiler.heads import choose_heads, find_candidates
from penstock.compiler.prune import prune_columns
from penstock.compiler.size import size_subclusters
from penstock.compiler.split import split_subqueries
from penstock.plan.compiled import CompiledQuery
from penstock.query.nodes import Sink, topological
from penstock.sinks.registry import find_kind

Pass = Callable[[CompiledQuery], CompiledQuery]

PASSES: tuple[Pass, ...] = (split_subqueries, connect_subqueries, prune_columns)

__all__ = [
    "PASSES",
    "STRATEGIES",
    "StrategyCost",
    "choose_heads",
    "compile_query",
    "explain",
    "find_candidates",
    "strategy_cost",
]


def compile_query(
    sinks: tuple[Sink, ...],
    *,
    strategy: str = "operator-set-cloud",
    instances: int | Mapping[int, int] = 1,
    buckets: int = 1024,
    heads: Iterable[int] = (),
) -> CompiledQuery:
    """Compile a query.

    Args:
        sinks: The sinks of the query.
        strategy: How to split it: one of `STRATEGIES`.
        instances: How many instances each subquery has, or a number for some of them.
        buckets: How many buckets keys are hashed to.
        heads: Numbers of stateless operators with which subqueries shall begin (`choose_heads`).
    """
    if strategy not in STRATEGIES:
        raise ConfigError(name="strategy", value=strategy, allowed=", ".join(STRATEGIES))
    if not 1 <= buckets <= 65_536:
        raise ConfigError(name="buckets", value=buckets, allowed="1 to 65536")
    _check_sinks(sinks)
    nodes = topological(sinks)
    place = {id(node): i for i, node in enumerate(nodes)}
    inputs = tuple(tuple(place[id(child)] for child in node.inputs) for node in nodes)
    query = CompiledQuery(
        nodes=nodes, inputs=inputs, strategy=strategy, buckets=buckets, heads=frozenset(heads)
    )
    for step in PASSES:
        query = step(query)
    return fuse_units(size_subclusters(query, instances))


def _check_sinks(sinks: tuple[Sink, ...]) -> None:
    places = [find_kind(sink.kind).place(sink) for sink in sinks]
    counts = Counter(place for place in places if place is not None)
    first = dict(zip(reversed(places), reversed(sinks), strict=True))
    problems = [
        f"two sinks write to the same {first[place].kind} {first[place].target!r}"
        for place, count in counts.items()
        if count > 1
    ]
    if problems:
        raise QueryError(problems=problems)
