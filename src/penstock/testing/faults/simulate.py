"""The simulation: a scenario on a disk in memory, with crashes wherever a seed puts them.

A trial begins where the clean run of its scenario was after some epoch, which saves the time of the
epochs before. Law: a trial is a value of its seed, so one that fails fails again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache, partial

from penstock.base.errors import FencedError
from penstock.files.place import LocalFiles
from penstock.testing.faults.disks import Crash, Fault, FaultyDisk, SimulatedDisk
from penstock.testing.faults.interleave import race
from penstock.testing.faults.machine import SOUND, Life, Machine, Rows, Store
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
from penstock.testing.faults.scenario import Scenario, any_layout, scenario_of
from penstock.testing.faults.shapes import Layout

TRIALS_PER_SCENARIO = 20
"""So many trials share a clean run."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A machine between two epochs."""

    disk: SimulatedDisk
    tables: dict[int, dict[int, Rows]]
    named: int

    def machine(self, scenario: Scenario, store: Store, finished: int) -> Machine:
        """Return a machine that goes on from here."""
        return Machine(
            scenario,
            store=store,
            tables={sink: dict(epochs) for sink, epochs in self.tables.items()},
            finished=finished,
            named=self.named,
        )


class Clean:
    """A run of a scenario without faults, epoch by epoch."""

    def __init__(self, scenario: Scenario) -> None:
        """Run it, keep the machine after each epoch, and check the end against the raw rows."""
        self.scenario, self.disk = scenario, SimulatedDisk()
        self.machine = Machine(scenario)
        self.snapshots = {-1: self._snapshot()}
        self._outcomes: dict[int, Outcome] = {}
        with self.machine.in_use():
            life = Life(self.machine, self.disk)
            for epoch in range(scenario.epochs):
                life.step()
                self.snapshots[epoch] = self._snapshot()
        self.odd = check_truth(scenario, self.machine, self.outcome(scenario.epochs - 1))

    def _snapshot(self) -> Snapshot:
        tables = {sink: dict(epochs) for sink, epochs in self.machine.tables.items()}
        return Snapshot(self.disk.copy(), tables, self.machine.named)

    def outcome(self, epoch: int) -> Outcome:
        """Return what the run had left after an epoch."""
        if epoch not in self._outcomes:
            snapshot = self.snapshots[epoch]
            machine = snapshot.machine(self.scenario, SOUND, epoch)
            with machine.in_use():
                self._outcomes[epoch] = outcome_of(machine, LocalFiles(snapshot.disk.copy()))
        return self._outcomes[epoch]


@lru_cache(maxsize=8)
def clean_run(seed: int) -> Clean:
    """Return the clean run of a scenario."""
    return Clean(scenario_of(seed))


@dataclass(slots=True, kw_only=True)
class Trial:
    """What a trial did and found."""

    seed: int
    crashes: int = 0
    recovery_ms: list[float] = field(default_factory=list)
    fenced: int = 0
    odd: Difference = field(default_factory=Difference)


def simulate(seed: int, store: Store = SOUND, *, racing: float = 0.1) -> Trial:
    """Run the trial of a seed: crashes, restarts in other layouts, at times two drivers at once.

    Args:
        seed: What everything is chosen by.
        store: How files are kept.
        racing: How likely two drivers run instead of one.
    """
    clean = clean_run(seed // TRIALS_PER_SCENARIO)
    return _Simulation(clean, seed, store, racing).run()


class _Simulation:
    def __init__(self, clean: Clean, seed: int, store: Store, racing: float) -> None:
        self.clean, self.trial, self.racing = clean, Trial(seed=seed), racing
        self.choice = random.Random(f"trial {seed}")
        last = clean.scenario.epochs - 1
        whole = self.choice.random() < 0.05
        first = -1 if whole else self.choice.randrange(-1, last - 1)
        self.until = last if whole else min(last, first + self.choice.choice((1, 2, 2, 3, 4)))
        snapshot = clean.snapshots[first]
        self.disk = snapshot.disk.copy()
        self.machine = snapshot.machine(clean.scenario, store, first)

    def run(self) -> Trial:
        with self.machine.in_use():
            try:
                self._play()
            except Exception as error:  # whatever it is, the trial has failed
                self.trial.odd.add(f"{type(error).__name__}: {error}")
        for text in self.machine.odd:
            self.trial.odd.add(text)
        self.trial.recovery_ms = self.machine.recovery_ms
        return self.trial

    def _play(self) -> None:
        layout = self.machine.scenario.layout
        for _ in range(self.choice.choice((1, 2, 2, 3))):
            if self.choice.random() < self.racing:
                self._race(layout)
            else:
                self._live(layout)
            layout = self._restart(layout)
        life = Life(self.machine, self.disk, layout)
        life.run_until(self.until)
        self._lose_power()
        self._check(layout)

    def _live(self, layout: Layout) -> None:
        """Live until a crash at a point that is chosen now, or to the end."""
        far = self.choice.choice((12, 70, 140, 140))  # a recovery, an epoch, two
        faulty = FaultyDisk(self.disk, [Fault(at=self.choice.randrange(far))])
        try:
            life = Life(self.machine, faulty, layout)
            if self.machine.finished >= 0 and self.choice.random() < 0.2:
                life.run(life.next_epoch - 1)  # as Spark does if it has not heard of the commit
            life.run_until(self.until)
        except Crash:
            self.trial.crashes += 1

    def _race(self, layout: Layout) -> None:
        """Run two drivers at once, calls on the disk in an order that is chosen now."""
        spreads = (layout, any_layout(self.choice))
        runs = [partial(self._drive, spread) for spread in spreads]
        faults = [
            [Fault(at=self.choice.randrange(150))] if self.choice.random() < 0.5 else []
            for _ in runs
        ]
        ended = race(self.disk, runs, faults, self.choice)
        for error in ended:
            if isinstance(error, Crash):
                self.trial.crashes += 1
            elif isinstance(error, FencedError):
                self.trial.fenced += 1
            elif error is not None:
                raise error

    def _drive(self, layout: Layout, disk: FaultyDisk) -> None:
        Life(self.machine, disk, layout).run_until(self.until)

    def _restart(self, layout: Layout) -> Layout:
        if self.choice.random() < 0.75:
            self._lose_power()
        elif self.choice.random() < 0.5:
            self.machine.forget()
        return any_layout(self.choice) if self.choice.random() < 0.25 else layout

    def _lose_power(self) -> None:
        self.disk.crash(self.choice)
        self.machine.forget()

    def _check(self, layout: Layout) -> None:
        """Compare what is left after a last crash and recovery with the clean run."""
        life = Life(self.machine, self.disk, layout)
        found = outcome_of(self.machine, LocalFiles(self.disk))
        odd = compare(self.clean.outcome(self.until), found)
        self.trial.odd = odd
        with life.using():
            notes = parted(self.machine.checkpoint)
        for text in (*notes, *missing_history(self.machine, LocalFiles(self.disk))):
            odd.add(text)
        life.sweep()
        left = unnamed_files(self.machine, LocalFiles(self.disk))
        if left:
            odd.add(f"garbage that no sweep takes: {left}")
        for note in self.clean.odd.notes:
            odd.add(f"clean run: {note}")
