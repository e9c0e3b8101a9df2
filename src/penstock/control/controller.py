"""The control loop: statistics, view, policy, guard, accepted changes.

Law: it is a function of what it is shown. Time comes with the statistics; what it remembers can be
read from its records.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping

from penstock.control.decision import Memory
from penstock.control.elastic import Elastic, make_policy
from penstock.control.guard import guard
from penstock.control.records import DecisionRecord
from penstock.control.replay import replay
from penstock.control.views import Runtime, make_view
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import Reconfiguration
from penstock.plan.compiled import CompiledQuery
from penstock.plan.statistics import EpochStatistics

Past = EpochStatistics | DecisionRecord | Reconfiguration
_NUMBER = re.compile(r"\d+(\.\d+)?")
_TOLD = 256
"""So many different things are told between two changes; a load that wobbles tells no more."""


class Controller:
    """Decides after every epoch."""

    def __init__(self, rules: Elastic, history: Iterable[Past] = ()) -> None:
        """Begin with what the event log has of the query's past.

        Args:
            rules: The user's rules.
            history: Statistics, decisions and reconfigurations, each kind oldest first. The last
                decision gives the memories, the reconfigurations the cool-downs, and statistics
                the loads.
        """
        self.rules, self.policy = rules, make_policy(rules)
        self.memory: Memory = {}
        self.guard_memory: Memory = {}
        self._epochs: deque[EpochStatistics] = deque(maxlen=rules.smoothing + 1)
        self._maps: dict[int, BucketMap] = {}
        self._since: dict[int, int] = {}
        self._calm_from = 0
        self._changed: dict[str, Reconfiguration] = {}
        self._told: set[str] = set()
        self._remember(list(history))

    def _remember(self, history: list[Past]) -> None:
        self._epochs.extend(event for event in history if isinstance(event, EpochStatistics))
        decisions = [event for event in history if isinstance(event, DecisionRecord)]
        if decisions:
            last = decisions[-1]
            self.guard_memory = replay(last).verdict.memory
            if last.rules.policy == self.rules.policy:
                self.memory = last.proposed.memory
        for event in history:
            if isinstance(event, Reconfiguration):
                self._changed[event.name] = event
                self._note_change(event.name, event.at)

    def _note_change(self, name: str, at: float) -> None:
        """Begin the cool-down of a subquery, whoever changed or started it."""
        changed = dict(self.guard_memory.get("changed", {}))
        changed[name] = max(at, changed.get(name, at))
        self.guard_memory = {**self.guard_memory, "changed": changed}

    def observe(
        self,
        query: CompiledQuery,
        maps: Mapping[int, BucketMap],
        statistics: EpochStatistics,
        *,
        moving: Mapping[int, tuple[int, ...]],
        recovering: bool,
        runtime: Runtime,
    ) -> DecisionRecord | None:
        """Take an epoch's statistics; return what was decided, if that is worth a record.

        Worth a record is every accepted change, and what was not told since the last one.

        Args:
            query: The compiled query as it runs now.
            maps: Who owns the buckets of each subquery.
            statistics: What the epoch cost.
            moving: The buckets of each subquery that are on their way.
            recovering: Whether loads are not yet what they will be.
            runtime: What is known of the machines, and what can be carried out.
        """
        self._look_at_maps(query, maps, statistics)
        self._epochs.append(statistics)
        if recovering:
            self._calm_from = statistics.epoch + 1
        calm = 0 if recovering else self._calm_from  # loads of a recovery say nothing later
        view = make_view(
            query,
            maps,
            tuple(self._epochs),
            bounds=self.rules,
            since={number: max(epoch, calm) for number, epoch in self._since.items()},
            moving=moving,
            recovering=recovering,
            runtime=runtime,
        )
        decision = self.policy.decide(view, self.memory)
        verdict = guard(view, decision, self.rules, self.guard_memory)
        record = DecisionRecord(
            epoch=view.epoch,
            at=view.at,
            rules=self.rules,
            view=view,
            memory=self.memory,
            guard_memory=self.guard_memory,
            proposed=decision,
            accepted=verdict.accepted,
            refused=verdict.refused,
        )
        self.memory, self.guard_memory = decision.memory, verdict.memory
        return record if self._is_news(record) else None

    def _look_at_maps(
        self, query: CompiledQuery, maps: Mapping[int, BucketMap], statistics: EpochStatistics
    ) -> None:
        """Note which maps are new in this epoch; loads before it say nothing about them.

        A start begins a cool-down like a change: processes are cold, and input has piled up.
        """
        for number, owners in maps.items():
            known, name = self._maps.get(number), query.subquery_name(number)
            if known == owners:
                continue
            first = self._first_epoch(name, number, owners) if known is None else statistics.epoch
            self._since[number] = first
            self._note_change(name, statistics.at)
        self._maps = dict(maps)

    def _first_epoch(self, name: str, number: int, owners: BucketMap) -> int:
        """Return since when the map of a subquery was the one that it has now."""
        last = self._changed.get(name)
        first = 0 if last is None else last.epoch
        for epoch in self._epochs:
            loads = [load for load in epoch.subqueries if load.subquery == number]
            if any(len(load.instances) != owners.instances or load.name != name for load in loads):
                first = max(first, epoch.epoch + 1)
        return first

    def _is_news(self, record: DecisionRecord) -> bool:
        """Return whether a record says what the last ones did not, whatever the numbers."""
        if record.accepted:
            self._told.clear()
            return True
        text = _NUMBER.sub("#", "\n".join([*record.proposed.reasons, *record.refused]))
        if text in self._told or len(self._told) >= _TOLD:
            return False
        self._told.add(text)
        return True
