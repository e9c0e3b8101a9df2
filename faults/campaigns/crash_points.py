"""Crash points: the driver dies at every point of a real epoch, and of every recovery from that.

The points are counted, not sampled: an epoch that compacts, publishes rows, late rows and dead
letters, retires and sweeps. Law: after a restart, all is as if nothing had happened.
"""

from __future__ import annotations

from contextlib import suppress

from faults.real import Stage, stage
from faults.report import CampaignResult, Log
from faults.tally import Tally
from penstock.files.disk import RealDisk
from penstock.testing.faults.disks import Crash, Fault, FaultyDisk
from penstock.testing.faults.machine import Life, Machine
from penstock.testing.faults.oracle import Difference

Trace = tuple[str, ...]


def run(trials: int, seed: int, log: Log) -> CampaignResult:
    """Die at all points of an epoch, or at some of them if fewer trials are asked for."""
    with stage() as found:
        return _Campaign(found, Tally(campaign="crash-points", log=log)).run(trials, seed)


class _Campaign:
    def __init__(self, found: Stage, tally: Tally) -> None:
        self.stage, self.tally = found, tally
        self.recoveries: dict[Trace, int] = {}

    def run(self, trials: int, seed: int) -> CampaignResult:
        points = self.stage.points()
        step = max(1, len(points) * 2 // trials) if trials else 1
        chosen = range(seed % step, len(points), step)
        for at in chosen:
            trace = self._die_at(at)
            self.recoveries.setdefault(trace, at)
        self.tally.log(
            f"crash points: {len(points)} in the epoch, {len(self.recoveries)} recoveries"
        )
        for trace, at in list(self.recoveries.items())[:: 1 if step == 1 else 4]:
            for again in range(len(trace)):
                self._die_twice(at, again)
        total = len(points) + sum(len(trace) for trace in self.recoveries)
        if not trials and self.tally.trials != total:
            self.tally.odd.add(f"{self.tally.trials} of {total} points were tried")
        return self.tally.result(self.tally.trials, total)

    def _died(self, machine: Machine, at: int) -> None:
        disk = FaultyDisk(RealDisk())
        try:
            life = Life(machine, disk)
            disk.faults = {len(disk.trace) + at: Fault(at=len(disk.trace) + at)}
            life.step()
        except Crash:
            machine.forget()
            return
        raise AssertionError(f"there is no point {at}")

    def _die_at(self, at: int) -> Trace:
        """Die at a point of the epoch; return the points of the recovery."""
        with self.stage.again() as machine:
            self._died(machine, at)
            disk = FaultyDisk(RealDisk())
            self._finish(machine, disk, f"point {at}", faults=1)
            return tuple(point.call for point in disk.trace)

    def _die_twice(self, at: int, again: int) -> None:
        """Die at a point of the epoch, and then at a point of the recovery."""
        with self.stage.again() as machine:
            self._died(machine, at)
            with suppress(Crash):
                Life(machine, FaultyDisk(RealDisk(), [Fault(at=again)]))
            self._finish(machine, FaultyDisk(RealDisk()), f"point {at}, then {again}", faults=2)

    def _finish(self, machine: Machine, disk: FaultyDisk, name: str, *, faults: int) -> None:
        odd = Difference()
        try:
            machine.forget()
            Life(machine, disk)
            odd = self.stage.finish(machine)
        except Exception as error:  # whatever it is, the trial has failed
            odd.add(f"{type(error).__name__}: {error}")
        self.tally.add(name, odd, faults=faults, recovery_ms=machine.recovery_ms[1:2])
