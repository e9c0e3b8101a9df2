"""The driver of a query: runs epochs one after the other and commits them.

It knows no Spark: how tasks are run comes in as a function, and so does the clock. Law: an epoch
whose manifest exists is never run again, only published; one whose manifest does not exist has left
nothing that anybody sees.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from penstock.compiler.fuse import fuse_units
from penstock.compiler.size import size_subclusters
from penstock.config import Config
from penstock.errors import CheckpointError, StoppedError
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, StagedFile, TaskReport
from penstock.runtime.epoch import epoch_counts, make_manifest, make_plan
from penstock.runtime.pinned import pin
from penstock.sinks.publish import publish_folder
from penstock.sinks.staging import staging_folder
from penstock.state.files import write_new
from penstock.state.manifests import Manifest, ManifestLog

Execute = Callable[[CompiledQuery, EpochPlan], Sequence[TaskReport]]


class Publisher(Protocol):
    """Gives the rows of a committed epoch to a sink that is not a folder."""

    def __call__(self, sink: int, epoch: int, files: Sequence[StagedFile]) -> None:
        """Publish one epoch for one sink; may be called again for the same epoch."""
        ...


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
        checkpoint: Path,
        config: Config,
        *,
        publisher: Publisher,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Open a checkpoint for a query, or begin a new one."""
        self.root = checkpoint / "penstock"
        self.root.mkdir(parents=True, exist_ok=True)
        self.query, self.config = query, config
        self.publisher, self.clock = publisher, clock
        pin(self.root, query)
        self.log = ManifestLog(self.root)
        self.log.remove_orphans()
        self.staging = {
            number: str(staging_folder(sink.target).resolve())
            for number, sink in query.sinks
            if sink.kind == "parquet"
        }
        self.last = self.log.newest()
        self.reconfigurations: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._stopping = False
        if self.last is not None:
            self._publish(self.last)

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
        """
        with self._lock:
            if self._stopping:
                raise StoppedError(epoch=epoch)
            since = time.perf_counter()
            done = self.log.read(epoch)
            if done is not None:
                self._publish(done)
                return EpochResult(
                    manifest=done,
                    counts={},
                    reports=(),
                    replayed=True,
                    seconds=time.perf_counter() - since,
                )
            self._check_follows(epoch)
            plan = make_plan(
                self.query,
                self.last,
                epoch=epoch,
                checkpoint=str(self.root),
                config=self.config,
                staging=self.staging,
                now=self.clock(),
                final=final,
            )
            reports = tuple(execute(self.query, plan))
            manifest = make_manifest(
                plan, self.last, reports, limit=self.config.maxRefusedRows, now=self.clock()
            )
            self.log.commit(manifest, fsync=self.config.fsync)
            self.last = manifest
            self._publish(manifest)
            self.log.retire(epoch)
            return EpochResult(
                manifest=manifest,
                counts=epoch_counts(reports),
                reports=reports,
                seconds=time.perf_counter() - since,
            )

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

    def _publish(self, manifest: Manifest) -> None:
        marker = self.root / "published" / f"{manifest.epoch:012d}"
        if marker.exists():
            return
        for number, sink in self.query.sinks:
            files = [s for s in manifest.staged if s.kind == "output" and s.operator == number]
            if sink.kind == "parquet":
                publish_folder(Path(sink.target), manifest.epoch, files, fsync=self.config.fsync)
            else:
                self.publisher(number, manifest.epoch, files)
        for kind in ("late", "dead"):
            for operator in {s.operator for s in manifest.staged if s.kind == kind}:
                files = [s for s in manifest.staged if (s.kind, s.operator) == (kind, operator)]
                target = self.root / kind / str(operator)
                publish_folder(target, manifest.epoch, files, fsync=self.config.fsync)
        write_new(marker, b"", fsync=False)
        self._forget(manifest.epoch)

    def _forget(self, epoch: int) -> None:
        """Remove what earlier epochs staged for sinks that are not folders, and their markers."""
        (self.root / "published" / f"{epoch - 1:012d}").unlink(missing_ok=True)
        for path in (self.root / "staged").glob("*-output-*.parquet"):
            if int(path.name.split("-", 1)[0]) < epoch:
                path.unlink(missing_ok=True)

    def stop(self, patience_seconds: float) -> None:
        """Begin no more epochs, and wait a while for the one that is running."""
        self._stopping = True
        if self._lock.acquire(timeout=patience_seconds):
            self._lock.release()

    def close(self) -> None:
        """Remove the empty staging folders."""
        for folder in self.staging.values():
            if Path(folder).is_dir() and not any(Path(folder).iterdir()):
                Path(folder).rmdir()


def read_side_output(root: Path, kind: str) -> dict[int, pl.DataFrame]:
    """Return the published late rows or dead letters of a checkpoint, by source."""
    found = {}
    for folder in sorted((root / kind).glob("*")):
        files = sorted(folder.glob("epoch=*/*.parquet"), key=lambda p: int(p.parent.name[6:]))
        frames = [
            pl.read_parquet(p, hive_partitioning=False).with_columns(
                pl.lit(int(p.parent.name[6:]), dtype=pl.Int64).alias("epoch")
            )
            for p in files
        ]
        if frames:
            found[int(folder.name)] = pl.concat(frames, how="diagonal")
    return found
