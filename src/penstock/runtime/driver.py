"""The driver of a query: runs epochs one after the other and commits them.

It knows no Spark: how tasks are run comes in as a function, and so does the clock. Law: an epoch
whose manifest exists is never run again, only published; one whose manifest does not exist has left
nothing that anybody sees, and is run again with the same plan.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.config import Config
from penstock.control.controller import Controller, Past
from penstock.control.elastic import Elastic
from penstock.errors import CheckpointError, StoppedError
from penstock.observe.events import Event, ExecutorEvent
from penstock.observe.log import EventLog, read_events
from penstock.plan.changes import Change, Reconfiguration, newest
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, SegmentRef, TaskReport
from penstock.plan.statistics import EpochStatistics
from penstock.runtime import by_hand
from penstock.runtime.epoch import epoch_counts, make_manifest, make_plan, may_idle
from penstock.runtime.layout import Layout
from penstock.runtime.outputs import Outputs, Publisher
from penstock.runtime.pinned import meaning, pin
from penstock.runtime.reconfigure import records
from penstock.runtime.requests import Request, Requests
from penstock.runtime.resources import FixedSlots, Resources
from penstock.runtime.statistics import Gatherer, newest_files
from penstock.runtime.switch import Weights, pace_us
from penstock.state.files import place_of
from penstock.state.manifests import Manifest, ManifestLog, fenced
from penstock.state.retention import Retention
from penstock.state.sealed import seal, unseal
from penstock.state.spark_log import check_log, seal_log

Execute = Callable[[CompiledQuery, EpochPlan], Sequence[TaskReport]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochResult:
    """What an epoch did, for progress reports."""

    manifest: Manifest
    counts: Mapping[str, int]
    reports: tuple[TaskReport, ...]
    seconds: float
    replayed: bool = False
    statistics: EpochStatistics | None = None


_RECOVERY_EPOCHS = 3
"""After a restart or the loss of an executor, the loads of so many epochs say little."""


class Driver:
    """Runs the epochs of one query on one checkpoint."""

    def __init__(
        self,
        query: CompiledQuery,
        checkpoint: str | Path,
        config: Config,
        *,
        publisher: Publisher,
        clock: Callable[[], float] = time.time,
        time_zone: str = "UTC",
        spark_log: str | Path | None = None,
        keep_sizes: bool = False,
        elastic: Elastic | None = None,
        resources: Resources | None = None,
        backlog: Callable[[Mapping[int, int]], int | None] = lambda newest: None,
    ) -> None:
        """Open a checkpoint for a query, or begin a new one.

        Args:
            query: The compiled query.
            checkpoint: The checkpoint's path or URI.
            config: How the query runs.
            publisher: Gives rows to sinks that are not folders.
            clock: Tells the time.
            time_zone: The time zone that the query's times are in.
            spark_log: Spark's own checkpoint folder; none if Spark does not drive the query.
            keep_sizes: Whether subqueries are as large as they were in the checkpoint.
            elastic: The rules by which the query fits itself to its load; none to leave it be.
            resources: Where instances run; one slot unless given.
            backlog: Tells how much input waits, if it is known; it is told when the newest file
                of each source was modified.

        Raises:
            CheckpointError: The checkpoint belongs to another query, or is damaged.
        """
        self.root = place_of(checkpoint, fsync=config.fsync) / "penstock"
        self.writer = self.root.files.unique()
        self.config, self.clock = config, clock
        pin(self.root, meaning(query, time_zone))
        self.log = ManifestLog(self.root)
        self.last = self.log.newest()
        if self.last is not None:  # who wrote it may have died before its name was sure to last
            self.log.folder.sync()
        self.layout = Layout(query, self.last, keep_sizes=keep_sizes, clock=clock)
        self._pace_us: dict[str, int] = {}
        self.gatherer = Gatherer()
        self.events = EventLog(self.root, clock=clock)
        self.control = None if elastic is None else Controller(elastic, self._past(elastic))
        self.resources = resources or FixedSlots()
        self.backlog = backlog
        self._newest_files: dict[int, int] = {}
        self._calm_from = self.last.epoch + 1 + _RECOVERY_EPOCHS if self.last else 1
        self.requests = Requests(self.root, clock=clock)
        self.statistics: EpochStatistics | None = None
        """Those of the newest epoch of this run that had rows."""
        self.spark_log = None if spark_log is None else place_of(spark_log, fsync=config.fsync)
        self._check_spark_log()
        self.outputs = Outputs(self.root, query, publisher, fsync=config.fsync)
        self.retention = Retention(
            self.root, epochs=config.retainEpochs, seconds=config.retainSeconds
        )
        self.retention.open()
        self._lock = threading.Lock()
        self._stopping = False
        if self.last is not None:
            self._tell(self._untold(self.last))
            self._publish(self.last, verify=True)
            self.retention.sweep(self.last, self.outputs.staging)

    def _check_spark_log(self) -> None:
        if self.last is not None and self.spark_log is not None:
            wrong = check_log(self.spark_log, self.last.spark_log)
            if wrong:
                raise wrong[0]

    @property
    def query(self) -> CompiledQuery:
        """The query as it runs now."""
        return self.layout.query

    def rescale(self, subquery: int, instances: int, *, protocol: str = "auto") -> None:
        """Give a subquery another number of instances from the next epoch on."""
        self.layout.rescale(subquery, instances, cause="user", protocol=protocol)

    def move(self, subquery: int, moves: Mapping[int, int], *, protocol: str = "auto") -> None:
        """Give some buckets of a subquery to other instances from the next epoch on.

        Args:
            subquery: The subquery.
            moves: The new instance of each bucket that moves.
            protocol: How their state moves, one of `penstock.plan.changes.PROTOCOLS`.

        Raises:
            ConfigError: There is no such bucket or instance, or the protocol does not fit.
        """
        self.layout.move(subquery, moves, cause="user", protocol=protocol)

    def _carry_out(self, asked: Request, request: str) -> Sequence[Change]:
        return by_hand.carry_out(asked, request, self.layout, self.statistics)

    def reconfigurations(self) -> list[Reconfiguration]:
        """Return the newest record of every change of the checkpoint's history, oldest first."""
        found = read_events(self.root, "reconfiguration")
        return newest(event for event in found if isinstance(event, Reconfiguration))

    def run_epoch(self, epoch: int, execute: Execute, *, final: bool = False) -> EpochResult:
        """Run, commit and publish one epoch; only publish it if it was committed before.

        Raises:
            CheckpointError: The epoch does not follow the last one.
            FencedError: Another driver has committed the epoch.
        """
        with self._lock:
            if self._stopping:
                raise StoppedError(epoch=epoch)
            since = time.perf_counter()
            if self.last is not None and self.last.epoch == epoch:
                self._publish(self.last)
                return EpochResult(
                    manifest=self.last,
                    counts={},
                    reports=(),
                    replayed=True,
                    seconds=time.perf_counter() - since,
                )
            self._check_alone()
            self._check_follows(epoch)
            self._tell(self.requests.take_up(epoch, self.last, self._carry_out))
            before = self.last
            plan, reports = self._run(epoch, execute, final=final)
            manifest = self._manifest(plan, reports, time.perf_counter() - since)
            self.log.commit(manifest)
            self.last = manifest
            self.layout.committed(manifest.tails)
            self._pace_us = pace_us(before, manifest)
            self._publish(manifest)
            self.retention.committed(manifest, self.outputs.staging)
            counts, seconds = epoch_counts(reports), time.perf_counter() - since
            statistics = self.gatherer.gather(
                self.query,
                plan,
                reports,
                before,
                manifest,
                seconds=seconds,
                counts=counts,
                backlog=self._waiting_input(reports),
                published_at=self.clock(),
            )
            self._tell([*manifest.reconfigured, statistics])
            self.requests.committed()
            self.statistics = statistics if statistics.rows else self.statistics
            self._look_at_resources(epoch)
            self._decide(statistics)
            self._ask_for_slots()
            return EpochResult(
                manifest=manifest,
                counts=counts,
                reports=reports,
                seconds=seconds,
                statistics=statistics,
            )

    def _waiting_input(self, reports: Sequence[TaskReport]) -> int | None:
        self._newest_files = newest_files(reports, self._newest_files)
        return self.backlog(self._newest_files)

    def _untold(self, last: Manifest) -> list[Reconfiguration]:
        """Return the changes of an epoch whose driver died before it could tell of them."""
        if not last.reconfigured:
            return []
        with suppress(CheckpointError, OSError):
            told = self.reconfigurations()
            return [record for record in last.reconfigured if record not in told]
        return []

    def _tell(self, events: Sequence[Event]) -> None:
        """Write events; a log that cannot be written takes nothing from the query."""
        for event in events:
            with suppress(OSError):
                self.events.add(event)

    def _look_at_resources(self, epoch: int) -> None:
        """Take note of executors that have come or gone."""
        events = self.resources.events()
        self._tell([replace(event, epoch=epoch) for event in events])
        if any(event.what == "lost" for event in events):
            self._calm_from = epoch + 1 + _RECOVERY_EPOCHS

    def _ask_for_slots(self) -> None:
        """Ask for the slots that the layout needs, with what was just decided.

        A change takes effect with the next epoch whether or not its executors are there: until they
        come, tasks share the slots that there are. So no epoch waits for a machine, and a machine
        that never comes costs time but no result.
        """
        tasks = max(*self.query.stage_sizes, self.layout.instances_wanted())
        cores = min(1.0, self.control.rules.instance_cores) if self.control else 1.0
        self.resources.ask(max(1, math.ceil(tasks * cores)))

    def _past(self, rules: Elastic) -> Sequence[Past]:
        """Return what the controller wants to know of the time before; nothing if it is damaged."""
        wanted = {
            "statistics": rules.smoothing,
            "reconfiguration": 4 * len(self.query.subqueries),
            "decision": 1,
        }
        found: list[Event] = []
        for kind, last in wanted.items():
            with suppress(CheckpointError, OSError):
                found += read_events(self.root, kind, last=last)
        return [event for event in found if not isinstance(event, ExecutorEvent)]

    def _decide(self, statistics: EpochStatistics) -> None:
        """Ask the policy what to change from the next epoch on."""
        if self.control is None:
            return
        decided = self.control.observe(
            self.query,
            self.layout.maps,
            statistics,
            slots=self.resources.slots(),
            most_slots=self.resources.most(),
            moving=self.layout.moving(),
            recovering=statistics.epoch < self._calm_from,
        )
        if decided is None:
            return
        self._tell([decided])
        for change in decided.accepted:
            self.layout.propose(change)

    def _publish(self, manifest: Manifest, *, verify: bool = False) -> None:
        try:
            self.outputs.publish(manifest, verify=verify)
        except (CheckpointError, FileNotFoundError):  # another driver may have published, gone on
            self._check_alone()
            raise

    def _run(
        self, epoch: int, execute: Execute, *, final: bool
    ) -> tuple[EpochPlan, tuple[TaskReport, ...]]:
        weights = Weights(bytes_of=self._bytes_of, pace_us=self._pace_us)
        self.layout.begin_epoch(epoch, self.last, weights)
        plan = make_plan(
            self.query,
            self.last,
            epoch=epoch,
            checkpoint=str(self.root),
            config=self.config,
            sinks=self.outputs.plans,
            now=self._planned_at(epoch),
            final=final,
            writer=self.writer,
            maps=dict(self.layout.maps),
            tails=self.layout.tails,
        )
        try:
            return plan, tuple(execute(self.query, plan))
        except CheckpointError:  # another driver may have removed what this one needs
            self._check_alone()
            raise

    def _bytes_of(self, refs: Sequence[SegmentRef], buckets: int) -> Sequence[float]:
        found: list[float] = self.gatherer.state_bytes(refs, buckets).tolist()
        return found

    def _manifest(
        self, plan: EpochPlan, reports: tuple[TaskReport, ...], seconds: float
    ) -> Manifest:
        now, names = (
            self.clock(),
            {s.id: self.query.subquery_name(s.id) for s in self.query.subqueries},
        )
        return make_manifest(
            plan,
            self.last,
            reports,
            limit=self.config.maxRefusedRows,
            now=now,
            writer=self.writer,
            spark_log=None if plan.final else self._seal_spark_log(plan.epoch),
            names=names,
            reconfigured=records(
                self.layout.applied, names, plan, reports, at=now, seconds=seconds
            ),
        )

    def _planned_at(self, epoch: int) -> float:
        """Return the time of an epoch's plan; a plan that depends on it is redone with the same."""
        now = self.clock()
        if not may_idle(self.query):
            return now
        place = self.root / "planned" / f"{epoch:012d}.json"
        while True:
            try:
                place.write_new(seal("plan", {"epoch": epoch, "now": now}))
                return now
            except FileExistsError:
                pass
            try:
                plan = unseal("plan", place)
                break
            except FileNotFoundError:  # swept by a driver that has gone on
                self._check_alone()
        if plan["epoch"] != epoch:
            reason = f"damaged: it is the plan of epoch {plan['epoch']}"
            raise CheckpointError(path=str(place), reason=reason)
        return float(plan["now"])

    def _seal_spark_log(self, epoch: int) -> dict[str, str] | None:
        if self.spark_log is None:
            return None
        return seal_log(self.spark_log, epoch, self.last.spark_log if self.last else {})

    def _check_alone(self) -> None:
        """Check that no other driver has committed an epoch after this one's last."""
        newest = max(self.log.epochs(), default=-1)
        if newest > (self.last.epoch if self.last else -1):
            raise fenced(self.log.place(newest))

    def _check_follows(self, epoch: int) -> None:
        expected = self.last.epoch + 1 if self.last else 0
        if self.last is not None and self.last.final:
            raise CheckpointError(
                path=str(self.root),
                reason=(
                    "the query was finished and all its windows were closed; "
                    "use a new checkpoint folder for new input"
                ),
            )
        if epoch != expected:
            raise CheckpointError(
                path=str(self.root),
                reason=(
                    f"epoch {epoch} does not follow epoch {expected - 1}; "
                    "Spark's part of the checkpoint and Penstock's do not belong together"
                ),
            )

    def stop(self, patience_seconds: float) -> None:
        """Begin no more epochs, and wait a while for the one that is running."""
        self._stopping = True
        if self._lock.acquire(timeout=patience_seconds):
            self._lock.release()

    def close(self) -> None:
        """Write the last statistics, and remove the empty staging folders."""
        with suppress(OSError):
            self.events.flush()
        self.outputs.close()
