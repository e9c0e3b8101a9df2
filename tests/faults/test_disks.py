"""The simulated disk against the real one, and what crashes leave of it."""

from __future__ import annotations

import errno
import random
import shutil
import tempfile
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.files.disk import Disk, Entry, RealDisk
from penstock.testing.faults.disks import Crash, Fault, FaultyDisk, SimulatedDisk

NAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)


def result_of(disk: Disk, base: str, call: str, *paths: str, **rest: Any) -> Any:
    """Return what a call gives, or the number of its error."""
    try:
        found = getattr(disk, call)(*[f"{base}/{path}" for path in paths], **rest)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    if isinstance(found, list):
        return sorted((e.name, e.bytes, e.folder) for e in found if isinstance(e, Entry))
    return found


class SameAsReal(RuleBasedStateMachine):
    """Every call has the same result on both disks."""

    @initialize()
    def begin(self) -> None:
        self.base = tempfile.mkdtemp(prefix="penstock-disk-")
        self.real, self.simulated = RealDisk(), SimulatedDisk()
        path = ""
        for part in self.base.split("/")[1:]:
            path += f"/{part}"
            self.simulated.make_folder(path)

    def both(self, call: str, *paths: str, **rest: Any) -> None:
        real = result_of(self.real, self.base, call, *paths, **rest)
        assert result_of(self.simulated, self.base, call, *paths, **rest) == real, (call, paths)

    @rule(path=NAMES, data=st.binary(max_size=4), sync=st.booleans())
    def create(self, path: str, data: bytes, sync: bool) -> None:
        try:
            self.real.create(f"{self.base}/{path}", data, sync=sync)
            real = ""
        except OSError as error:
            real = errno.errorcode[error.errno or 0]
        try:
            self.simulated.create(f"{self.base}/{path}", data, sync=sync)
            simulated = ""
        except OSError as error:
            simulated = errno.errorcode[error.errno or 0]
        assert real == simulated

    @rule(call=st.sampled_from(["make_folder", "unlink", "remove_folder", "sync"]), path=NAMES)
    def change(self, call: str, path: str) -> None:
        self.both(call, path)

    @rule(path=NAMES)
    def make_folder(self, path: str) -> None:
        self.both("make_folder", path)

    @rule(call=st.sampled_from(["link", "rename", "rename"]), old=NAMES, new=NAMES)
    def give_name(self, call: str, old: str, new: str) -> None:
        self.both(call, old, new)

    @rule(call=st.sampled_from(["read", "list", "is_folder", "exists"]), path=NAMES)
    def ask(self, call: str, path: str) -> None:
        self.both(call, path)

    @invariant()
    def same_tree(self) -> None:
        if hasattr(self, "base"):
            for path in ("", "a", "b", "a/a", "a/b"):
                self.both("list", path)

    def teardown(self) -> None:
        shutil.rmtree(getattr(self, "base", ""), ignore_errors=True)


TestSameAsReal = SameAsReal.TestCase
TestSameAsReal.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


class Crashing(RuleBasedStateMachine):
    """What was synced survives; what is there after a crash was there before it."""

    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        self.disk, self.choice = SimulatedDisk(), random.Random(seed)
        self.written: dict[str, set[bytes]] = {}

    def attempt(self, call: str, *paths: str, **rest: Any) -> None:
        result_of(self.disk, "", call, *paths, **rest)

    @rule(path=NAMES, data=st.binary(min_size=1, max_size=4), sync=st.booleans())
    def create(self, path: str, data: bytes, sync: bool) -> None:
        try:
            self.disk.create(f"/{path}", data, sync=sync)
        except OSError:
            return

    @rule(call=st.sampled_from(["make_folder", "unlink", "remove_folder"]), path=NAMES)
    def change(self, call: str, path: str) -> None:
        self.attempt(call, path)

    @rule(call=st.sampled_from(["link", "rename"]), old=NAMES, new=NAMES)
    def give_name(self, call: str, old: str, new: str) -> None:
        self.attempt(call, old, new)

    @rule()
    def sync_everything_and_crash(self) -> None:
        before = self.disk.files()
        for path in ["", *self.folders("")]:
            self.disk.sync(path or "/")
        for path in before:
            self.disk.sync(path)
        self.disk.crash(self.choice, keep=0.0)
        assert self.disk.files() == before

    @rule()
    def keep_everything(self) -> None:
        names = set(self.disk.files())
        self.disk.crash(self.choice, keep=1.0)
        assert set(self.disk.files()) == names

    @rule()
    def crash(self) -> None:
        self.disk.crash(self.choice)
        after = self.disk.files()
        self.disk.crash(self.choice)
        assert self.disk.files() == after, "what survived one crash survives the next"

    def folders(self, path: str) -> list[str]:
        found = []
        for entry in self.disk.list(path or "/"):
            if entry.folder:
                found += [f"{path}/{entry.name}", *self.folders(f"{path}/{entry.name}")]
        return found


