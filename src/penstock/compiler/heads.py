"""Choose stateless operators that begin a subquery of their own.

What runs behind an operator without keys runs on one instance, whatever the size of the subquery,
since all its rows are in one bucket. If a function there is expensive, its rows are better spread.
Law: only an operator without state is chosen, and only behind an operator that cannot be divided.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.plan.compiled import CompiledQuery, Subquery
from penstock.query.nodes import Apply

WORTH_SECONDS = 2e-6
"""A row that takes longer is worth sending: to split, pack and unpack one takes about 0.5 us."""


def find_candidates(query: CompiledQuery) -> tuple[int, ...]:
    """Return the user's functions that run behind an operator that cannot be divided."""
    return tuple(
        number
        for subquery in query.subqueries
        if _is_undivided(query, subquery)
        for number in subquery.operators
        if isinstance(query.nodes[number], Apply)
        and sum(number in other.operators for other in query.subqueries) == 1
    )


def _is_undivided(query: CompiledQuery, subquery: Subquery) -> bool:
    edges = query.edges_into(subquery.id)
    return bool(edges) and all(edge.keys == () and not edge.grid for edge in edges)


def choose_heads(query: CompiledQuery, seconds: Mapping[int, float]) -> frozenset[int]:
    """Return the operators with which subqueries shall begin.

    Args:
        query: The compiled query.
        seconds: How long each operator is busy with a row that comes to it, as a sample tells.

    >>> import polars as pl, penstock as ps
    >>> from penstock.compiler import compile_query
    >>> s = ps.from_rows([{"x": 1, "ts": ps.at("2024-01-01")}], time="ts")
    >>> whole = s.top(100, "x", window=ps.tumbling("1 minute"))
    >>> slow = whole.apply(lambda frame: frame, schema=whole.schema)
    >>> query = compile_query(slow.write_memory().sinks)
    >>> choose_heads(query, {2: 50e-6}), choose_heads(query, {2: 1e-6})
    (frozenset({2}), frozenset())
    """
    return frozenset(n for n in find_candidates(query) if seconds.get(n, 0.0) > WORTH_SECONDS)
