"""What a user asks of a running query: other sizes, other owners of buckets, an even load.

The handle of a query and requests through its checkpoint come here, so both mean the same. Law:
what cannot be is refused by name, and then nothing is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.base.errors import ConfigError
from penstock.control.bounds import Bounds
from penstock.control.rebalance import rebalance_subquery
from penstock.control.views import make_view
from penstock.driver.layout import Layout
from penstock.driver.steering.requests import RefusedError, Request
from penstock.plan.changes import USER, Change, MoveProtocol
from penstock.plan.statistics import EpochStatistics


def rescale(
    layout: Layout,
    subquery: int | str,
    instances: int,
    *,
    protocol: MoveProtocol = "auto",
    request: str = "",
) -> Change:
    """Ask for another number of instances of a subquery, given by number or name."""
    number = layout.query.find_subquery(subquery)
    if layout.query.is_fixed(number) and instances != 1:
        name = layout.query.subquery_name(number)
        raise ConfigError(
            name="instances", value=instances, allowed=f"1 ({name} is ordered, so it is alone)"
        )
    return layout.rescale(number, instances, cause=USER, protocol=protocol, request=request)


def move(
    layout: Layout,
    subquery: int | str,
    moves: Mapping[int, int],
    *,
    protocol: MoveProtocol = "auto",
    request: str = "",
) -> Change:
    """Ask for other owners of some buckets of a subquery."""
    number = layout.query.find_subquery(subquery)
    return layout.move(number, moves, cause=USER, protocol=protocol, request=request)


def rebalance(
    layout: Layout,
    statistics: EpochStatistics | None,
    subquery: int | str | None = None,
    *,
    protocol: MoveProtocol = "auto",
    request: str = "",
) -> tuple[tuple[Change, ...], tuple[str, ...]]:
    """Ask for an even load of the instances of a subquery, or of all of them.

    Args:
        layout: The layout of the query.
        statistics: What the last epoch with rows cost; None if there was none.
        subquery: The subquery's number or name; all unless given.
        protocol: How state moves.
        request: The id of the request that asks for it.

    Returns:
        What was asked for, and a sentence about each subquery: also why nothing is to be done.

    Raises:
        ConfigError: There is no such subquery.
    """
    given = None if subquery is None else layout.query.find_subquery(subquery)
    if statistics is None:
        return (), ("no epoch since the start of the query had rows, so no load is known",)
    view = make_view(
        layout.query, layout.maps, (statistics,), bounds=Bounds(), moving=layout.moving()
    )
    changes, sentences = [], []
    for found in view.subqueries:
        if given not in (None, found.id):
            continue
        change, sentence = rebalance_subquery(found, protocol=protocol)
        sentences.append(sentence)
        if change is not None:
            moves = {b: change.owners.owners[b] for b in found.owners.find_moved(change.owners)}
            changes.append(
                layout.move(
                    found.id,
                    moves,
                    kind="rebalance",
                    cause=USER,
                    reason=change.reason,
                    protocol=protocol,
                    request=request,
                )
            )
    return tuple(changes), tuple(sentences)


def carry_out(
    asked: Request, request: str, layout: Layout, statistics: EpochStatistics | None
) -> Sequence[Change]:
    """Ask the layout for what a request wants; return what was asked for.

    Raises:
        ConfigError: It cannot be.
        RefusedError: Nothing would change.
    """
    where, how = asked.subquery, asked.protocol
    if asked.kind == "rescale":
        return [rescale(layout, where, asked.instances, protocol=how, request=request)]
    if asked.kind == "move":
        return [move(layout, where, dict(asked.moves), protocol=how, request=request)]
    changes, sentences = rebalance(layout, statistics, where or None, protocol=how, request=request)
    if not changes:
        raise RefusedError(reason="; ".join(sentences))
    return changes
