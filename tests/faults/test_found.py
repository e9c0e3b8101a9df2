"""What the campaigns have found, one test for each, so that it stays found."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.base.errors import FencedError
from penstock.files.disk import Entry
from penstock.files.place import LocalFiles
from penstock.testing.faults.disks import Crash, Fault, FaultyDisk, Point, SimulatedDisk
from penstock.testing.faults.machine import Life, Machine
from penstock.testing.faults.oracle import missing_history
from penstock.testing.faults.scenario import scenario_of

Files = dict[str, str]


def staged(disk: SimulatedDisk) -> Files:
    LocalFiles(disk).write_new("/out.staging/x", b"rows")
    return {"part-0": "/out.staging/x"}


def die_before(
    disk: SimulatedDisk, work: Callable[[FaultyDisk], None], call: str, path: str
) -> None:
    """Run something and die before the first call of that kind on such a path."""
    rehearsal = FaultyDisk(disk.copy())
    work(rehearsal)
    at = next(p.number for p in rehearsal.trace if p.call == call and p.path.endswith(path))
    with pytest.raises(Crash):
        work(FaultyDisk(disk, [Fault(at=at)]))


def test_who_finds_an_epoch_published_makes_sure_that_it_lasts() -> None:
    """The first process dies after the rename; the second sees the folder; power is lost."""
    disk = SimulatedDisk()
    files = staged(disk)
    LocalFiles(disk).publish("/out/epoch=0", files)
    files = staged(disk)
    die_before(disk, lambda d: LocalFiles(d).publish("/out/epoch=1", files), "sync", "/out")
    assert disk.exists("/out/epoch=1")
    LocalFiles(disk).publish("/out/epoch=1", files)
    disk.crash(random.Random(1), keep=0.0)
    assert disk.read("/out/epoch=1/part-0") == b"rows"


def test_who_finds_an_epoch_committed_makes_sure_that_it_lasts() -> None:
    """The first driver dies after the link; the second goes on from it; power is lost."""
    scenario = scenario_of(3, kind="tumbling")
    disk, machine = SimulatedDisk(), Machine(scenario)
    with machine.in_use():
        Life(machine, disk).run_until(1)
        die_before(disk, lambda d: Life(machine, d).run_until(2), "sync", "/manifests")
        # The rehearsal has told the machine of epochs that this disk has not seen.
        machine.finished = 1
        opened = Life(machine, disk)
        disk.crash(random.Random(1), keep=0.0)
        assert Life(machine, disk).next_epoch >= opened.next_epoch


def test_a_file_is_written_though_a_sweep_takes_its_hidden_name() -> None:
    disk = SimulatedDisk()

    def sweep(point: Point) -> None:
        for entry in disk.list("/a"):
            disk.unlink(f"/a/{entry.name}")

    rehearsal = FaultyDisk(SimulatedDisk())
    LocalFiles(rehearsal).write_new("/a/x", b"1")
    at = next(point.number for point in rehearsal.trace if point.call == "link")
    LocalFiles(FaultyDisk(disk, [Fault(at=at, hook=sweep)])).write_new("/a/x", b"1")
    assert disk.files() == {"/a/x": b"1"}


@pytest.mark.parametrize("call", ["sync", "make_folder"])
def test_a_driver_that_was_overtaken_after_its_commit_is_fenced(call: str) -> None:
    """Its manifest stays, for others have built on it; that its staged rows are gone is no damage.

    The other driver comes when the manifest is linked, or when late rows are published.
    """
    scenario = replace(scenario_of(3, kind="sliding"), rescales={}, retain_epochs=3)
    disk, machine = SimulatedDisk(), Machine(scenario)
    with machine.in_use():
        Life(machine, disk).run_until(3)
        rehearsal = FaultyDisk(disk.copy())
        Life(machine, rehearsal).run_until(4)
        machine.finished = 3
        trace = rehearsal.trace
        commit = next(p.number for p in trace if p.call == "link" and "/manifests/" in p.path)
        at = next(p.number for p in trace[commit:] if p.call == call)
        faults = [Fault(at=at, hook=lambda point: Life(machine, disk).run_until(6))]
        with pytest.raises(FencedError, match="another driver"):
            Life(machine, FaultyDisk(disk, faults)).run_until(4)
        assert missing_history(machine, LocalFiles(disk)) == []
        assert not machine.odd


class PausingDisk(FaultyDisk):
    """A disk whose driver is held up after it has listed the manifests for the second time."""

    def __init__(self, disk: SimulatedDisk, meanwhile: Callable[[], object]) -> None:
        super().__init__(disk)
        self.meanwhile, self.lists = meanwhile, 0

    def list(self, path: str) -> list[Entry]:
        found = super().list(path)
        self.lists += path.endswith("/manifests")
        if self.lists == 2:
            self.lists += 1
            self.meanwhile()
        return found


def test_a_driver_that_opens_slowly_sweeps_nothing_that_others_still_need() -> None:
    """All manifests that it has listed are retired before it reads them."""
    scenario = replace(scenario_of(3, kind="kept"), rescales={}, retain_epochs=1, retain_seconds=0)
    disk, machine = SimulatedDisk(), Machine(scenario)
    with machine.in_use():
        fast = Life(machine, disk)
        fast.run_until(3)
        Life(machine, PausingDisk(disk, lambda: fast.run_until(6)))
        machine.forget()
        assert missing_history(machine, LocalFiles(disk)) == []
        Life(machine, disk).run_until(7)
