"""Zombies: tasks that go on writing when nobody waits for them any more.

The tasks of an epoch belong to a driver that was replaced, or are the slower of two attempts. Their
calls on the disk come one by one, in the middle of later epochs, after retirement, after sweeps.
Law: they change nothing, and what they write is gone after the next sweep.
"""

from __future__ import annotations

import random
import threading

from faults.report import CampaignResult, Log
from faults.tally import Tally
from penstock.base.errors import PenstockError
from penstock.files.disk import Entry
from penstock.files.place import LocalFiles
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.testing.faults.disks import Crash, FaultyDisk, SimulatedDisk
from penstock.testing.faults.machine import SOUND, Life, Machine, execution, files_of_thread
from penstock.testing.faults.oracle import (
    Difference,
    compare,
    missing_history,
    outcome_of,
    unnamed_files,
)
from penstock.testing.faults.simulate import clean_run

TRIALS_PER_SCENARIO = 8
PATIENCE_SECONDS = 30.0
Plan = tuple[CompiledQuery, EpochPlan]


def run(trials: int, seed: int, log: Log) -> CampaignResult:
    """Run some zombies, each by its seed."""
    tally = Tally(campaign="zombies", log=log)
    for number in range(seed, seed + trials):
        trial = _Haunting(number)
        odd = trial.run()
        tally.add(number, odd, faults=trial.zombies, recovery_ms=trial.machine.recovery_ms)
    return tally.result()


class GatedDisk(FaultyDisk):
    """A disk on which each call waits until it is let through."""

    def __init__(self, disk: SimulatedDisk) -> None:
        """Let nothing through yet."""
        super().__init__(disk)
        self.changed = threading.Condition()
        self.allowed = 0
        self.waiting = self.ended = False

    def let_through(self, calls: int) -> None:
        """Let some calls through, and wait until they are done."""
        with self.changed:
            self.allowed = calls
            self.waiting = self.waiting and not calls
            self.changed.notify_all()
            if not self.changed.wait_for(lambda: self.waiting or self.ended, PATIENCE_SECONDS):
                raise TimeoutError("a zombie hangs")

    def end(self) -> None:
        """Make no more calls."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def _wait(self) -> None:
        with self.changed:
            if not self.allowed:
                self.waiting = True
                self.changed.notify_all()
                self.changed.wait_for(lambda: self.allowed > 0, PATIENCE_SECONDS)
            self.allowed -= 1

    def _point(self, call: str, path: str) -> None:
        self._wait()
        super()._point(call, path)

    def read(self, path: str) -> bytes:
        """Return the bytes of a file."""
        self._wait()
        return super().read(path)

    def list(self, path: str) -> list[Entry]:
        """Return the names in a folder."""
        self._wait()
        return super().list(path)


class Zombie:
    """The tasks of an attempt at an epoch, going on by themselves."""

    def __init__(self, machine: Machine, disk: SimulatedDisk, attempt: Plan) -> None:
        """Begin, and stop before the first call on the disk."""
        self.disk, self.machine, self.attempt = GatedDisk(disk), machine, attempt
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self.disk.let_through(0)

    def _run(self) -> None:
        query, plan = self.attempt
        files = machine_files(self.machine, self.disk)
        batch = {} if plan.final else self.machine.scenario.batches[plan.epoch]
        try:
            with files_of_thread(files):
                execution(batch, self.machine.worker)(query, plan)
        except (PenstockError, OSError):
            pass  # what it needs may be gone; nobody listens to it
        finally:
            self.disk.end()

    def go_on(self, calls: int) -> None:
        """Make some more calls on the disk."""
        if not self.disk.ended:
            self.disk.let_through(calls)

    def finish(self) -> None:
        """Make all the calls that are left."""
        while not self.disk.ended:
            self.disk.let_through(1000)
        self.thread.join(PATIENCE_SECONDS)


def machine_files(machine: Machine, disk: FaultyDisk) -> LocalFiles:
    """Return the files of one process of a machine."""
    return machine.store.files(disk, unique=machine.unique)


class _Haunting:
    """One run with zombies."""

    def __init__(self, seed: int) -> None:
        self.clean = clean_run(100_000 + seed // TRIALS_PER_SCENARIO)
        self.choice = random.Random(f"zombie {seed}")
        scenario = self.clean.scenario
        first = self.choice.randrange(-1, scenario.epochs - 3)
        self.until = min(scenario.epochs - 1, first + self.choice.choice((2, 3, 5)))
        snapshot = self.clean.snapshots[first]
        self.disk = snapshot.disk.copy()
        self.machine = snapshot.machine(scenario, SOUND, first)
        self.alive: list[Zombie] = []
        self.zombies = 0

    def run(self) -> Difference:
        odd = Difference()
        with self.machine.in_use():
            try:
                odd = self._play()
            except Exception as error:  # whatever it is, the trial has failed
                odd.add(f"{type(error).__name__}: {error}")
            finally:
                for zombie in self.alive:
                    zombie.finish()
        return odd

    def _play(self) -> Difference:
        life = Life(self.machine, self.disk)
        while life.next_epoch <= self.until:
            if self.choice.random() < 0.6 or not self.zombies:
                self._attempt(life)
                if self.choice.random() < 0.5:  # the driver was replaced as well
                    life = Life(self.machine, self.disk)
            self._haunt()
            life.step()
            self._haunt()
        for zombie in self.alive:
            zombie.finish()
        return self._check()

    def _attempt(self, life: Life) -> None:
        """Begin an epoch and leave its tasks to themselves."""
        plans: list[Plan] = []

        def begin(query: CompiledQuery, plan: EpochPlan) -> list[TaskReport]:
            plans.append((query, plan))
            raise Crash

        epoch = life.next_epoch
        life.now = 1000.0 + 7 * epoch
        try:
            with life.using():
                life.driver.run_epoch(epoch, begin, final=life.scenario.is_final(epoch))
        except Crash:
            self.alive.append(Zombie(self.machine, self.disk, plans[0]))
            self.zombies += 1

    def _haunt(self) -> None:
        for zombie in self.alive:
            zombie.go_on(self.choice.choice((0, 1, 3, 10, 30)))

    def _check(self) -> Difference:
        """Compare with the clean run, and look for what a sweep leaves."""
        life = Life(self.machine, self.disk)
        files = LocalFiles(self.disk)
        odd = compare(self.clean.outcome(self.until), outcome_of(self.machine, files))
        for note in (
            *self.machine.odd,
            *missing_history(self.machine, files),
            *self.clean.odd.notes,
        ):
            odd.add(note)
        life.sweep()
        left = unnamed_files(self.machine, files)
        if left:
            odd.add(f"{len(left)} files that no manifest names: {left[:5]}")
        return odd
