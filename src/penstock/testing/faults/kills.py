"""Kills: SIGKILL to the processes of a Spark application, at chosen steps or at any moment.

The application is a Python driver that leads a session of its own (``start_new_session``), the JVM
that PySpark starts, PySpark's daemon and its workers. Law: only members of that session are ever
found or killed, even when their parents have gone before them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal, TypeVar

import psutil

from penstock.files.disk import RealDisk
from penstock.files.place import LocalFiles, in_place_of_local

Victim = Literal["driver", "jvm", "worker", "all"]
_T = TypeVar("_T")
_DAEMON = "pyspark.daemon"
_KINDS = (
    ("/penstock/manifests", "manifest"),
    ("/penstock/published", "marker"),
    ("/penstock/planned", "plan"),
    ("/penstock/state", "segment"),
    ("/penstock/staged", "staged side output"),
    (".staging", "staged output"),
    (".owners", "claim"),
    ("/penstock/late", "side output"),
    ("/penstock/dead", "side output"),
    ("/spark/", "Spark's log"),
    ("/epoch=", "output"),
)


@dataclass(frozen=True, slots=True)
class Family:
    """The processes of one Spark application, as they are now.

    Attributes:
        driver: The Python driver, which leads the session.
        jvm: The JVM; None while it starts and after its end.
        workers: PySpark's workers, without the daemon that forks them.
        all: Every living process of the session.
    """

    driver: int
    jvm: psutil.Process | None
    workers: tuple[psutil.Process, ...]
    all: tuple[psutil.Process, ...]

    @classmethod
    def of(cls, driver: int) -> Family:
        """Return the living processes of the session that a driver leads or has led."""
        members = tuple(_members(driver))
        daemons = {p.pid for p in members if _DAEMON in _words(p)}
        parents = {p.pid: _asked(p.ppid, 0) for p in members}
        return cls(
            driver=driver,
            jvm=next((p for p in members if _asked(p.name, "") == "java"), None),
            workers=tuple(p for p in members if p.pid in daemons and parents[p.pid] in daemons),
            all=members,
        )

    def kill(self, victim: Victim, worker: int = 0) -> int:
        """Kill one of them, or all; return how many were killed.

        Args:
            victim: Which; the driver is killed last of all, since it may be the caller.
            worker: Which worker, if one is to be killed.
        """
        own = [p for p in self.all if p.pid == self.driver]
        chosen: list[psutil.Process] = []
        if victim in ("jvm", "all") and self.jvm is not None:
            chosen.append(self.jvm)
        if victim == "worker" and self.workers:
            chosen.append(self.workers[worker % len(self.workers)])
        if victim == "all":
            chosen += [p for p in self.all if p not in chosen and p not in own]
        if victim in ("driver", "all"):
            chosen += own
        return sum(map(_kill, chosen))


def _members(session: int) -> Iterator[psutil.Process]:
    """Find by session: a group is not enough, since PySpark's daemon makes one of its own."""
    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError, psutil.Error):
            if os.getsid(pid) == session:
                process = psutil.Process(pid)
                if process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                    yield process


def _asked(ask: Callable[[], _T], otherwise: _T) -> _T:
    """Return what a process says of itself; it may just have ended."""
    try:
        return ask()
    except psutil.Error:
        return otherwise


def _words(process: psutil.Process) -> list[str]:
    """Return the words of a process's command line."""
    words: list[str] = _asked(process.cmdline, [])
    return words


def _kill(process: psutil.Process) -> bool:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def kind_of(path: str) -> str:
    """Return what a file or folder of a checkpoint or sink is.

    >>> kind_of("/c/penstock/manifests/.000000000007.json.ab.tmp"), kind_of("/out/epoch=0000000003")
    ('manifest', 'output')
    """
    return next((kind for part, kind in _KINDS if part in path), "other")


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """A step of a process on its disk, told by what it does and to what, not by when.

    >>> str(Step("create: half", "segment"))
    'create: half, segment'
    """

    call: str
    kind: str

    def __str__(self) -> str:
        return f"{self.call}, {self.kind}"

    @classmethod
    def parse(cls, text: str) -> Step:
        """Return the step of its text."""
        call, _, kind = text.partition(", ")
        return cls(call, kind)


class SteppingDisk(RealDisk):
    """The disk of this machine; before each change, and inside each write, a hook is called.

    A hook that kills its process leaves the disk as a real kill at this step does.
    """

    def __init__(self, hook: Callable[[Step], None]) -> None:
        """Call ``hook`` at every step."""
        self.hook = hook

    def _step(self, call: str, path: str) -> None:
        self.hook(Step(call, kind_of(path)))

    def create(self, path: str, data: bytes, *, sync: bool) -> None:
        """Write a file that must not exist; five steps."""
        self._step("create", path)
        with open(path, "xb", buffering=0) as file:
            file.write(data[: len(data) // 2])
            self._step("create: half", path)
            file.write(data[len(data) // 2 :])
            self._step("create: written", path)
            if sync:
                os.fsync(file.fileno())
        self._step("create: synced", path)

    def make_folder(self, path: str) -> None:
        """Make a folder."""
        self._step("make folder", path)
        super().make_folder(path)

    def link(self, old: str, new: str) -> None:
        """Give a file a second name; two steps, for a manifest's link is the commit."""
        self._step("link", new)
        super().link(old, new)
        self._step("linked", new)

    def rename(self, old: str, new: str) -> None:
        """Move a file or folder; two steps, for it makes an epoch's output visible."""
        self._step("rename", new)
        super().rename(old, new)
        self._step("renamed", new)

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        self._step("unlink", path)
        super().unlink(path)

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        self._step("remove folder", path)
        super().remove_folder(path)

    def sync(self, path: str) -> None:
        """Sync a file or folder."""
        self._step("sync", path)
        super().sync(path)


class Trigger:
    """A hook for `SteppingDisk` that acts once, when a step has come for the n-th time."""

    def __init__(self, step: Step, nth: int, act: Callable[[], None]) -> None:
        """Call ``act`` at the n-th time of a step, counted from 1."""
        self.step, self.left, self.act = step, nth, act

    def __call__(self, step: Step) -> None:
        """Take note of a step."""
        if step == self.step:
            self.left -= 1
            if self.left == 0:
                self.act()


@contextmanager
def stepping(hook: Callable[[Step], None]) -> Iterator[None]:
    """Let this process's local files go through a `SteppingDisk` for a while."""
    disk = SteppingDisk(hook)
    made = {fsync: LocalFiles(disk, fsync=fsync) for fsync in (True, False)}
    with in_place_of_local(lambda fsync: made[fsync]):
        yield


def kill_self() -> None:
    """End this process as a kill from outside does: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)
