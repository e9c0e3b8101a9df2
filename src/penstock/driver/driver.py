"""The driver of a query: runs epochs one after the other and commits them.

It knows no Spark: how tasks are run comes in as a function, and so does the clock. Law: an epoch
whose manifest exists is never run again, only published; one whose manifest does not exist has left
nothing that anybody sees, and is run again with the same plan.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.base.config import Config
from penstock.base.errors import CheckpointError, FinishedError, OutputError, StoppedError
from penstock.control.elastic import Elastic
from penstock.driver.again import Retries
from penstock.driver.epoch import epoch_counts, file_counts, make_manifest, make_plan, may_idle
from penstock.driver.layout import Layout
from penstock.driver.logs import log_epoch, log_late_publication, log_replay, log_start
from penstock.driver.outputs import Outputs
from penstock.driver.pinned import meaning, pin
from penstock.driver.resources import Resources
from penstock.driver.steering.reconfigure import records
from penstock.driver.steering.steering import Backlog, Steering
from penstock.files.place import explain_os_errors, place_of
from penstock.plan.buckets import BucketSet
from penstock.plan.changes import USER, MoveProtocol
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.plan.statistics import EpochStatistics
from penstock.sinks.registry import find_kind
from penstock.sinks.sink import Kinds
from penstock.state.care.survey import numbers
from penstock.state.manifests import Manifest, ManifestLog, make_fenced_error
from penstock.state.planned import Planned, read_planned, write_planned
from penstock.state.published import is_published
from penstock.state.retention import Retention
from penstock.state.spark_log import check_log, seal_log

Execute = Callable[[CompiledQuery, EpochPlan], Sequence[TaskReport]]
Hold = Callable[[int], Mapping[str, BucketSet]]
"""Tells which buckets of which operators stay at their marks in an epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochResult:
    """What an epoch did, for progress reports."""

    manifest: Manifest
    counts: Mapping[str, int]
    reports: tuple[TaskReport, ...]
    seconds: float
    files: Mapping[str, int] = field(default_factory=dict)
    replayed: bool = False
    statistics: EpochStatistics | None = None


