"""Run an engine in a process of its own and watch the memory of all its processes.

The law this module keeps: when `run_engine` returns or raises, nothing that it started is
left running.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from bench.engines.base import EngineJob, EngineTimes

ROOT = Path(__file__).resolve().parents[1]
LIMIT_SECONDS = 3600.0
SAMPLE_SECONDS = 0.1


class Job(Protocol):
    """What a process is asked to do."""

    @property
    def engine(self) -> str:
        """The engine."""

    @property
    def name(self) -> str:
        """What the job is called in errors."""

    @property
    def work(self) -> Path:
        """A folder of the job's own."""

    def to_json(self) -> dict[str, Any]:
        """Return the job as plain values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a process told at its end, and what was seen of it meanwhile."""

    told: dict[str, Any]
    peak_rss_mb: float
    others_cores: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one engine took for one job."""

    job: EngineJob
    times: EngineTimes
    peak_rss_mb: float
    others_cores: float
    """Cores that other processes kept busy meanwhile; figures with much of it are not clean."""


class EngineError(RuntimeError):
    """An engine's process ended without a result."""

    def __init__(self, engine: str, workload: str, code: int | None, log: str) -> None:
        super().__init__(engine, workload, code, log)
        self.engine, self.workload, self.code, self.log = engine, workload, code, log

    def __str__(self) -> str:
        return (
            f"engine={self.engine!r} gave no result for workload={self.workload!r}; "
            f"code={self.code!r}; its last words:\n{self.log}"
        )


class TreeSampler:
    """Sums the resident memory of a process and all below it, from a thread.

    Pages that forked workers share are counted once per process, for every engine alike.
    """

    def __init__(self, pid: int) -> None:
        self.peak_bytes = 0
        self.others_cores = 0.0
        self._cpu_seconds: dict[int, float] = {}
        self.seen: dict[int, psutil.Process] = {}
        self._root = psutil.Process(pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "TreeSampler":
        self._begun, self._busy = time.monotonic(), _busy_seconds()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        others = _busy_seconds() - self._busy - sum(self._cpu_seconds.values())
        self.others_cores = max(0.0, others / (time.monotonic() - self._begun))

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            tree = self._tree()
            self.seen.update((process.pid, process) for process in tree)
            self.peak_bytes = max(self.peak_bytes, sum(map(_rss, tree)))
            for process in tree:
                spent = max(_cpu(process), self._cpu_seconds.get(process.pid, 0.0))
                self._cpu_seconds[process.pid] = spent

    def _tree(self) -> list[psutil.Process]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def run_engine(job: EngineJob) -> Measured:
    """Run the job in a fresh process and return its times and peak memory.

    Raises:
        EngineError: the process ended, or ran out of time, without a result.
    """
    ran = run_process(job, "bench.engine_main")
    told = ran.told
    return Measured(
        job=job,
        times=EngineTimes(seconds=told["seconds"], epoch_ms=tuple(told["epoch_ms"])),
        peak_rss_mb=ran.peak_rss_mb,
        others_cores=ran.others_cores,
    )


def run_process(job: Job, module: str, *, limit_seconds: float = LIMIT_SECONDS) -> Ran:
    """Run a job in a fresh process of a module that writes a result.

    Raises:
        EngineError: the process ended, or ran out of time, without a result.
    """
    job.work.mkdir(parents=True, exist_ok=True)
    request, result = job.work / "job.json", job.work / "result.json"
    request.write_text(json.dumps(job.to_json()))
    command = [sys.executable, "-m", module, str(request), str(result)]
    log = job.work / "log.txt"
    with started(command, log) as child, TreeSampler(child.pid) as tree:
        try:
            _wait(child, limit_seconds)
        finally:
            _end(child, tree)
    if child.returncode != 0 or not result.exists():
        raise EngineError(job.engine, job.name, child.returncode, _tail(log))
    told = json.loads(result.read_text())
    return Ran(
        told=told,
        # Samples miss the peak of a job of half a second; the process itself knows its own.
        peak_rss_mb=max(tree.peak_bytes, told["own_peak_bytes"]) / 1e6,
        others_cores=tree.others_cores,
    )


@contextmanager
def started(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in a session of its own, its words going to `log`."""
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with log.open("wb") as words:
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # held open: the child dies when we do
            stdout=words,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=env,
            cwd=log.parent,
        )
        try:
            yield child
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            if child.stdin is not None:
                child.stdin.close()


def _wait(child: subprocess.Popen[bytes], limit_seconds: float) -> None:
    """Wait for the end; a process that runs too long is killed by the caller's cleanup."""
    try:
        child.wait(timeout=limit_seconds)
    except subprocess.TimeoutExpired:
        return


def _end(child: subprocess.Popen[bytes], tree: TreeSampler) -> None:
    """Kill the group and what left it: PySpark's worker daemon makes a group of its own."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for process in list(tree.seen.values()):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _busy_seconds() -> float:
    """Return the processor seconds that the whole machine has spent since its start."""
    cpu = psutil.cpu_times()
    return float(cpu.user + cpu.nice + cpu.system + cpu.irq + cpu.softirq)


def _cpu(process: psutil.Process) -> float:
    """Return the processor seconds of a process; one that has just ended keeps its last."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _rss(process: psutil.Process) -> int:
    """Return resident bytes; a process that has just ended has none."""
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _tail(log: Path, lines: int = 30) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
