"""Races: two processes drive one checkpoint on the real disk through the same epochs.

One that is fenced opens the checkpoint again and goes on, so every epoch is fought for. A third
driver, in this process, ends the run. Laws: each epoch is committed by exactly one; the loser is
told so in plain words; the output is that of a clean run.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier
from typing import Any

from faults.real import scratch
from faults.report import CampaignResult, Log
from faults.tally import Tally
from faults.workers import workers
from penstock.base.errors import FencedError
from penstock.files.disk import RealDisk
from penstock.files.place import LocalFiles
from penstock.testing.faults.disks import FaultyDisk
from penstock.testing.faults.machine import FOLDER, Life, Machine, Rows
from penstock.testing.faults.oracle import (
    Difference,
    check_truth,
    compare,
    missing_history,
    outcome_of,
    parted,
    unnamed_files,
)
from penstock.testing.faults.scenario import Scenario, any_layout, scenario_of

LAST = 5
KINDS = ("tumbling", "split", "chained", "kept", "united", "sliding")
PATIENCE_SECONDS = 60.0
_LONGEST_DELAY = 0.004


@dataclass(slots=True, kw_only=True)
class Driven:
    """What one of the two did: the epochs it committed, and how often it was fenced."""

    committed: list[int] = field(default_factory=list)
    fenced: list[str] = field(default_factory=list)
    tables: dict[int, dict[int, Rows]] = field(default_factory=dict)
    recovery_ms: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def run(trials: int, seed: int, log: Log) -> CampaignResult:
    """Run some races, each by its seed."""
    tally = Tally(campaign="races", log=log)
    barrier = get_context("spawn").Barrier(2)
    with scratch() as folder, workers(_use, barrier) as pool:
        for number in range(seed, seed + trials):
            place = folder / str(number)
            both = [pool.submit(drive, number, who, str(place)) for who in (0, 1)]
            driven = [future.result(4 * PATIENCE_SECONDS) for future in both]
            odd = _judge(number, str(place), driven)
            tally.add(
                number,
                odd,
                faults=sum(len(one.fenced) for one in driven),
                detected=sum(len(one.fenced) for one in driven),
                recovery_ms=[ms for one in driven for ms in one.recovery_ms],
            )
    return tally.result()


_SHARED: dict[str, Barrier] = {}


def _use(barrier: Any) -> None:
    _SHARED["barrier"] = barrier


def _scenario(seed: int) -> Scenario:
    found = scenario_of(200_000 + seed, LAST + 1, KINDS[seed % len(KINDS)])
    return replace(found, finish=False)


class DelayingDisk(FaultyDisk):
    """A disk whose calls take a little longer now and then."""

    def __init__(self, choice: random.Random) -> None:
        """Delay calls by chance."""
        super().__init__(RealDisk())
        self.choice = choice

    def _point(self, call: str, path: str) -> None:
        if self.choice.random() < 0.05:
            time.sleep(self.choice.random() * _LONGEST_DELAY)
        super()._point(call, path)


def drive(seed: int, who: int, folder: str) -> Driven:
    """Drive a checkpoint to its end against another process; a worker's task."""
    choice = random.Random(f"race {seed} {who}")
    driven = Driven()
    machine = Machine(_scenario(seed), folder=folder, named=who << 28)
    _SHARED["barrier"].wait(PATIENCE_SECONDS)
    deadline = time.monotonic() + PATIENCE_SECONDS
    with machine.in_use():
        while time.monotonic() < deadline:
            try:
                if _drive_on(machine, choice, driven):
                    break
            except FencedError as error:
                driven.fenced.append(str(error))
            except Exception as error:  # whatever it is, the trial has failed
                driven.wrong.append(f"{type(error).__name__}: {error}")
                break
    driven.tables, driven.recovery_ms = machine.tables, machine.recovery_ms
    driven.wrong += machine.odd
    return driven


def _drive_on(machine: Machine, choice: random.Random, driven: Driven) -> bool:
    """Open the checkpoint and run epochs to the end; return whether there are no more."""
    life = Life(machine, DelayingDisk(choice), any_layout(choice))
    while life.next_epoch < LAST:
        result = life.step()
        if not result.replayed:
            driven.committed.append(result.manifest.epoch)
    return True


def _judge(seed: int, folder: str, driven: list[Driven]) -> Difference:
    """Let a third driver end the run, and compare."""
    machine = Machine(_scenario(seed), folder=folder, named=2 << 28)
    odd = Difference()
    with machine.in_use():
        try:
            for one in driven:
                _merge(odd, machine, one)
            life = Life(machine, RealDisk())
            life.run_until(LAST)
            odd = _compared(seed, machine, odd)
            for text in parted(machine.checkpoint):
                odd.add(text)
            life.sweep()
            left = unnamed_files(machine, LocalFiles())
            if left:
                odd.add(f"garbage that no sweep takes: {left}")
        except Exception as error:  # whatever it is, the trial has failed
            odd.add(f"{type(error).__name__}: {error}")
    committed = sorted(epoch for one in driven for epoch in one.committed)
    if committed != list(range(LAST)):
        odd.add(f"epochs committed by the two: {[one.committed for one in driven]}")
    return odd


def _merge(odd: Difference, machine: Machine, one: Driven) -> None:
    for text in one.wrong:
        odd.add(text)
    for text in one.fenced:
        if "another driver" not in text:
            odd.add(f"unclear: {text}")
    for sink, epochs in one.tables.items():
        known = machine.tables.setdefault(sink, {})
        for epoch, rows in epochs.items():
            if sorted(map(repr, known.setdefault(epoch, rows))) != sorted(map(repr, rows)):
                odd.add(f"the two gave sink {sink} other rows for epoch {epoch}")


def _compared(seed: int, machine: Machine, odd: Difference) -> Difference:
    """Return how a machine differs from a clean run of its scenario, beside what is known."""
    found = outcome_of(machine, LocalFiles())
    with scratch() as folder:
        clean = Machine(_scenario(seed), folder=str(Path(folder) / FOLDER.strip("/")))
        with clean.in_use():
            Life(clean, RealDisk()).run_until(LAST)
            expected = outcome_of(clean, LocalFiles())
            truth = check_truth(clean.scenario, clean, expected)
    differs = compare(expected, found)
    for note in (*odd.notes, *truth.notes, *missing_history(machine, LocalFiles())):
        differs.add(note)
    return differs
