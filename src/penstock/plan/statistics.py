"""Statistics: what an epoch cost, by subquery, instance and bucket.

Tasks report their part (`TaskLoad`); the driver puts the parts together (`EpochStatistics`), keeps
them in the checkpoint and shows them to the policies. Law: statistics change no result; a query
whose statistics are lost only knows less of its past.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class HotKey:
    """A key that brought many of an instance's rows; ``rows`` may be an estimate."""

    key: str
    bucket: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLoad:
    """What one instance of a subquery did in one epoch.

    ``buckets`` has the rows of each bucket, estimated from a sample where there are many.
    ``restored_seconds`` is how long it took to read ``restored_bytes`` of state from segments and
    to put them together.
    ``held_bytes`` is what its state takes in memory after the epoch.
    """

    instance: int
    rows: int = 0
    busy_seconds: float = 0.0
    buckets: Mapping[int, int] = field(default_factory=dict)
    hot_keys: tuple[HotKey, ...] = ()
    restored_bytes: int = 0
    restored_seconds: float = 0.0
    held_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlace:
    """Where and when a task ran, and what it took.

    ``started_at`` is in seconds since 1970 by the clock of the host.
    """

    host: str = ""
    pid: int = 0
    started_at: float = 0.0
    busy_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLoad:
    """What one instance of a subquery did in an epoch, and on which host.

    ``queue_seconds`` is how long its task waited for a slot after the first task of its stage.
    ``cpu_seconds`` and ``memory_bytes`` are those of its process; subqueries that were fused into
    one task share the CPU time by how long each was busy. ``state_bytes`` is what its state takes
    in files, ``held_bytes`` what it takes in memory.
    """

    instance: int
    host: str
    rows: int
    busy_seconds: float
    cpu_seconds: float
    queue_seconds: float
    memory_bytes: int
    state_bytes: int
    restored_bytes: int
    restored_seconds: float = 0.0
    held_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubqueryLoad:
    """What the instances of a subquery did in an epoch; the tuples of buckets may be empty.

    ``bucket_bytes`` is the state of each bucket in files, ``bucket_held_bytes`` in memory.
    """

    subquery: int
    name: str
    instances: tuple[InstanceLoad, ...]
    bucket_rows: tuple[int, ...] = ()
    bucket_seconds: tuple[float, ...] = ()
    bucket_bytes: tuple[int, ...] = ()
    bucket_held_bytes: tuple[int, ...] = ()
    hot_keys: tuple[HotKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStatistics:
    """What an epoch cost.

    Attributes:
        epoch: The epoch.
        at: When it was committed, in seconds since 1970.
        seconds: How long it took, from its plan to its published output.
        interval_seconds: How long it was since the epoch before was committed.
        rows: How many rows were read.
        written: How many results were written.
        latency_seconds: How old the oldest row of the epoch's input was when its results were
            published: the age of its oldest file, where files are read; else ``interval_seconds``.
        backlog: How much input waits (files or rows, as the source counts); None if unknown.
        files: How many files were seen for the first time, read and refused in the epoch, and how
            many wait after it; empty if the query reads none.
        file_totals: The same for all epochs so far.
        subqueries: What each subquery did.
    """

    epoch: int
    at: float
    seconds: float
    interval_seconds: float
    rows: int
    written: int
    latency_seconds: float
    backlog: int | None = None
    files: Mapping[str, int] = field(default_factory=dict)
    file_totals: Mapping[str, int] = field(default_factory=dict)
    subqueries: tuple[SubqueryLoad, ...] = ()
