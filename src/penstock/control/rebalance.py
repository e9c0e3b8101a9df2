"""A balance that a user asks for: as a policy would do it, whatever the thresholds say.

Law: only what buckets cost counts. What an instance costs without a row cannot be moved, and the
noise in it must not hide that another instance has all the rows.
"""

from __future__ import annotations

import numpy as np

from penstock.control.placing import Placed, balance, known_loads
from penstock.control.view import SubqueryView
from penstock.plan.changes import USER, Change, MoveProtocol


def rebalance_subquery(
    subquery: SubqueryView, *, protocol: MoveProtocol = "auto"
) -> tuple[Change | None, str]:
    """Return the change that makes the instances of a subquery alike, and a sentence about it.

    Args:
        subquery: The subquery and its load.
        protocol: How state moves.

    Returns:
        The change, or None if there is nothing to do or nothing can be done; the sentence says so.
    """
    name = subquery.name
    if len(subquery.instances) < 2:
        return None, f"{name} has one instance, so there is nothing to balance"
    if not subquery.movable:
        return None, f"{name} has no buckets that can be moved one by one"
    loads = known_loads(subquery)
    if loads is None:
        return None, f"the load of the buckets of {name} is not known yet"
    explained = np.bincount(
        subquery.owners.owners, weights=loads, minlength=len(subquery.instances)
    )
    now = Placed(owners=subquery.owners, utilisations=tuple(explained.tolist()))
    placed = balance(now, loads, frozen=subquery.moving)
    moved = sum(1 for _ in subquery.owners.find_moved(placed.owners))
    if not moved:
        return None, f"no move of a bucket would make the instances of {name} more alike"
    sentence = (
        f"{name}: {moved} buckets move, so that the deviation of the utilisation goes from "
        f"{now.deviation:.3f} to {placed.deviation:.3f}"
    )
    change = Change(
        subquery=subquery.id,
        owners=placed.owners,
        kind="rebalance",
        cause=USER,
        reason=f"the deviation of its utilisation was {now.deviation:.3f}",
        protocol=protocol,
    )
    return change, sentence
