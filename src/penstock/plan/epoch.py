"""The plan of an epoch and what its tasks report back: plain values that cross processes.

Law: a plan is a value of the manifest before it and of the epoch's input; a replay after a crash
makes the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from penstock.plan.buckets import BucketMap, BucketSet
from penstock.plan.files import Again, BadFile, FileCount
from penstock.plan.progress import Progress
from penstock.plan.route import Route
from penstock.plan.statistics import TaskLoad, TaskPlace
from penstock.plan.tails import Tail


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRef:
    """A segment file and the buckets for which it still counts.

    If compaction made it, ``merged`` names the segments whose rows it holds, and ``merged_rows`` is
    how many they had. ``oldest`` is the first epoch of which it may have rows.
    """

    name: str
    rows: int
    bytes: int
    sha256: str
    until: int
    live: tuple[tuple[int, int], ...]
    merged: tuple[str, ...] = ()
    merged_rows: int = 0
    oldest: int = 0

    @property
    def buckets(self) -> BucketSet:
        """The buckets for which the segment still counts."""
        return BucketSet(self.live)

    @property
    def epoch(self) -> int:
        """The epoch that wrote it; it has rows of no later one."""
        return int(self.name[:12])


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A file that a task wrote and that nobody sees until the epoch is committed.

    ``kind`` is ``output``, ``late`` or ``dead``; ``target`` is where it goes: a folder, or the name
    of a sink that is none.
    """

    kind: str
    target: str
    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPlan:
    """Where the rows of a sink go, and where they wait until then.

    ``first`` is the number that epoch 0 has, or would have, in the sink's folder; epochs from
    ``since`` on are there. ``kind`` is what kind of sink it is, as in `Sink`; late rows and dead
    letters go to folders.
    """

    target: str
    staging: str
    first: int = 0
    since: int = 0
    kind: str = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """All that an output has got so far.

    Attributes:
        rows: How many rows.
        epochs: How many epochs had rows.
        first: The number that epoch 0 has, or would have, in a sink's folder.
        since: The first epoch that counts here.
        kind: What kind of sink it is, as in `SinkPlan`.
    """

    rows: int = 0
    epochs: int = 0
    first: int = 0
    since: int = 0
    kind: str = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCount:
    """What happened to the rows of one source in one task."""

    read: int = 0
    late: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """Everything that the tasks of an epoch need to know beside the query and the rows.

    ``writer`` is the run that plans, ``last_writer`` the one that committed the epoch before.
    ``segments`` and ``progress`` are by lineage (`penstock.plan.tails`). ``watermarks`` are by
    operator, the highest that its input has had. Buckets that are ``held``, by operator, stay at
    their marks. ``routes`` are by edge.
    ``refused_before`` rows were refused in earlier epochs; ``refused_limit`` more may be.
    ``again`` are files that are tried once more. ``cache_bytes`` is how much state a worker may
    keep in memory; 0 leaves it to the worker.
    """

    epoch: int
    checkpoint: str
    writer: str = ""
    last_writer: str = ""
    seen: Mapping[int, int] = field(default_factory=dict)
    rows_before: Mapping[int, int] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    progress: Mapping[str, Progress] = field(default_factory=dict)
    held: Mapping[str, BucketSet] = field(default_factory=dict)
    floors: Mapping[int, int] = field(default_factory=dict)
    idle: frozenset[int] = frozenset()
    segments: Mapping[str, tuple[SegmentRef, ...]] = field(default_factory=dict)
    maps: Mapping[int, BucketMap] = field(default_factory=dict)
    routes: Mapping[int, Route] = field(default_factory=dict)
    tails: tuple[Tail, ...] = ()
    sinks: Mapping[int, SinkPlan] = field(default_factory=dict)
    refused_limit: int = 10_000
    refused_before: int = 0
    again: tuple[Again, ...] = ()
    final: bool = False
    fsync: bool = True
    cache_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """What one task did; a small value that goes to the driver.

    ``refused`` are the places (source, position) of rows that an operator could not compute; a row
    may be refused in several branches and tasks and still is one row. ``progress`` has the marks of
    this instance's buckets, by lineage. ``loads`` is what each
    subquery did; ``written`` has the rows of each bucket in the segments that were written;
    ``files`` is when the oldest and the newest input of each source came to be, in microseconds;
    ``file_counts`` is what became of the files, ``bad_files`` those that could not be read.
    """

    stage: int
    task: int
    counts: Mapping[int, SourceCount] = field(default_factory=dict)
    arrived: Mapping[int, int] = field(default_factory=dict)
    seen: Mapping[int, int] = field(default_factory=dict)
    added: Mapping[str, tuple[SegmentRef, ...]] = field(default_factory=dict)
    dropped: Mapping[str, Mapping[str, tuple[tuple[int, int], ...]]] = field(default_factory=dict)
    staged: tuple[StagedFile, ...] = ()
    watermarks: Mapping[str, int] = field(default_factory=dict)
    progress: Mapping[str, Progress] = field(default_factory=dict)
    rows_out: Mapping[int, int] = field(default_factory=dict)
    refused: tuple[tuple[int, int], ...] = ()
    results_refused: int = 0
    first_refusal: str = ""
    cache_hits: int = 0
    cache_misses: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    place: TaskPlace = field(default_factory=TaskPlace)
    loads: Mapping[int, TaskLoad] = field(default_factory=dict)
    written: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    files: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    file_counts: Mapping[int, FileCount] = field(default_factory=dict)
    bad_files: tuple[BadFile, ...] = ()

    def to_json(self) -> bytes:
        """Return the report as JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, data: bytes) -> TaskReport:
        """Return the report of JSON made by `to_json`."""
        return msgspec.json.decode(data, type=cls)
