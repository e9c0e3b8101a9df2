"""What a policy sees: the load of each subquery now, without clock, Spark or configuration.

Law: a view is a value. The same view and the same memory give the same decision, now and in a
replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.control.read_speed import READ_BYTES_PER_SECOND
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import Abilities


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """An instance and its load.

    Rows, seconds and rates are means of the epochs that count; the rest is of the newest one.

    Attributes:
        instance: The number of the instance.
        host: Where it ran.
        utilisation: How busy it was, as a share of what it may use; the median of the epochs.
        rows: How many rows came in an epoch.
        busy_seconds: How long it worked in an epoch.
        arrival_rate: How many rows came in a second.
        service_rate: How many rows it takes in a second of work; 0 if no row came.
        latency_seconds: How long the rows of an epoch were with it: until its task began, later
            than the first of its stage, and until it was done.
        queue_seconds: How long its task waited for a slot.
        memory_bytes: How much memory its state takes.
        cores: How many cores it may use.
        pending: How many rows have come and wait for a later epoch.
    """

    instance: int
    host: str
    utilisation: float
    rows: float = 0.0
    busy_seconds: float = 0.0
    arrival_rate: float = 0.0
    service_rate: float = 0.0
    latency_seconds: float = 0.0
    queue_seconds: float = 0.0
    memory_bytes: int = 0
    cores: float = 1.0
    pending: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubqueryView:
    """A subquery and its load.

    Attributes:
        id: The subquery.
        name: The name of its head.
        owners: Who owns each bucket.
        instances: The instances, by number.
        bucket_loads: What each bucket adds to the utilisation of its owner; empty if unknown.
        bucket_rows: How many rows of each bucket come in an epoch, like ``InstanceView.rows``;
            empty if unknown.
        bucket_seconds: How long they take; empty if unknown.
        bucket_bytes: The state of each bucket in files; empty if it has none.
        bucket_held_bytes: The state of each bucket in memory; empty if it has none.
        stateful: Whether its head keeps state.
        movable: Whether single buckets can move; those of a grid cannot.
        ways: If its buckets are the cells of a grid, how the rows of each input go there.
        fixed: Whether its size cannot be chosen: it is always one instance, or as many as Spark
            has partitions.
        moving: Buckets that are on their way and must not be moved again.
        epochs: From how many epochs the loads were taken; few of them may be an accident.
        stage: How many others come before it, one after the other; those of one stage run at the
            same time.
        backlog: How much input waits to be read, if it reads sources; None if unknown.
    """

    id: int
    name: str
    owners: BucketMap
    instances: tuple[InstanceView, ...]
    bucket_loads: tuple[float, ...] = ()
    bucket_rows: tuple[float, ...] = ()
    bucket_seconds: tuple[float, ...] = ()
    bucket_bytes: tuple[int, ...] = ()
    bucket_held_bytes: tuple[int, ...] = ()
    stateful: bool = True
    movable: bool = True
    ways: tuple[str, ...] = ()
    fixed: bool = False
    moving: tuple[int, ...] = ()
    epochs: int = 1
    stage: int = 0
    backlog: int | None = None

    @property
    def utilisations(self) -> tuple[float, ...]:
        """The utilisation of each instance."""
        return tuple(instance.utilisation for instance in self.instances)

    @property
    def rows(self) -> float:
        """How many rows came in an epoch."""
        return sum(instance.rows for instance in self.instances)

    @property
    def arrival_rate(self) -> float:
        """How many rows came in a second."""
        return sum(instance.arrival_rate for instance in self.instances)

    @property
    def service_rate(self) -> float:
        """How many rows one instance takes in a second of work, over all of them; 0 if none came.

        >>> from penstock.plan.buckets import BucketMap
        >>> loads = [(90.0, 1.0), (10.0, 1.0)]
        >>> instances = tuple(
        ...     InstanceView(instance=i, host="", utilisation=0.5, rows=rows, busy_seconds=busy)
        ...     for i, (rows, busy) in enumerate(loads)
        ... )
        >>> SubqueryView(
        ...     id=1, name="a", owners=BucketMap.even(4, 2), instances=instances
        ... ).service_rate
        50.0
        """
        busy = sum(instance.busy_seconds for instance in self.instances)
        return self.rows / busy if busy else 0.0

    @property
    def latency_seconds(self) -> float:
        """How long the slowest instance takes for the rows of an epoch."""
        return max((instance.latency_seconds for instance in self.instances), default=0.0)

    @property
    def memory_bytes(self) -> int:
        """How much memory its state takes."""
        return sum(instance.memory_bytes for instance in self.instances)

    @property
    def pending(self) -> int:
        """How many rows have come and wait for a later epoch."""
        return sum(instance.pending for instance in self.instances)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a policy sees after an epoch.

    Attributes:
        epoch: The epoch that was committed last.
        at: When, in seconds since 1970.
        interval_seconds: How long an epoch is, from commit to commit.
        subqueries: The subqueries that have run.
        slots: How many tasks can run at the same time now.
        most_slots: How many could, if all machines were asked for that can be had.
        hosts: How many tasks each host can run at the same time; empty if all is one host.
        backlog: How much input waits; None if unknown.
        latency_seconds: How old the oldest input of the epoch was when its results were seen.
        epoch_seconds: How long the epoch took, from its plan to its published output.
        recovering: Whether the query has just started again or lost an executor, so that loads are
            not what they will be.
        busy_share: For which share of an epoch its stages were busy, one after the other, by the
            mean of their instances. Stages take turns, so a subquery can never be busier than the
            others let it be.
        read_bytes_per_second: How fast an instance reads state, see `penstock.control.read_speed`.
        abilities: What the runtime can carry out.
    """

    epoch: int
    at: float
    interval_seconds: float
    subqueries: tuple[SubqueryView, ...]
    slots: int = 1
    most_slots: int = 1
    hosts: Mapping[str, int] = field(default_factory=dict)
    backlog: int | None = None
    latency_seconds: float = 0.0
    epoch_seconds: float = 0.0
    recovering: bool = False
    busy_share: float = 0.0
    read_bytes_per_second: float = READ_BYTES_PER_SECOND
    abilities: Abilities = field(default_factory=Abilities)

    def beside(self, subquery: SubqueryView) -> tuple[SubqueryView, ...]:
        """Return the other subqueries that run at the same time as one."""
        same = [other for other in self.subqueries if other.stage == subquery.stage]
        return tuple(other for other in same if other.id != subquery.id)
