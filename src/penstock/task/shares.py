"""Shares: the sets of buckets of an operator that an instance advances, one by one.

A share is a set of buckets of one lineage that stand at one mark, with its segments and its cached
state; the windows that a tail finishes are a share like any other. Usually an instance has one.
Laws: the shares of an instance are disjoint within a lineage and have all its buckets; shares that
stand at the same mark are one; a share that stays where it is leaves the others alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from penstock.operators.windows.spans import Span
from penstock.plan.buckets import BucketSet
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan
from penstock.plan.route import Route
from penstock.plan.tails import Lineage, lineages_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Some buckets of a lineage on an instance, and how far an epoch takes them.

    Attributes:
        lineage: The lineage.
        buckets: The buckets, or cells of a grid.
        mark: The mark at which they stand.
        until: The mark at which the epoch leaves them; the same if they are held back.
        alone: Whether all rows that come to the instance are for this share.
    """

    lineage: Lineage
    buckets: BucketSet
    mark: int
    until: int
    alone: bool = True

    def span(self, buckets: int) -> Span | None:
        """Return the windows that the share writes; None if it writes all."""
        since, before = self.lineage.since_us, self.lineage.before_us
        if not since and before is None:
            return None
        return Span(since_us=since, before_us=before, buckets=buckets)

    def rows(self, route: Route, frame: pl.DataFrame) -> pl.DataFrame:
        """Return those of the rows that have come to the instance that are for this share."""
        if self.alone or frame.is_empty():
            return frame
        return route.rows_for(frame, self.lineage, self.buckets)


def shares_of(
    query: CompiledQuery, plan: EpochPlan, subquery: int, instance: int, watermark: int
) -> tuple[Share, ...]:
    """Return the shares of an instance in an epoch; at least one, perhaps without buckets.

    Args:
        query: The compiled query.
        plan: The plan of the epoch.
        subquery: The subquery of a stateful operator.
        instance: The instance.
        watermark: The watermark of what comes in.
    """
    name = query.subquery_name(subquery)
    lineages = lineages_of(name, plan.maps[subquery], plan.tails)
    held = plan.held.get(name, BucketSet())
    found: list[tuple[Lineage, BucketSet, int, int]] = []
    for lineage in lineages:
        progress = plan.progress[lineage.name].cut(lineage.owned_by(instance))
        for mark, buckets in progress.shares:
            found.append((lineage, buckets - held, mark, max(mark, watermark)))
            found.append((lineage, buckets & held, mark, mark))
    found = [share for share in found if share[1]] or [
        (lineages[0], BucketSet(), watermark, watermark)
    ]
    return tuple(
        Share(
            lineage=lineage,
            buckets=buckets,
            mark=mark,
            until=until,
            alone=len(found) == 1 and len(lineages) == 1,
        )
        for lineage, buckets, mark, until in found
    )
