"""Spark sessions for the command line, tests and notebooks, with the settings that matter."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    # Spark's default for local files starts a process for each checkpoint file that it writes.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    # Each compact list of the files that a source has read names all of them; ten minutes of such
    # lists, Spark's default, are many.
    "spark.sql.streaming.fileSource.log.cleanupDelay": "60s",
}
"""Settings that make epochs short on one machine; a cluster has its own."""
CLUSTER_SETTINGS: Mapping[str, str] = {
    # An executor is decommissioned before it is given back: it takes no new task and ends its last.
    # Its blocks need not move: an epoch keeps nothing in Spark for the next one.
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "false",
    # A task waits so long for its home; longer than an epoch is never worth it.
    "spark.locality.wait": "300ms",
    # Executors that are lost in quick succession cost tasks, not the query.
    "spark.task.maxFailures": "8",
    "spark.stage.maxConsecutiveAttempts": "8",
}
"""Settings that matter on a cluster."""
_TASK_ATTEMPTS = 4
"""How often a task is tried before its job fails: what a cluster does unless told otherwise."""
_PATIENCE_SECONDS = 30
"""How long a process that was told to end may take."""
_SOCKET_PATH = 40
"""A Unix socket's path has at most 107 bytes; Spark puts a long name into the temporary folder."""
_QUIET = """
# What a task or a stream fails with reaches the user as the query's error.
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
logger.streams.name = org.apache.spark.sql.execution.streaming
logger.streams.level = off
logger.tasks.name = org.apache.spark.executor
logger.tasks.level = off
logger.attempts.name = org.apache.spark.scheduler.TaskSetManager
logger.attempts.level = off
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
_NO_SOCKETS = {"spark.python.unix.domain.socket.enabled": "false"}


def cluster_settings(*, executors: int) -> dict[str, str]:
    """Return the settings that make Penstock run well on a cluster.

    Args:
        executors: How many executors the application begins with.
    """
    return {
        **CLUSTER_SETTINGS,
        "spark.executor.instances": str(executors),
        "spark.sql.shuffle.partitions": str(max(2, executors)),
    }


def local_session(
    name: str = "penstock",
    *,
    cores: int | None = None,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a Spark session set up for Penstock, in local mode unless there is a master.

    A task whose Python worker dies is tried again, as on a cluster; Spark's plain ``local[N]``
    gives up at the first failure, and the query would go with it.

    Args:
        name: The application's name.
        cores: How many cores to use in local mode; all of them unless given.
        master: The URL of a cluster's master.
        settings: Further Spark settings.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    local = f"local[{cores or os.cpu_count() or 1},{_TASK_ATTEMPTS}]"
    builder = SparkSession.builder.master(master or local).appName(name)
    fitting = {} if len(tempfile.gettempdir()) <= _SOCKET_PATH else _NO_SOCKETS
    for key, value in {**SETTINGS, **fitting, **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def use_this_python(context: SparkContext) -> None:
    """Make tasks of a local session run in this interpreter, unless the user chose another.

    Spark would start whatever ``python3`` is first on the path, which may lack Penstock.
    """
    if str(context.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable


@contextmanager
def scratch_session(
    name: str,
    *,
    cores: int | None = None,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Give a session, local unless on a master, that leaves nothing behind: no process, no file."""
    with tempfile.TemporaryDirectory(prefix="penstock-spark-") as folder:
        own = {
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.driver.extraJavaOptions": (
                f"-Djava.io.tmpdir={folder} -Dlog4j2.configurationFile={folder}/log4j2.properties"
            ),
        }
        Path(folder, "log4j2.properties").write_text(_QUIET)
        session = local_session(
            name, cores=cores, master=master, settings={**own, **(settings or {})}
        )
        try:
            yield session
        finally:
            _end_workers(session)
            session.stop()
            _end_gateway()


def _end_workers(session: SparkSession) -> None:
    """End the Python workers before Spark closes their sockets.

    An idle worker that finds its socket closed tries to say so through it, and prints a traceback.
    """
    jvm: Any = session._jvm
    with suppress(Exception):  # a JVM that has died has no workers
        for process in jvm.java.lang.ProcessHandle.current().children().toList():
            process.destroy()
            process.onExit().get(_PATIENCE_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS)


def _end_gateway() -> None:
    """End the JVM that PySpark started, which otherwise lives as long as this process."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    if process is not None:
        process.stdin.close()
        process.wait(timeout=_PATIENCE_SECONDS)
    SparkContext._gateway = None
    SparkContext._jvm = None


def spark_home() -> Path:
    """Return the folder of the Spark that PySpark has brought along."""
    return Path(pyspark.__file__).parent


@contextmanager
def session_set_aside() -> Iterator[None]:
    """Let this process have another JVM meanwhile; PySpark keeps its one in class variables."""
    names = ("_gateway", "_jvm", "_active_spark_context")
    kept = {name: getattr(SparkContext, name) for name in names}
    session = SparkSession._instantiatedSession
    for name in names:
        setattr(SparkContext, name, None)
    SparkSession._instantiatedSession = None
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(SparkContext, name, value)
        SparkSession._instantiatedSession = session
