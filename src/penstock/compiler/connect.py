"""Connect subqueries: the edges on which load balancers send and input mergers take.

Law: every path of a row from a source to a sink crosses an edge exactly where a head begins, and
the rows of one key all cross to the same instance.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.plan.compiled import CompiledQuery, Edge


def connect_subqueries(query: CompiledQuery) -> CompiledQuery:
    """Return the query with an edge for each pair of producer and head."""
    edges: list[Edge] = []
    for target in query.subqueries:
        if target.head is None:
            continue
        node = query.nodes[target.head]
        for port, producer in enumerate(query.inputs[target.head]):
            edges += [
                Edge(
                    id=0,
                    producer=producer,
                    from_subquery=origin.id,
                    to_subquery=target.id,
                    port=port,
                    keys=node.keys(port),
                    grid=node.grid(port),
                )
                for origin in query.subqueries
                if producer in origin.operators
            ]
    return replace(query, edges=tuple(replace(edge, id=i) for i, edge in enumerate(edges)))
