"""A scenario on the real disk, at a point from which it can be run again and again.

Law: every trial begins with the same bytes under the same names.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil

from penstock.files.disk import RealDisk
from penstock.files.place import LocalFiles
from penstock.testing.faults.disks import FaultyDisk, Point
from penstock.testing.faults.machine import Life, Machine, Rows
from penstock.testing.faults.oracle import (
    Difference,
    Outcome,
    check_truth,
    compare,
    missing_history,
    outcome_of,
    parted,
    unnamed_files,
)
from penstock.testing.faults.scenario import Moves, Scenario, scenario_of
from penstock.testing.faults.shapes import Layout

EPOCH = 4
"""The epoch in which faults come: it compacts, publishes, retires, sweeps and moves windows."""
LAST = 5
_PREFIX = "penstock-faults-run-"
_SEED = 1
"""The scenario whose epoch does all that; a test looks."""


class Stage:
    """A machine on the real disk, just before an epoch that does everything."""

    def __init__(self, folder: Path) -> None:
        """Run the epochs before it, keep what they left, and run on without faults."""
        found = scenario_of(_SEED, LAST + 1, "split")
        self.scenario: Scenario = replace(
            found,
            layout=Layout(instances=2),
            rescales={},
            moves={epoch: Moves(0, 1, 1, "window") for epoch in (EPOCH - 1, EPOCH)},
            retain_epochs=1,
            retain_seconds=0,
            finish=False,
        )
        self.folder, self.kept = folder / "now", folder / "before"
        machine = self._machine({})
        with machine.in_use():
            life = Life(machine, RealDisk())
            life.run_until(EPOCH - 1)
            self._plant_orphan(machine)
            shutil.copytree(self.folder, self.kept)
            self.tables = {sink: dict(rows) for sink, rows in machine.tables.items()}
            self.named = machine.named
            life.run_until(LAST)
            self.expected: Outcome = outcome_of(machine, LocalFiles())
            self.truth = check_truth(self.scenario, machine, self.expected)

    def _plant_orphan(self, machine: Machine) -> None:
        """Leave what a dead attempt would have left, so that the sweep has something to do."""
        staged = Path(machine.checkpoint) / "penstock" / "staged"
        staged.mkdir(exist_ok=True)
        (staged / f"{EPOCH:012d}-output-orphan.parquet").write_bytes(b"orphan")

    def _machine(self, tables: dict[int, dict[int, Rows]]) -> Machine:
        copied = {sink: dict(rows) for sink, rows in tables.items()}
        return Machine(self.scenario, folder=str(self.folder), tables=copied)

    @contextmanager
    def again(self) -> Iterator[Machine]:
        """Give the machine as it was before the epoch."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.kept, self.folder)
        machine = self._machine(self.tables)
        machine.named, machine.finished = self.named, EPOCH - 1
        with machine.in_use():
            yield machine

    def points(self) -> list[Point]:
        """Return the points of the epoch."""
        with self.again() as machine:
            disk = FaultyDisk(RealDisk())
            life = Life(machine, disk)
            before = len(disk.trace)
            life.step()
            return disk.trace[before:]

    def finish(self, machine: Machine) -> Difference:
        """Restart, run to the end, and compare."""
        machine.forget()
        life = Life(machine, RealDisk())
        life.run_until(LAST)
        return self.check(machine, life)

    def check(self, machine: Machine, life: Life) -> Difference:
        """Compare what a machine holds in the end with what it should."""
        odd = compare(self.expected, outcome_of(machine, LocalFiles()))
        wrong = (*missing_history(machine, LocalFiles()), *parted(machine.checkpoint))
        for note in (*self.truth.notes, *machine.odd, *wrong):
            odd.add(note)
        life.sweep()
        left = unnamed_files(machine, LocalFiles())
        if left:
            odd.add(f"garbage that no sweep takes: {left}")
        return odd


@contextmanager
def stage() -> Iterator[Stage]:
    """Give a stage in a temporary folder that is gone afterwards."""
    with scratch() as folder:
        yield Stage(folder)


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a temporary folder that is gone afterwards.

    In memory where that can be: only processes die here, not the machine, so that no call has to
    wait for a disk, and the disk of whoever runs this is spared. What a run that was killed has
    left goes too.
    """
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())
    for left in place.glob(f"{_PREFIX}*-*"):
        if not psutil.pid_exists(int(left.name.removeprefix(_PREFIX).partition("-")[0])):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=place) as folder:
        yield Path(folder)
