"""Steering: what a driver does around its epochs to see how the query fares, and to change it.

Before an epoch it takes up what users asked for; after a commit it gathers statistics, tells what
happened, looks at the machines and asks the policy. Law: nothing here decides what an epoch
computes or whether it counts. If a log cannot be written, the query goes on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from penstock.base.errors import CheckpointError
from penstock.control.controller import Controller, Past
from penstock.control.elastic import Elastic
from penstock.control.read_speed import ReadSpeed
from penstock.control.views import Runtime
from penstock.driver.epoch import epoch_counts
from penstock.driver.layout import ABILITIES, Layout
from penstock.driver.logs import log_decision, log_refusals
from penstock.driver.resources import FixedSlots, Resources
from penstock.driver.statistics import Gatherer, follow_sources
from penstock.driver.steering import by_hand
from penstock.driver.steering.requests import Request, Requests
from penstock.driver.steering.switch import Weights, pace_us
from penstock.files.place import Place
from penstock.observe.events import Event, ExecutorEvent
from penstock.observe.log import EventLog, read_events
from penstock.plan.changes import Change, Reconfiguration, newest
from penstock.plan.epoch import EpochPlan, SegmentRef, TaskReport
from penstock.plan.splits import Reached
from penstock.plan.statistics import EpochStatistics
from penstock.state.manifests import Manifest

_LOG = logging.getLogger(__name__)
Backlog = Callable[[Mapping[int, Reached]], int | None]
"""Tells how much input waits, if that is known, from how far each source was read."""
RECOVERY_EPOCHS = 3
"""After a restart or the loss of an executor, the loads of so many epochs say little."""


class Steering:
    """Watches a query's epochs and changes its layout between them."""

    def __init__(
        self,
        root: Place,
        layout: Layout,
        last: Manifest | None,
        *,
        clock: Callable[[], float],
        elastic: Elastic | None = None,
        resources: Resources | None = None,
        backlog: Backlog = lambda reached: None,
    ) -> None:
        """Take up the past of a checkpoint.

        Args:
            root: Penstock's folder in the checkpoint.
            layout: The layout of the query.
            last: The newest manifest, if there is one.
            clock: Tells the time.
            elastic: The rules by which the query fits itself to its load; none to leave it be.
            resources: Where instances run; one slot unless given.
            backlog: Tells how much input waits.
        """
        self.root, self.layout, self.clock = root, layout, clock
        self.events = EventLog(root, clock=clock)
        self.requests = Requests(root, clock=clock)
        self.gatherer = Gatherer()
        self.resources = resources or FixedSlots()
        self.backlog = backlog
        self.control = None if elastic is None else Controller(elastic, self._past(elastic))
        self.statistics: EpochStatistics | None = None
        """Those of the newest epoch of this run that had rows."""
        self._reached: dict[int, Reached] = {}
        self._pace_us: dict[str, int] = {}
        self._speed = ReadSpeed()
        self._calm_from = last.epoch + 1 + RECOVERY_EPOCHS if last else 1
        if last is not None:
            self.tell(self._find_untold(last))

    def before_epoch(self, epoch: int, last: Manifest | None) -> None:
        """Take up what users have asked for through the checkpoint."""
        refused = self.requests.take_up(epoch, last, self._carry_out)
        log_refusals(refused)
        self.tell(refused)

    def weights(self) -> Weights:
        """Return what the choice of a protocol goes by."""
        return Weights(
            bytes_of=self._bytes_of,
            pace_us=self._pace_us,
            read_bytes_per_second=self._speed.bytes_per_second,
        )

    def after_epoch(
        self,
        plan: EpochPlan,
        reports: Sequence[TaskReport],
        before: Manifest | None,
        manifest: Manifest,
        *,
        seconds: float,
    ) -> EpochStatistics:
        """Take note of an epoch that was committed; return its statistics."""
        self._pace_us = pace_us(before, manifest)
        self._reached = follow_sources(reports, manifest.rows_before, self._reached)
        statistics = self.gatherer.gather(
            self.layout.query,
            plan,
            reports,
            before,
            manifest,
            seconds=seconds,
            counts=epoch_counts(reports),
            backlog=self.backlog(self._reached),
            published_at=self.clock(),
        )
        self._speed = self._speed.after(statistics)
        self.tell([*manifest.reconfigured, statistics])
        self.requests.committed()
        self.statistics = statistics if statistics.rows else self.statistics
        self._look_at_resources(plan.epoch)
        self._decide(statistics)
        self._ask_for_slots()
        return statistics

    def reconfigurations(self) -> list[Reconfiguration]:
        """Return the newest record of every change of the checkpoint's history, oldest first."""
        found = read_events(self.root, "reconfiguration")
        return newest(event for event in found if isinstance(event, Reconfiguration))

    def tell(self, events: Sequence[Event]) -> None:
        """Write events; a log that cannot be written takes nothing from the query."""
        for event in events:
            try:
                self.events.add(event)
            except OSError as error:
                _LOG.warning("an event was not written to the checkpoint: %s", error)

    def close(self) -> None:
        """Write the last statistics."""
        with suppress(OSError):
            self.events.flush()

    def _carry_out(self, asked: Request, request: str) -> Sequence[Change]:
        return by_hand.carry_out(asked, request, self.layout, self.statistics)

    def _bytes_of(self, refs: Sequence[SegmentRef], buckets: int) -> Sequence[float]:
        found: list[float] = self.gatherer.state_bytes(refs, buckets).tolist()
        return found

    def _find_untold(self, last: Manifest) -> list[Reconfiguration]:
        """Return the changes of an epoch whose driver died before it could tell of them."""
        if not last.reconfigured:
            return []
        with suppress(CheckpointError, OSError):
            told = self.reconfigurations()
            return [record for record in last.reconfigured if record not in told]
        return []

    def _past(self, rules: Elastic) -> Sequence[Past]:
        """Return what the controller wants to know of the time before; nothing if it is damaged."""
        wanted = {
            "statistics": rules.smoothing,
            "reconfiguration": 4 * len(self.layout.query.subqueries),
            "decision": 1,
        }
        found: list[Event] = []
        for kind, last in wanted.items():
            with suppress(CheckpointError, OSError):
                found += read_events(self.root, kind, last=last)
        return [event for event in found if not isinstance(event, ExecutorEvent)]

    def _look_at_resources(self, epoch: int) -> None:
        """Take note of executors that have come or gone."""
        events = self.resources.events()
        self.tell([replace(event, epoch=epoch) for event in events])
        if any(event.what == "lost" for event in events):
            self._calm_from = epoch + 1 + RECOVERY_EPOCHS

    def _decide(self, statistics: EpochStatistics) -> None:
        """Ask the policy what to change from the next epoch on."""
        if self.control is None:
            return
        decided = self.control.observe(
            self.layout.query,
            self.layout.maps,
            statistics,
            moving=self.layout.moving(),
            recovering=statistics.epoch < self._calm_from,
            runtime=self._runtime(),
        )
        if decided is None:
            return
        log_decision(decided)
        self.tell([decided])
        for change in decided.accepted:
            self.layout.propose(change)

    def _runtime(self) -> Runtime:
        return Runtime(
            slots=self.resources.slots(),
            most_slots=self.resources.most(),
            hosts=self.resources.slots_by_host(),
            read_bytes_per_second=self._speed.bytes_per_second,
            abilities=ABILITIES,
        )

    def _ask_for_slots(self) -> None:
        """Ask for the slots that the layout needs, with what was just decided.

        A change takes effect with the next epoch whether or not its executors are there: until they
        come, tasks share the slots that there are. So no epoch waits for a machine, and a machine
        that never comes costs time but no result.
        """
        tasks = max(*self.layout.query.stage_sizes, self.layout.instances_wanted())
        cores = min(1.0, self.control.rules.instance_cores) if self.control else 1.0
        self.resources.ask(max(1, math.ceil(tasks * cores)))
