"""A real Spark standalone cluster on one machine, for tests: master and workers are its children.

Each worker has a loopback address of its own (127.0.0.2, 127.0.0.3, ...), so that Spark takes each
for a host of its own. Law: whatever a cluster started is gone when it ends, however it ends:
daemons, executors, their Python workers and all files.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

import penstock
from penstock.spark.session import cluster_settings, scratch_session, session_set_aside, spark_home

PATIENCE_SECONDS = 120.0
"""How long a daemon, an executor or the end of one may take."""
POLL_SECONDS = 0.05
"""How often a condition is looked at."""
_MARK = "PENSTOCK_CLUSTER"
"""The environment variable that all processes of a cluster have, with its folder as the value."""
_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
"""Options for a JVM that starts fast and is not there for long."""
_LOGGING = """
rootLogger.level = {level}
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_OUT
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n
"""
_GUARD = """
import os, psutil, shutil, sys
sys.stdin.read()
for process in psutil.process_iter():
    try:
        if process.environ().get(sys.argv[1]) == sys.argv[2] and process.pid != os.getpid():
            process.kill()
    except psutil.Error:
        pass
shutil.rmtree(sys.argv[2], ignore_errors=True)
"""
"""A program that waits for the end of its parent, then kills what the parent has left."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """A worker of the cluster: its host, and the process of its daemon."""

    host: str
    process: subprocess.Popen[bytes]
    log: Path

    def executors(self) -> list[psutil.Process]:
        """Return the JVMs of its executors."""
        with suppress(psutil.Error):
            found = psutil.Process(self.process.pid).children()
            return [p for p in found if _is_executor(p)]
        return []


def _is_executor(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return any("CoarseGrainedExecutorBackend" in part for part in process.cmdline())
    return False


class Cluster:
    """A running cluster; made by `standalone_cluster`."""

    def __init__(self, folder: Path, *, cores: int, memory: str) -> None:
        """Prepare a cluster in an empty folder; `start` starts it.

        Args:
            folder: Where everything of the cluster is kept.
            cores: How many cores each worker lends.
            memory: How much memory each worker lends.
        """
        self.folder, self.cores, self.memory = folder, cores, memory
        self.workers: list[Worker] = []
        self.master = ""
        self._started: list[subprocess.Popen[bytes]] = []
        self._web = ""
        self._made = 0

    def start(self, workers: int) -> None:
        """Start the master and the workers, and wait until it knows them."""
        folder = self.folder
        for name in ("conf", "logs", "tmp"):
            (folder / name).mkdir()
        (folder / "conf" / "log4j2.properties").write_text(_LOGGING.format(level="info"))
        quiet = _LOGGING.format(level="error")
        (folder / "conf" / "executor.properties").write_text(quiet)
        args = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        self._daemon("master.Master", args, host="127.0.0.1", name="master")
        self.master = self._from_log(r"Starting Spark master at (spark://\S+)")
        port = self._from_log(r"'MasterUI' on port (\d+)")
        self._web = f"http://127.0.0.1:{port}/json/"
        for _ in range(workers):
            self.add_worker(wait=False)
        self.wait_for_workers()

    @property
    def hosts(self) -> list[str]:
        """The hosts of the workers."""
        return [worker.host for worker in self.workers]

    def worker(self, host: str) -> Worker:
        """Return the worker of a host."""
        for worker in self.workers:
            if worker.host == host:
                return worker
        raise ValueError(f"no worker on host={host!r}; there are {', '.join(self.hosts)}")

    def state(self) -> dict[str, Any]:
        """Return what the master knows of its workers and applications."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(self._web, timeout=PATIENCE_SECONDS) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def alive(self) -> set[str]:
        """Return the hosts whose workers the master takes to be alive."""
        with suppress(urllib.error.URLError):  # its pages come a moment after its port
            return {w["host"] for w in self.state()["workers"] if w["state"] == "ALIVE"}
        return set()

    def executors(self) -> dict[str, list[int]]:
        """Return the process ids of the running executors, by host."""
        return {w.host: [p.pid for p in w.executors()] for w in self.workers}

    def add_worker(self, *, wait: bool = True) -> str:
        """Start another worker on a host of its own and return the host."""
        self._made += 1
        host, name = f"127.0.0.{self._made + 1}", f"worker-{self._made}"
        args = ["--host", host, "--port", "0", "--webui-port", "0"]
        args += ["--cores", str(self.cores), "--memory", self.memory]
        args += ["--work-dir", str(self.folder / name), self.master]
        process = self._daemon("worker.Worker", args, host=host, name=name)
        self.workers.append(
            Worker(host=host, process=process, log=self.folder / "logs" / f"{name}.log")
        )
        if wait:
            self.wait_for_workers()
        return host

    def wait_for_workers(self) -> None:
        """Wait until the master knows all workers that run."""

        def registered() -> bool:
            for worker in self.workers:
                if worker.process.poll() is not None:
                    raise RuntimeError(f"the worker on {worker.host} ended: {_tail(worker.log)}")
            return set(self.hosts) <= self.alive()

        wait_until(registered, f"workers on {', '.join(self.hosts)} registered")

    def kill_executor(self, host: str) -> list[int]:
        """Kill the executors of a host without warning; return their process ids.

        The worker of the host goes on and starts another if the application still wants it.
        """
        killed = []
        for process in self.worker(host).executors():
            with suppress(psutil.NoSuchProcess):
                process.kill()
                killed.append(process.pid)
        return killed

    def kill_worker(self, host: str) -> None:
        """Kill a worker, its executors and their Python workers without warning, as a power cut."""
        worker = self.worker(host)
        self.workers.remove(worker)
        _kill([*_family(worker.process.pid)])
        worker.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """Kill everything that the cluster started; `standalone_cluster` calls it."""
        for process in self._started:
            process.kill()
            process.wait(PATIENCE_SECONDS)
        wait_until(lambda: not _kill(_marked(self.folder)), "all processes of the cluster ended")

    def _daemon(
        self, kind: str, args: list[str], *, host: str, name: str
    ) -> subprocess.Popen[bytes]:
        home = spark_home()
        local = self.folder / f"{name}-local"
        local.mkdir()
        deploy = "-Dspark.deploy.maxExecutorRetries=-1 -Dspark.decommission.enabled=true"
        logging = f"-Dlog4j2.configurationFile={self.folder}/conf/log4j2.properties"
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))},
            _MARK: str(self.folder),
            "SPARK_HOME": str(home),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_HOSTNAME": host,
            "SPARK_LOCAL_DIRS": str(local),
            "SPARK_NO_DAEMONIZE": "true",
            "SPARK_DAEMON_MEMORY": "128m",
            "SPARK_DAEMON_JAVA_OPTS": (
                f"{_JVM} {deploy} {logging} -Djava.io.tmpdir={self.folder}/tmp"
            ),
            "SPARK_LAUNCHER_OPTS": _JVM,
            "TMPDIR": str(self.folder / "tmp"),
        }
        with (self.folder / "logs" / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", *args],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def _from_log(self, pattern: str) -> str:
        log = self.folder / "logs" / "master.log"

        def found() -> str | None:
            if self._started[0].poll() is not None:
                raise RuntimeError(f"the master ended: {_tail(log)}")
            match = re.search(pattern, log.read_text())
            return match[1] if match else None

        return str(wait_until(found, f"the master logs {pattern!r}"))


@contextmanager
def standalone_cluster(
    workers: int = 3, *, cores: int = 1, memory: str = "1g"
) -> Iterator[Cluster]:
    """Give a Spark standalone cluster whose workers are all registered, and remove it in the end.

    Args:
        workers: How many workers, each on an address of its own.
        cores: How many cores each worker lends.
        memory: How much memory each worker lends.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-", ignore_cleanup_errors=True) as folder:
        cluster = Cluster(Path(folder), cores=cores, memory=memory)
        with _guarded(folder):
            try:
                cluster.start(workers)
                yield cluster
            finally:
                cluster.close()


@contextmanager
def _guarded(folder: str) -> Iterator[None]:
    """Have a process that ends the cluster if this process ends without doing so."""
    command = [sys.executable, "-c", _GUARD, _MARK, folder]
    guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    assert guard.stdin is not None
    try:
        yield
    finally:
        guard.stdin.close()
        guard.wait(PATIENCE_SECONDS)


@contextmanager
def cluster_session(
    cluster: Cluster,
    name: str = "penstock",
    *,
    executors: int | None = None,
    executor_memory: str = "512m",
    settings: Mapping[str, str] | None = None,
) -> Iterator[Any]:
    """Give a Spark session on a cluster, with one core per executor, that leaves nothing behind.

    A session that this process has already is set aside meanwhile: it must not be used.

    Args:
        cluster: The cluster.
        name: The application's name.
        executors: How many executors to begin with; as many as there are workers unless given.
        executor_memory: The heap of an executor.
        settings: Further Spark settings.
    """
    first = len(cluster.workers) if executors is None else executors
    source = str(Path(penstock.__file__).parents[1])
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {
        "spark.executor.cores": "1",
        "spark.executor.memory": executor_memory,
        "spark.executorEnv.PYTHONPATH": path,
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        "spark.executor.extraJavaOptions": (
            f"{_JVM} -Djava.io.tmpdir={cluster.folder}/tmp "
            f"-Dlog4j2.configurationFile={cluster.folder}/conf/executor.properties"
        ),
        **cluster_settings(executors=first),
        **(settings or {}),
    }
    with (
        session_set_aside(),
        scratch_session(name, master=cluster.master, settings=own) as session,
    ):
        registered = session.sparkContext._jsc.sc().statusTracker().getExecutorInfos
        wait_until(lambda: len(registered()) > first, f"{first} executors registered")
        yield session


def wait_until(
    condition: Callable[[], Any],
    what: str,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> Any:
    """Poll a condition until it holds, and return its value.

    >>> wait_until(lambda: 7, "seven")
    7

    Raises:
        TimeoutError: It did not hold in time.
    """
    until = time.monotonic() + patience_seconds
    while not (found := condition()):
        if time.monotonic() > until:
            raise TimeoutError(f"not within {patience_seconds:g} seconds: {what}")
        time.sleep(poll_seconds)
    return found


def _marked(folder: Path) -> list[psutil.Process]:
    """Return the processes of a cluster that still run."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(_MARK) == str(folder):
                found.append(process)
    return found


def _family(pid: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def _kill(processes: list[psutil.Process]) -> list[psutil.Process]:
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGKILL)
    return processes


def _tail(log: Path) -> str:
    return log.read_text()[-2000:]
