"""Load balancers: which instance gets which rows, one kind of route per file.

`choose_routes` is the only place that looks at how an edge is keyed: all others ask its route. Law:
every row goes to every instance that needs it, once. The header that every instance gets in every
epoch, with or without rows, is the outbox's (`penstock.task.outbox`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.exchange.routes.by_key import ByKey
from penstock.exchange.routes.by_lineage import ByLineage
from penstock.exchange.routes.on_grid import OnGrid
from penstock.exchange.routes.spread import Spread
from penstock.operators.windows.panes import Panes
from penstock.plan.buckets import BucketMap
from penstock.plan.compiled import CompiledQuery, Edge
from penstock.plan.route import Route
from penstock.plan.tails import Lineage, Tail, lineages_of

__all__ = ["ByKey", "ByLineage", "OnGrid", "Spread", "choose_routes"]

Weights = tuple[float, ...]


def choose_routes(
    query: CompiledQuery,
    maps: Mapping[int, BucketMap],
    tails: Sequence[Tail] = (),
    weights: Mapping[int, Weights] | None = None,
) -> dict[int, Route]:
    """Return the route of every edge, by the edge's number.

    Routes refer to the maps and do not copy them, so they add little to a plan.

    Args:
        query: The compiled query.
        maps: Who owns the buckets of each subquery.
        tails: The tails that are open in the epoch.
        weights: For subqueries whose rows are spread, how much of them each instance gets; equal
            parts unless given.
    """
    lineages = {
        number: lineages_of(query.subquery_name(number), owners, tails)
        for number, owners in maps.items()
    }
    given = weights or {}
    return {
        edge.id: _choose(
            query,
            edge,
            maps[edge.to_subquery],
            lineages[edge.to_subquery],
            given.get(edge.to_subquery, (1.0,) * maps[edge.to_subquery].instances),
        )
        for edge in query.edges
    }


def _choose(
    query: CompiledQuery,
    edge: Edge,
    owners: BucketMap,
    lineages: tuple[Lineage, ...],
    weights: Weights,
) -> Route:
    grid, window = query.grid_of(edge.to_subquery), query.window_of(edge.to_subquery)
    if grid is not None:
        return OnGrid(keys=edge.keys or (), way=edge.grid, grid=grid, owners=owners)
    if edge.keys is None:
        if len(weights) != owners.instances:
            raise ValueError(f"{owners.instances} instances need a weight each; {weights=!r}")
        return Spread(weights=weights)
    if len(lineages) == 1 or window is None:
        return ByKey(keys=edge.keys, owners=owners)
    return ByLineage(
        keys=edge.keys, lineages=lineages, instances=owners.instances, panes=Panes.of(window)
    )
