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

from penstock.operators.hashing import BUCKET, bucket_of
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
            name = named_host(process.cmdline())
            if name is not None:
                return name
    return socket.gethostname()


def named_host(command: Sequence[str]) -> str | None:
    """Return the host that the command line of an executor names; None if it is another process.

    >>> backend = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
    >>> named_host(["java", backend, "--executor-id", "3", "--hostname", "10.0.0.7"])
    '10.0.0.7'
    >>> named_host(["python", "-m", "pyspark.daemon"])
    """
    if not any("ExecutorBackend" in part for part in command) or "--hostname" not in command:
        return None
    place = command.index("--hostname") + 1
    return command[place] if place < len(command) else None


def ready_seconds() -> float:
    """Return for how long this thread has been ready to run without a core in all its life.

    The kernel counts it (`/proc/thread-self/schedstat`); 0 where there is no such file.
    """
    with suppress(OSError, IndexError, ValueError), open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1]) / 1e9
    return 0.0


def busy_clock() -> float:
    """Return a time that stands still while this thread waits for a core that others have.

    Differences tell how long work took, waiting for disks included. Without that a machine that has
    too many tasks makes every instance look busy, and balancing would chase its own shadow.
    """
    return time.perf_counter() - ready_seconds()


class Stopwatch:
    """Times a task from its start."""

    def __init__(self) -> None:
        """Start."""
        self._at = time.time()
        self._since, self._cpu = busy_clock(), time.process_time()

    def place(self) -> TaskPlace:
        """Return where the task ran and what it has taken until now."""
        return TaskPlace(
            host=host_name(),
            pid=os.getpid(),
            started_at=self._at,
            busy_seconds=busy_clock() - self._since,
            cpu_seconds=time.process_time() - self._cpu,
            memory_bytes=psutil.Process().memory_info().rss,
        )
