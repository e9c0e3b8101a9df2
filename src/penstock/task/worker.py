"""A worker: what a Python process keeps from one task to the next.

Spark hands a process one task after the other, of any query. What it may keep to save work belongs
to one `Worker`: states, compiled queries, segments that were read in this epoch. Law: a task gives
the same with any worker, one that has just begun included; and what a worker keeps is bounded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import polars as pl
import psutil

from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan
from penstock.state.cache import StateCache

MEMORY_SHARE = 4
"""One part in so many of a machine's memory is for the states of all its workers."""
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux says how much memory a container may have."""


class Worker:
    """What one process keeps.

    Attributes:
        cache: States of operators.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.cache = StateCache()
        self._queries: dict[str, CompiledQuery] = {}
        self._frames: dict[str, pl.DataFrame] = {}
        self._frames_of: tuple[str, int] = ("", 0)

    def begin(self, query: CompiledQuery, plan: EpochPlan) -> None:
        """Make ready for a task: bound what is kept, and forget the segments of other epochs."""
        tasks = max(query.stage_sizes)
        self.cache.bound = plan.cache_bytes or default_cache_bytes(
            memory_bytes(), len(os.sched_getaffinity(0)), tasks
        )
        if (plan.writer, plan.epoch) != self._frames_of:
            self._frames_of = plan.writer, plan.epoch
            self._frames = {}

    @property
    def frames(self) -> dict[str, pl.DataFrame]:
        """Segments that tasks of this epoch have read here, by path.

        After a rescale several instances read parts of the same file, some in this process.
        """
        return self._frames

    def query(self, digest: str, load: Callable[[], CompiledQuery]) -> CompiledQuery:
        """Return the compiled query of a digest; it is loaded if it was not the last one."""
        if digest not in self._queries:
            self._queries = {digest: load()}
        return self._queries[digest]


@cache
def this_worker() -> Worker:
    """Return the worker of this process; all tasks that Spark runs in it share it."""
    return Worker()


def default_cache_bytes(memory: int, cores: int, tasks: int) -> int:
    """Return how many bytes of states a worker may keep, if nobody has said.

    A quarter of the machine's memory is shared out among the workers that can be busy at a time:
    as many as the query has tasks in a stage, but no more than there are cores.

    Args:
        memory: How much memory the machine has.
        cores: How many cores it has.
        tasks: How many tasks the largest stage of the query has.

    >>> default_cache_bytes(64 << 30, 16, 1) >> 30, default_cache_bytes(64 << 30, 16, 4) >> 30
    (16, 4)
    """
    return memory // (MEMORY_SHARE * max(1, min(cores, tasks)))


@cache
def memory_bytes() -> int:
    """Return how much memory this machine, or the container on it, has."""
    found = [psutil.virtual_memory().total]
    for path in _LIMITS:
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        found += [int(text)] if text.isdigit() else []
    return int(min(found))
