"""What a task measures of itself: rows by bucket, the hottest keys, where it runs.

Law: measuring costs no more than a bounded sample, however many rows there are.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

import polars as pl
import psutil

from penstock.base.hashing import BUCKET, bucket_of
from penstock.plan.statistics import HotKey, TaskPlace

SAMPLE = 20_000
"""Of more rows than these only every n-th is looked at."""
_HOT_BUCKETS = 3
_COUNT = "__count"


@dataclass(slots=True)
class BucketCounts:
    """Rows by bucket, and the hottest keys of the hottest buckets."""

    buckets: dict[int, int] = field(default_factory=dict)
    hot_keys: list[HotKey] = field(default_factory=list)

    def add(self, rows: pl.DataFrame, keys: Sequence[str], buckets: int) -> None:
        """Count the rows of a frame by the buckets of their keys."""
        if rows.is_empty():
            return
        step = -(-rows.height // SAMPLE)
        sample = rows.select(keys).gather_every(step) if keys else pl.DataFrame({"": [None]})
        weight = step if keys else rows.height
        bucketed = sample.with_columns(bucket_of(keys, buckets, sample.schema).alias(BUCKET))
        counts = bucketed[BUCKET].value_counts(sort=True)
        for bucket, count in counts.iter_rows():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count * weight
        for bucket in counts[BUCKET].head(_HOT_BUCKETS if keys else 0):
            self._add_hottest(bucketed.filter(pl.col(BUCKET) == bucket), keys, bucket, weight)

    def _add_hottest(
        self, rows: pl.DataFrame, keys: Sequence[str], bucket: int, weight: int
    ) -> None:
        top = rows.group_by(keys).len(_COUNT).sort(_COUNT, descending=True).row(0)
        key = ", ".join(str(value) for value in top[:-1])
        self.hot_keys.append(HotKey(key=key, bucket=bucket, rows=top[-1] * weight))


def count_buckets(rows: pl.DataFrame, bucket: pl.Expr) -> dict[int, int]:
    """Return how many rows each bucket has, estimated from a sample if there are many.

    >>> count_buckets(pl.DataFrame({"b": [1, 1, 5]}), pl.col("b"))
    {1: 2, 5: 1}
    """
    step = max(1, -(-rows.height // SAMPLE))
    counts = rows.gather_every(step).select(bucket.alias(BUCKET))[BUCKET].value_counts()
    return {bucket: count * step for bucket, count in sorted(counts.iter_rows())}


@cache
def host_name() -> str:
    """Return the name by which Spark knows this host.

    An executor is told the name on its command line, by every cluster manager, and tells nobody;
    so a Python worker looks at the command line of the process that started it. In local mode there
    is no executor, and it is the machine's name.
    """
    with suppress(psutil.Error):
        for process in psutil.Process().parents():
            name = find_named_host(process.cmdline())
            if name is not None:
                return name
    return socket.gethostname()


def find_named_host(command: Sequence[str]) -> str | None:
    """Return the host that the command line of an executor names; None if it is another process.

    >>> backend = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
    >>> find_named_host(["java", backend, "--executor-id", "3", "--hostname", "10.0.0.7"])
    '10.0.0.7'
    >>> find_named_host(["python", "-m", "pyspark.daemon"])
    """
    if not any("ExecutorBackend" in part for part in command) or "--hostname" not in command:
        return None
    place = command.index("--hostname") + 1
    return command[place] if place < len(command) else None


def ready_seconds() -> float:
    """Return for how long the threads of this process have been ready to run without a core.

    The kernel counts it for each (`schedstat`); 0 where it does not.
    """
    total = 0
    with suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            name = f"/proc/self/task/{thread}/schedstat"
            with suppress(OSError, IndexError, ValueError), open(name, "rb", buffering=0) as file:
                total += int(file.read().split()[1])
    return total / 1e9


class Stopwatch:
    """Times work: how long this process was busy with it, and what it took of the processor.

    Busy is the time that passed, waiting for disks included, but not waiting for a core that others
    have. Otherwise a machine with too many tasks makes every instance look busy, and balancing
    would chase its own shadow. Threads that wait at the same time count several times, so busy is
    at least the processor time, and at most what passed.
    """

    def __init__(self) -> None:
        """Start."""
        self.started_at = time.time()
        self._since, self._cpu, self._ready = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), ready_seconds()

    def seconds(self) -> tuple[float, float]:
        """Return for how long the process has been busy since the start, and its processor time."""
        now, cpu, ready = self._now()
        passed, used, waited = now - self._since, cpu - self._cpu, ready - self._ready
        return busy_seconds(passed, used, waited), used

    def place(self) -> TaskPlace:
        """Return where the task ran and what it has taken until now."""
        busy, used = self.seconds()
        return TaskPlace(
            host=host_name(),
            pid=os.getpid(),
            started_at=self.started_at,
            busy_seconds=busy,
            cpu_seconds=used,
            memory_bytes=psutil.Process().memory_info().rss,
        )


def busy_seconds(passed: float, used: float, waited: float) -> float:
    """Return how long work took without the wait for a core.

    Args:
        passed: How long it took in all.
        used: The processor time of all threads.
        waited: How long threads waited for a core, all together.

    >>> busy_seconds(1.0, 0.5, 0.3), busy_seconds(1.0, 0.5, 0.9), busy_seconds(1.0, 1.8, 0.9)
    (0.7, 0.5, 1.0)
    """
    return min(passed, max(passed - waited, used))
