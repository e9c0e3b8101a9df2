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
    # In the operator-cloud a row may be refused far from its source, and yet it counts only once.
    ordered = _reached_by_rows(query) if query.strategy == "operator-cloud" else set()
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


def _reached_by_rows(query: CompiledQuery) -> set[int]:
    """Return the sources and the stateless operators that a source's row can come to."""
    found: set[int] = set()
    for number, node in enumerate(query.nodes):
        reached = isinstance(node, Source) or any(i in found for i in query.inputs[number])
        if reached and not node.stateful:
            found.add(number)
    return found
