"""Find the columns that each operator must give, and where rows must carry their order.

Law: an operator's output has every column that an operator after it reads, and no source reads a
column that nobody needs.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.plan.compiled import CompiledQuery
from penstock.query.nodes import Sink, Source


def prune_columns(query: CompiledQuery) -> CompiledQuery:
    """Return the query with the required columns and the ordered operators."""
    required: list[set[str]] = [set() for _ in query.nodes]
    ordered = _heads_reached_by_rows(query)
    for number in reversed(range(len(query.nodes))):
        node = query.nodes[number]
        for port, child in enumerate(query.inputs[number]):
            read = node.reads(port, required[number])
            required[child] |= read & set(query.nodes[child].schema)
            if node.wants_order(number in ordered):
                ordered.add(child)
        if isinstance(node, Sink) and node.ordered:
            ordered.add(number)
    return replace(
        query, required=tuple(frozenset(names) for names in required), ordered=frozenset(ordered)
    )


def _heads_reached_by_rows(query: CompiledQuery) -> set[int]:
    """Return the stateless heads that a source's row can come to.

    There, and behind them, a row may be refused far from its source, and yet it counts only once;
    so it has to carry its place.
    """
    found: set[int] = set()
    for number, node in enumerate(query.nodes):
        reached = isinstance(node, Source) or any(i in found for i in query.inputs[number])
        if reached and not node.stateful:
            found.add(number)
    return found & {subquery.head for subquery in query.subqueries if subquery.head is not None}
