"""The control loop: statistics, view, policy, guard, accepted changes.

Law: it is a function of what it is shown. Time comes with the statistics; what it remembers can be
read from its records.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.control.elastic import Elastic
from penstock.control.policies import policy_of
from penstock.control.records import DecisionRecord
from penstock.plan.buckets import BucketMap
from penstock.plan.compiled import CompiledQuery
from penstock.plan.statistics import EpochStatistics


class Controller:
    """Decides after every epoch."""

    def __init__(self, rules: Elastic) -> None:
        """Begin without a past."""
        self.rules, self.policy = rules, policy_of(rules)

    def observe(
        self,
        query: CompiledQuery,
        maps: Mapping[int, BucketMap],
        statistics: EpochStatistics,
        *,
        slots: int,
        most_slots: int,
        moving: Mapping[int, tuple[int, ...]],
        recovering: bool,
    ) -> DecisionRecord | None:
        """Take an epoch's statistics; return what was decided, if that is worth a record.

        Args:
            query: The compiled query as it runs now.
            maps: Who owns the buckets of each subquery.
            statistics: What the epoch cost.
            slots: How many tasks can run at the same time now.
            most_slots: How many could at most.
            moving: The buckets of each subquery that are on their way.
            recovering: Whether loads are not yet what they will be.
        """
        return None