class Driver:
    """Runs the epochs of one query on one checkpoint."""

    def __init__(
        self,
        query: CompiledQuery,
        checkpoint: str | Path,
        config: Config,
        *,
        kinds: Kinds = find_kind,
        session: object = None,
        clock: Callable[[], float] = time.time,
        time_zone: str = "UTC",
        spark_log: str | Path | None = None,
        keep_sizes: bool = False,
        elastic: Elastic | None = None,
        resources: Resources | None = None,
        backlog: Backlog = lambda reached: None,
        hold: Hold = lambda epoch: {},
    ) -> None:
        """Open a checkpoint for a query, or begin a new one.

        Args:
            query: The compiled query.
            checkpoint: The checkpoint's path or URI.
            config: How the query runs.
            kinds: Finds what is done with the rows of a kind of sink.
            session: The session of the engine, for sinks that give rows to it.
            clock: Tells the time.
            time_zone: The time zone that the query's times are in.
            spark_log: Spark's own checkpoint folder; none if Spark does not drive the query.
            keep_sizes: Whether subqueries are as large as they were in the checkpoint.
            elastic: The rules by which the query fits itself to its load; none to leave it be.
            resources: Where instances run; one slot unless given.
            backlog: Tells how much input waits, if it is known; it is told how far each source
                was read.
            hold: Tells which buckets stay behind in an epoch; none unless given.

        Raises:
            CheckpointError: The checkpoint belongs to another query, is damaged, or cannot be
                written.
            OutputError: The folder of a sink belongs to another query.
        """
        self.root = place_of(checkpoint, fsync=config.fsync) / "penstock"
        self.writer = self.root.files.unique()
        self.config, self.clock, self.hold = config, clock, hold
        self.log = ManifestLog(self.root)
        with explain_os_errors(self.root.parent):
            self.last = self.log.newest()
            committed = self.last.query if self.last else None
            self.word = pin(self.root, meaning(query, time_zone), committed)
        if self.last is not None:  # who wrote it may have died before its name was sure to last
            self.log.folder.sync()
        self.layout = Layout(query, self.last, keep_sizes=keep_sizes, clock=clock)
        self.spark_log = None if spark_log is None else place_of(spark_log, fsync=config.fsync)
        self._check_spark_log()
        self.outputs = Outputs(
            self.root,
            query,
            kinds=kinds,
            session=session,
            fsync=config.fsync,
            owner=self.word,
            last=self.last,
        )
        self.retention = Retention(
            self.root, epochs=config.retainEpochs, seconds=config.retainSeconds
        )
        self.retention.open()
        self.retries = Retries(self.root, query, clock)
        self._lock = threading.Lock()
        self._stopping = False
        self.steering = Steering(
            self.root,
            self.layout,
            self.last,
            clock=clock,
            elastic=elastic,
            resources=resources,
            backlog=backlog,
        )
        log_start(self.query, str(self.root.parent), self.last)
        if self.last is not None:
            if not is_published(self.root, self.last):
                log_late_publication(self.last.epoch)
            self._publish(self.last, verify=True)
            self.retention.sweep(self.last, self.outputs.staging)

    def _check_spark_log(self) -> None:
        if self.spark_log is None:
            return
        reached = self.last.epoch if self.last else -1
        committed = max(numbers(self.spark_log / "commits"), default=-1)
        if committed > reached:
            self._check_alone()
            raise CheckpointError(
                path=str(self.log.place(committed)),
                reason=(
                    f"missing: Spark has gone on to epoch {committed}, and the newest manifest is "
                    + (f"that of epoch {reached}" if self.last else "gone, too")
                    + f"; `penstock state repair {self.root.parent}` shows what can be done"
                ),
            )
        wrong = check_log(self.spark_log, self.last.spark_log) if self.last else []
        if wrong:
            raise wrong[0]

    @property
    def query(self) -> CompiledQuery:
        """The query as it runs now."""
        return self.layout.query

    def rescale(self, subquery: int, instances: int, *, protocol: MoveProtocol = "auto") -> None:
        """Give a subquery another number of instances from the next epoch on."""
        self.layout.rescale(subquery, instances, cause=USER, protocol=protocol)

    def move(
        self, subquery: int, moves: Mapping[int, int], *, protocol: MoveProtocol = "auto"
    ) -> None:
        """Give some buckets of a subquery to other instances from the next epoch on.

        Args:
            subquery: The subquery.
            moves: The new instance of each bucket that moves.
            protocol: How their state moves, see `penstock.plan.changes.MoveProtocol`.

        Raises:
            ConfigError: There is no such bucket or instance, or the protocol does not fit.
        """
        self.layout.move(subquery, moves, cause=USER, protocol=protocol)

    def run_epoch(self, epoch: int, execute: Execute, *, final: bool = False) -> EpochResult:
        """Run, commit and publish one epoch; only publish it if it was committed before.

        Raises:
            CheckpointError: The epoch does not follow the last one.
            FencedError: Another driver has committed the epoch.
            FinishedError: The query is finished, and this is input that came later.
        """
        with self._lock:
            if self._stopping:
                raise StoppedError(epoch=epoch)
            since = time.perf_counter()
            if self.last is not None and _was_run(self.last, epoch, final=final):
                log_replay(epoch)
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
            self.steering.before_epoch(epoch, self.last)
            before = self.last
            plan, reports = self._run(epoch, execute, final=final)
            manifest = self._manifest(plan, reports, time.perf_counter() - since)
            self.log.commit(manifest)
            self.last = manifest
            self.retries.committed()
            self.layout.committed(manifest.tails)
            self._publish(manifest)
            self.retention.committed(manifest, self.outputs.staging)
            seconds, counts = time.perf_counter() - since, epoch_counts(reports)
            log_epoch(before, manifest, counts, seconds)
            return EpochResult(
                manifest=manifest,
                counts=counts,
                files=file_counts(reports, manifest, plan.again),
                reports=reports,
                seconds=seconds,
                statistics=self.steering.after_epoch(
                    plan, reports, before, manifest, seconds=seconds
                ),
            )

    def _publish(self, manifest: Manifest, *, verify: bool = False) -> None:
        try:
            self.outputs.publish(manifest, verify=verify)
        except (
            CheckpointError,
            OutputError,
            FileNotFoundError,
        ):  # another driver may have published, gone on
            self._check_alone()
            raise

    def _run(
        self, epoch: int, execute: Execute, *, final: bool
    ) -> tuple[EpochPlan, tuple[TaskReport, ...]]:
        self.layout.begin_epoch(epoch, self.last, self.steering.weights())
        now = self._planned_at(epoch)
        plan = make_plan(
            self.query,
            self.last,
            epoch=epoch,
            checkpoint=str(self.root),
            config=self.config,
            sinks=self.outputs.plans,
            now=now,
            final=final,
            writer=self.writer,
            maps=dict(self.layout.maps),
            tails=self.layout.tails,
            again=self.retries.plan(self.last, now=now, final=final),
            held=self.hold(epoch),
        )
        try:
            return plan, tuple(execute(self.query, plan))
        except CheckpointError:  # another driver may have removed what this one needs
            self._check_alone()
            raise

    def _manifest(
        self, plan: EpochPlan, reports: tuple[TaskReport, ...], seconds: float
    ) -> Manifest:
        now = self.clock()
        names = {s.id: self.query.subquery_name(s.id) for s in self.query.subqueries}
        return make_manifest(
            plan,
            self.last,
            reports,
            limit=self.config.maxRefusedRows,
            now=now,
            writer=self.writer,
            word=self.word,
            spark_log=None if plan.final else self._seal_spark_log(plan.epoch),
            names=names,
            sources=self.query.source_names,
            most_files=self.config.maxRefusedFiles,
            reconfigured=records(
                self.layout.applied, names, plan, reports, at=now, seconds=seconds
            ),
        )

    def _planned_at(self, epoch: int) -> float:
        """Return the time of an epoch's plan; a plan that depends on it is redone with the same."""
        now = self.clock()
        if not may_idle(self.query) and not (self.last and self.last.waiting_files):
            return now
        while True:
            try:
                write_planned(self.root, Planned(epoch=epoch, now=now))
                return now
            except FileExistsError:
                pass
            try:
                return read_planned(self.root, epoch).now
            except FileNotFoundError:  # swept by a driver that has gone on
                self._check_alone()

    def _seal_spark_log(self, epoch: int) -> dict[str, str] | None:
        if self.spark_log is None:
            return None
        return seal_log(self.spark_log, epoch, self.last.spark_log if self.last else {})

    def _check_alone(self) -> None:
        """Check that no other driver has committed an epoch after this one's last."""
        newest = max(self.log.epochs(), default=-1)
        if newest > (self.last.epoch if self.last else -1):
            raise make_fenced_error(self.log.place(newest))

    def _check_follows(self, epoch: int) -> None:
        expected = self.last.epoch + 1 if self.last else 0
        self.check_unfinished()
        if epoch != expected:
            raise CheckpointError(
                path=str(self.root),
                reason=(
                    f"epoch {epoch} does not follow epoch {expected - 1}; "
                    "Spark's part of the checkpoint and Penstock's do not belong together"
                ),
            )

    def check_unfinished(self) -> None:
        """Check that the query may have more input.

        Raises:
            FinishedError: It was finished.
        """
        if self.last is not None and self.last.final:
            raise FinishedError(path=str(self.root.parent), epoch=self.last.epoch)

    def finish(self, execute: Execute) -> EpochResult | None:
        """Close all windows, because the input is complete for good.

        Returns:
            What the closing epoch did; None if the query was finished before.
        """
        if self.last is not None and self.last.final:
            return None
        return self.run_epoch(self.last.epoch + 1 if self.last else 0, execute, final=True)

    def stop(self, patience_seconds: float) -> None:
        """Begin no more epochs, and wait a while for the one that is running."""
        self._stopping = True
        if self._lock.acquire(timeout=patience_seconds):
            self._lock.release()

    def close(self) -> None:
        """Write the last statistics, and close the sinks."""
        self.steering.close()
        self.outputs.close()


def _was_run(last: Manifest, epoch: int, *, final: bool) -> bool:
    """Return whether an epoch that is asked for was committed before.

    The closing epoch takes no input, so Spark does not know of it: it has the number that Spark
    gives to the input that comes next. That is told apart by ``final``. If Spark has not heard of
    the commit of its own last epoch, it asks again for the one before the closing one.
    """
    if last.final and not final:
        return epoch == last.epoch - 1
    return epoch == last.epoch and last.final == final
