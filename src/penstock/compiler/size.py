"""Size the subclusters: how many instances each subquery gets.

Law: a query never runs with fewer than one instance of each subquery, and an order buffer always
has exactly one, because order is a property of the whole stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.base.errors import ConfigError
from penstock.plan.compiled import CompiledQuery

MAX_INSTANCES = 4096


def size_subclusters(query: CompiledQuery, instances: int | Mapping[int, int]) -> CompiledQuery:
    """Return the query with the number of instances of each subquery."""
    wanted = (
        instances
        if isinstance(instances, Mapping)
        else dict.fromkeys(range(len(query.subqueries)), instances)
    )
    limit = min(query.buckets, MAX_INSTANCES)
    sized = []
    for subquery in query.subqueries:
        count = wanted.get(subquery.id, 1)
        if not 1 <= count <= limit:
            raise ConfigError(
                name=f"instances of subquery {subquery.id}",
                value=count,
                allowed=f"1 to {limit} (the number of buckets)",
            )
        head = None if subquery.head is None else query.nodes[subquery.head]
        alone = head is not None and head.alone
        sized.append(replace(subquery, instances=1 if alone else count))
    return replace(query, subqueries=tuple(sized))
