"""A machine for a scenario: a disk, the lives of drivers on it, and what they leave.

Everything is the engine's own, down to the calls on the disk. Law: a life ends only by its crash,
by an error or by its end, and all that one life hands to the next is on the disk (and, if only the
driver died, in the workers' memory).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from penstock.driver.driver import Driver, EpochResult
from penstock.files.disk import Disk
from penstock.files.place import FileSystem, LocalFiles, in_place_of_local
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.task.worker import Worker
from penstock.testing.caught import catching
from penstock.testing.faults.scenario import EPOCH_SECONDS, TIGHT, Moves, Scenario, replaced
from penstock.testing.faults.shapes import Layout
from penstock.testing.runner import Batch, frame_splits, run_stages

FOLDER = "/sim"
Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A way to keep files: the sound one, or one that is broken on purpose.

    Attributes:
        name: What is wrong with it.
        files: Makes the file system on a disk.
        changes: What else is other than it should be: owner, name, value.
    """

    name: str
    files: Callable[..., LocalFiles] = LocalFiles
    changes: tuple[tuple[Any, str, Any], ...] = ()


SOUND = Store(name="sound")


@dataclass
class Machine:
    """What lasts from one life of a driver to the next.

    Attributes:
        scenario: What runs on it.
        folder: Where the checkpoint and the sinks are.
        store: How files are kept.
        tables: What sinks that are not folders have got: rows by sink and epoch. They are outside
            of the machine, so no crash takes them.
        finished: The last epoch that a driver has reported as done.
        odd: What no driver may do, as text.
        worker: What tasks leave in memory for those after them.
    """

    scenario: Scenario
    folder: str = FOLDER
    store: Store = SOUND
    tables: dict[int, dict[int, Rows]] = field(default_factory=dict)
    finished: int = -1
    odd: list[str] = field(default_factory=list)
    recovery_ms: list[float] = field(default_factory=list)
    named: int = 0
    worker: Worker = field(default_factory=Worker)

    def forget(self) -> None:
        """Lose the workers, and with them what they had in memory."""
        self.worker = Worker()

    @property
    def checkpoint(self) -> str:
        """The checkpoint folder."""
        return f"{self.folder}/checkpoint"

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Use this machine's store, with limits that short runs reach."""
        changes = (*TIGHT, *self.store.changes)
        with replaced(changes), in_place_of_local(_of_thread):
            yield

    def unique(self) -> str:
        """Return a word that nobody has used."""
        self.named += 1
        return f"{self.named:08x}"

    def publish(self, sink: int, epoch: int, frame: pl.DataFrame) -> None:
        """Take the rows of an epoch for a sink that is not a folder."""
        rows = frame.to_dicts()
        before = self.tables.setdefault(sink, {}).get(epoch)
        if before is not None and sorted(map(repr, before)) != sorted(map(repr, rows)):
            self.odd.append(f"sink {sink} got other rows when epoch {epoch} was published again")
        self.tables[sink][epoch] = rows


class Life:
    """A driver from its start to its death."""

    def __init__(self, machine: Machine, disk: Disk, layout: Layout | None = None) -> None:
        """Start a driver; what is on the disk is recovered now."""
        self.machine, self.scenario = machine, machine.scenario
        self.now = 0.0
        self.files = machine.store.files(disk, unique=machine.unique)
        query = self.scenario.query(machine.folder, layout)
        since, finished = time.perf_counter(), machine.finished
        with self.using():
            self.driver = Driver(
                query,
                machine.checkpoint,
                self.scenario.config,
                kinds=catching(machine.publish),
                clock=lambda: self.now,
            )
        machine.recovery_ms.append((time.perf_counter() - since) * 1000)
        if self.next_epoch <= finished:
            machine.odd.append(
                f"epoch {finished} was done, and after a crash epoch {self.next_epoch} comes next"
            )

    @contextmanager
    def using(self) -> Iterator[None]:
        """Let local paths mean this life's disk."""
        with files_of_thread(self.files):
            yield

    @property
    def next_epoch(self) -> int:
        """The number of the epoch that comes next."""
        return self.driver.last.epoch + 1 if self.driver.last else 0

    def run_until(self, epoch: int) -> None:
        """Run epochs up to the one given."""
        while self.next_epoch <= epoch:
            self.step()

    def step(self) -> EpochResult:
        """Run the next epoch, with the rescale and the moves that come before it."""
        epoch = self.next_epoch
        instances = self.scenario.rescales.get(epoch)
        if instances is not None:
            last = len(self.driver.query.subqueries) - 1
            self.driver.rescale(last, instances)
        if epoch in self.scenario.moves:
            self._move(self.scenario.moves[epoch])
        return self.run(epoch)

    def _move(self, moves: Moves) -> None:
        layout = self.driver.layout
        for subquery in [s.id for s in self.driver.query.subqueries]:
            owners = layout.upcoming(subquery)
            if layout.query.is_movable(subquery) and owners.instances > 1:
                windows = self.driver.query.window_of(subquery) is not None
                protocol = moves.protocol if windows else "state"
                self.driver.move(subquery, moves.of(owners), protocol=protocol)

    def run(self, epoch: int) -> EpochResult:
        """Run an epoch, or publish it again if it was committed before."""
        self.now = 1000 + EPOCH_SECONDS * epoch
        final = self.scenario.is_final(epoch)
        batch: Batch = {} if final else self.scenario.batches[epoch]
        with self.using():
            result = self.driver.run_epoch(
                epoch, execution(batch, self.machine.worker), final=final
            )
        self.machine.finished = max(self.machine.finished, epoch)
        return result

    def sweep(self) -> int:
        """Look through all folders for what dead attempts left; return how many files went."""
        if self.driver.last is None:
            return 0
        with self.using():
            return self.driver.retention.sweep(self.driver.last, self.driver.outputs.staging)


def execution(
    batch: Batch, worker: Worker
) -> Callable[[CompiledQuery, EpochPlan], list[TaskReport]]:
    """Return what runs the tasks of an epoch on some rows, in this process."""

    def execute(query: CompiledQuery, plan: EpochPlan) -> list[TaskReport]:
        return run_stages(query, plan, frame_splits(query, batch), worker)

    return execute


_HERE = threading.local()


@contextmanager
def files_of_thread(files: FileSystem) -> Iterator[None]:
    """Let local paths mean a file system in this thread; others have their own.

    It works inside of `Machine.in_use`, which is for all threads at once.
    """
    before = getattr(_HERE, "files", None)
    _HERE.files = files
    try:
        yield
    finally:
        _HERE.files = before


def _of_thread(fsync: bool) -> FileSystem:
    files: FileSystem | None = getattr(_HERE, "files", None)
    return LocalFiles(fsync=fsync) if files is None else files
