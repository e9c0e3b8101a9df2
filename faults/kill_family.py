"""Children of the kill campaigns: started, fed with a job, listened to, and in the end all gone.

Law: when `Household` ends, however it ends, nothing that it started is left running.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from faults.kill_child import ORDERS, Job
from penstock.testing.faults.kills import Family

ROOT = Path(__file__).resolve().parents[1]
READY_SECONDS = 120.0
END_SECONDS = 30.0
Event = Mapping[str, Any]


class Child:
    """A driver process, the leader of its session."""

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], module: str = "faults.kill_child"
    ) -> None:
        """Start a module's main program; it gets ready and waits for its job."""
        folder.mkdir(parents=True)
        self.orders = folder / "orders"
        self.orders.mkdir()
        self.log = folder / "log.txt"
        self.events: list[Event] = []
        self._told = threading.Condition()
        self._closed = False
        paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "TMPDIR": str(folder),
            # The launcher of spark-submit is a JVM of its own, and lives for a moment only.
            "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            ORDERS: str(self.orders),
        }
        ours, theirs = os.pipe()
        with self.log.open("wb") as words:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs), json.dumps(settings)],
                stdin=subprocess.PIPE,  # held open: the child dies when we do
                stdout=words,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs],
                start_new_session=True,
                env=env,
                cwd=folder,
            )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, args=(ours,), daemon=True)
        self._reader.start()

    def _read(self, handle: int) -> None:
        with os.fdopen(handle) as lines:
            for line in lines:
                with self._told:
                    self.events.append(json.loads(line))
                    self._told.notify_all()
        with self._told:
            self._closed = True
            self._told.notify_all()

    @property
    def pid(self) -> int:
        """The process id, which is the session's too."""
        return self.process.pid

    @property
    def family(self) -> Family:
        """All of its processes that live now."""
        return Family.of(self.pid)

    def wait(self, enough: Callable[[list[Event]], bool], seconds: float) -> bool:
        """Wait until the events are enough, or it has told its last one; return if they are."""
        with self._told:
            self._told.wait_for(lambda: enough(self.events) or self._closed, timeout=seconds)
            return enough(self.events)

    def wait_for(self, event: str, seconds: float, count: int = 1) -> bool:
        """Wait for the n-th event of a name; return whether it came."""
        return self.wait(lambda events: len(_of(events, event)) >= count, seconds)

    def told(self, event: str) -> list[Event]:
        """Return the events of a name so far."""
        with self._told:
            return _of(self.events, event)

    @property
    def over(self) -> bool:
        """Whether it can tell nothing more."""
        return self._closed

    def give(self, job: Job) -> None:
        """Let it begin."""
        self.say(job.to_line())

    def say(self, line: str) -> None:
        """Send it a line; one that is dead does not hear it."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()

    def last_words(self, lines: int = 15) -> str:
        """Return the end of what it printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def gone(self, seconds: float) -> bool:
        """Wait until no process of its session lives; return whether that came by itself."""
        until = time.monotonic() + seconds
        while (left := self.family.all) and time.monotonic() < until:
            self.process.poll()  # takes leave of the child, if it is dead
            psutil.wait_procs(left, timeout=min(0.2, max(0.0, until - time.monotonic())))
        self.process.poll()
        return not self.family.all

    def end(self) -> None:
        """Kill whatever is left of it."""
        deadline = time.monotonic() + END_SECONDS
        while True:  # a daemon may fork while we look
            self.family.kill("all")
            if self.gone(1.0) or time.monotonic() > deadline:
                break
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5)
        self._reader.join(timeout=5)


def _of(events: list[Event], name: str) -> list[Event]:
    return [event for event in events if event["event"] == name]


class Household:
    """Starts children ahead of need; ends them all."""

    def __init__(self, folder: Path, settings: Mapping[str, str], standbys: int = 0) -> None:
        """Keep so many children ready to take over."""
        self.folder, self.settings, self.standbys = folder, dict(settings), standbys
        self._made, self._closed = 0, False
        self._children: list[Child] = []
        self._waiting: list[Child] = []
        self._lock = threading.Lock()

    def take(self, *, more: bool = True) -> Child:
        """Return a child that is ready for its job, and start its successor if there is to be one.

        Raises:
            RuntimeError: It did not get ready.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the household has ended")
            if not self._waiting:
                self._waiting.append(self._start())
            child = self._waiting.pop(0)
            while more and len(self._waiting) < self.standbys:
                self._waiting.append(self._start())
        if not child.wait_for("ready", READY_SECONDS):
            raise RuntimeError(f"a child did not get ready:\n{child.last_words()}")
        return child

    def _start(self) -> Child:
        self._made += 1
        child = Child(self.folder / f"c{self._made}", self.settings)
        self._children.append(child)
        return child

    def end(self, child: Child) -> None:
        """End a child that is no longer needed."""
        child.end()
        with self._lock, suppress(ValueError):  # the household may have ended it meanwhile
            self._children.remove(child)

    def __enter__(self) -> Household:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._closed = True
            left, self._children = self._children, []
        for child in left:
            child.end()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give a folder with a short name, for Spark's sockets are in it, and remove it at the end.

    A polite kill of this process is an end like others; after a SIGKILL only the children go.
    """
    before: Any = None
    main = threading.current_thread() is threading.main_thread()
    if main:  # elsewhere signals cannot be set
        before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix="pk-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if main:
            signal.signal(signal.SIGTERM, before)
