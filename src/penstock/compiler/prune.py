"""Find the columns that each operator must give, and where rows must carry their order.

Law: an operator's output has every column that an operator after it reads, and no source reads a
column that nobody needs.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from penstock.plan.compiled import CompiledQuery
from penstock.query.nodes import Aggregate, Apply, Filter, Map, Node, Sink, Source


def prune_columns(query: CompiledQuery) -> CompiledQuery:
    """Return the query with the required columns and the ordered operators."""
    required: list[set[str]] = [set() for _ in query.nodes]
    # In the operator-cloud a row may be refused far from its source, and yet it counts only once.
    ordered = _reached_by_rows(query) if query.strategy == "operator-cloud" else set()
    for number in reversed(range(len(query.nodes))):
        node = query.nodes[number]
        for child in query.inputs[number]:
            required[child] |= _reads(node, required[number]) & set(query.nodes[child].schema)
            if _wants_order(node, number in ordered):
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


def _reads(node: Node, wanted: set[str]) -> set[str]:
    if isinstance(node, Sink):
        return set(node.schema)
    if isinstance(node, Apply):
        return set(node.inputs[0].schema)
    if isinstance(node, Map):
        computed = {name for name, _ in node.columns}
        return (wanted - computed if node.keep else set()) | _roots(e for _, e in node.columns)
    if isinstance(node, Filter):
        return wanted | _roots([node.predicate])
    if isinstance(node, Aggregate):
        return set(node.by) | _aggregate_reads(node)
    return wanted


def _aggregate_reads(node: Aggregate) -> set[str]:
    aggregation = node.aggregation
    if aggregation.calls is None:
        return _roots(aggregation.outer)
    expressions = [e for call in aggregation.calls for e in (call.argument, call.keep)]
    return _roots(e for e in expressions if e is not None)


def _roots(expressions: object) -> set[str]:
    assert not isinstance(expressions, pl.Expr)
    return {name for e in expressions for name in e.meta.root_names()}  # type: ignore[attr-defined]


def _wants_order(node: Node, output_ordered: bool) -> bool:
    if isinstance(node, Aggregate):
        return node.aggregation.needs_order
    return output_ordered or (isinstance(node, Sink) and node.ordered)