TestCrashing = Crashing.TestCase
TestCrashing.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_rename_is_whole_in_every_crash() -> None:
    for seed in range(50):
        disk = SimulatedDisk()
        for folder in ("/a", "/b"):
            disk.make_folder(folder)
        disk.create("/a/x", b"1", sync=True)
        disk.sync("/")
        disk.sync("/a")
        disk.rename("/a/x", "/b/x")
        disk.remove_folder("/a")
        disk.crash(random.Random(seed))
        assert len(disk.files()) == 1


def test_bytes_that_were_not_synced_are_torn_in_every_way() -> None:
    found = set()
    for seed in range(100):
        disk = SimulatedDisk()
        disk.create("/x", b"12345678", sync=False)
        disk.sync("/")
        disk.crash(random.Random(seed))
        found.add(disk.read("/x"))
    assert {b"", b"12345678"} < found
    assert any(b"12345678".startswith(data) and 0 < len(data) < 8 for data in found)
    assert any(not b"12345678".startswith(data) for data in found)


def test_names_that_were_not_synced_may_go() -> None:
    disk = SimulatedDisk()
    disk.create("/x", b"1", sync=True)
    disk.crash(random.Random(1), keep=0.0)
    assert disk.files() == {}


def test_points_are_numbered_and_death_is_final() -> None:
    disk = FaultyDisk(SimulatedDisk(), [Fault(at=2)])
    with pytest.raises(Crash):
        disk.create("/x", b"1234", sync=True)
    assert [point.call for point in disk.trace] == ["create", "create: a part", "create: written"]
    with pytest.raises(Crash):
        disk.exists("/x")
    assert disk.disk.read("/x") == b"1234"


@pytest.mark.parametrize(("at", "left"), [(0, None), (1, b"12"), (2, b"1234"), (3, b"1234")])
def test_a_file_can_be_left_at_any_stage(at: int, left: bytes | None) -> None:
    disk = FaultyDisk(SimulatedDisk(), [Fault(at=at)])
    with pytest.raises(Crash):
        disk.create("/x", b"1234", sync=True)
    assert (disk.disk.read("/x") if disk.disk.exists("/x") else None) == left


def test_errors_come_once_or_last() -> None:
    disk = FaultyDisk(SimulatedDisk(), [Fault(at=0, code=errno.EIO)])
    with pytest.raises(OSError, match="Input/output"):
        disk.make_folder("/a")
    disk.make_folder("/a")
    full = FaultyDisk(disk.disk, [Fault(at=0, code=errno.ENOSPC, lasting=True)])
    for path in ("/b", "/c"):
        with pytest.raises(OSError, match="No space"):
            full.make_folder(path)
    full.remove_folder("/a")


def test_a_hook_may_let_the_run_go_on() -> None:
    seen: list[str] = []
    faults = [Fault(at=n, hook=lambda point: seen.append(point.call)) for n in range(4)]
    disk = FaultyDisk(SimulatedDisk(), faults)
    disk.create("/x", b"1234", sync=True)
    assert len(seen) == 4
    assert disk.read("/x") == b"1234"
