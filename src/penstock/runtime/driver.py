"""The driver of a query: runs epochs one after the other and commits them.

It knows no Spark: how tasks are run comes in as a function, and so does the clock. Law: an epoch
whose manifest exists is never run again, only published; one whose manifest does not exist has left
nothing that anybody sees, and is run again with the same plan.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.compiler.fuse import fuse_units
from penstock.compiler.size import size_subclusters
from penstock.config import Config
from penstock.errors import CheckpointError, StoppedError
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.runtime.epoch import epoch_counts, make_manifest, make_plan, may_idle
from penstock.runtime.outputs import Outputs, Publisher
from penstock.runtime.pinned import meaning, pin
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

        Raises:
            CheckpointError: The checkpoint belongs to another query, or is damaged.
        """
        self.root = place_of(checkpoint, fsync=config.fsync) / "penstock"
        self.writer = self.root.files.unique()
        self.query, self.config, self.clock = query, config, clock
        pin(self.root, meaning(query, time_zone))
        self.log = ManifestLog(self.root)
        self.last = self.log.newest()
        if self.last is not None:  # who wrote it may have died before its name was sure to last
            self.log.folder.sync()
        self.spark_log = None if spark_log is None else place_of(spark_log, fsync=config.fsync)
        self._check_spark_log()
        self.outputs = Outputs(self.root, query, publisher, fsync=config.fsync)
        self.retention = Retention(
            self.root, epochs=config.retainEpochs, seconds=config.retainSeconds
        )
        self.retention.open()
        self.reconfigurations: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._stopping = False
        if self.last is not None:
            self._publish(self.last, verify=True)
            self.retention.sweep(self.last, self.outputs.staging)

    def _check_spark_log(self) -> None:
        if self.last is not None and self.spark_log is not None:
            wrong = check_log(self.spark_log, self.last.spark_log)
            if wrong:
                raise wrong[0]

    def rescale(self, subquery: int, instances: int) -> None:
        """Give a subquery another number of instances from the next epoch on."""
        with self._lock:
            wanted = {s.id: s.instances for s in self.query.subqueries}
            if subquery not in wanted:
                raise ValueError(f"no subquery {subquery}; subqueries: {sorted(wanted)}")
            before, epoch = wanted[subquery], self.last.epoch + 1 if self.last else 0
            self.query = fuse_units(size_subclusters(self.query, wanted | {subquery: instances}))
            after = self.query.subqueries[subquery].instances
            self.reconfigurations.append(
                {
                    "epoch": epoch,
                    "subquery": subquery,
                    "before": before,
                    "after": after,
                    "sentence": f"the user gave subquery {subquery} {after} instances instead of "
                    f"{before}, from epoch {epoch} on",
                }
            )

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
            manifest, reports = self._run(epoch, execute, final=final)
            self.log.commit(manifest)
            self.last = manifest
            self._publish(manifest)
            self.retention.committed(manifest, self.outputs.staging)
            return EpochResult(
                manifest=manifest,
                counts=epoch_counts(reports),
                reports=reports,
                seconds=time.perf_counter() - since,
            )

    def _publish(self, manifest: Manifest, *, verify: bool = False) -> None:
        try:
            self.outputs.publish(manifest, verify=verify)
        except (CheckpointError, FileNotFoundError):  # another driver may have published, gone on
            self._check_alone()
            raise

    def _run(
        self, epoch: int, execute: Execute, *, final: bool
    ) -> tuple[Manifest, tuple[TaskReport, ...]]:
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
        )
        try:
            reports = tuple(execute(self.query, plan))
        except CheckpointError:  # another driver may have removed what this one needs
            self._check_alone()
            raise
        manifest = make_manifest(
            plan,
            self.last,
            reports,
            limit=self.config.maxRefusedRows,
            now=self.clock(),
            writer=self.writer,
            spark_log=None if final else self._seal_spark_log(epoch),
        )
        return manifest, reports

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
        """Remove the empty staging folders."""
        self.outputs.close()
