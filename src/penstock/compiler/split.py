"""Split a query into subqueries (StreamCloud, section III).

Law: every strategy gives the same rows; they differ in how often a row changes instance.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.plan.compiled import CompiledQuery, Subquery
from penstock.query.nodes import Source


def split_subqueries(query: CompiledQuery) -> CompiledQuery:
    """Return the query with its subqueries.

    A subquery has a head and all stateless operators that the head feeds, up to the next head. The
    sources are the head of subquery 0. Stateful operators are heads, and so are stateless ones if
    the user or the planner says so (`Spread`, ``query.heads``); in the operator-cloud every
    operator is one. A stateless operator with inputs from several subqueries belongs to each.
    """
    sources = tuple(number for number, _ in query.sources)
    every = query.strategy == "operator-cloud"
    heads = [
        i
        for i, node in enumerate(query.nodes)
        if i not in sources and (every or node.begins or i in query.heads)
    ]
    subqueries = [Subquery(id=0, head=None, operators=_reach(query, sources, heads))]
    for head in heads:
        operators = _reach(query, (head,), heads)
        subqueries.append(Subquery(id=len(subqueries), head=head, operators=operators))
    return replace(query, subqueries=tuple(subqueries))


def _reach(query: CompiledQuery, start: tuple[int, ...], heads: list[int]) -> tuple[int, ...]:
    reached = list(start)
    for number, node in enumerate(query.nodes):
        if number in reached or number in heads or isinstance(node, Source):
            continue
        if any(i in reached for i in query.inputs[number]):
            reached.append(number)
    return tuple(sorted(reached))
