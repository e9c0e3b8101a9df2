"""What a policy sees: the load of each subquery now, without clock, Spark or configuration.

Law: a view is a value. The same view and the same memory give the same decision, now and in a
replay.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.buckets import BucketMap


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """An instance: how busy it was, as a share of what it may use; how much state it has."""

    instance: int
    host: str
    utilisation: float
    queue_seconds: float = 0.0
    state_bytes: int = 0
    memory_bytes: int = 0
    held_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SubqueryView:
    """A subquery and its load.

    Attributes:
        id: The subquery.
        name: The name of its head.
        owners: Who owns each bucket.
        instances: The instances, by number.
        bucket_loads: What each bucket adds to the utilisation of its owner; empty if unknown.
        bucket_bytes: The state of each bucket in files; empty if it has none.
        bucket_held_bytes: The state of each bucket in memory; empty if it has none.
        stateful: Whether its head keeps state.
        movable: Whether single buckets can move; those of a grid cannot.
        ways: If its buckets are the cells of a grid, how the rows of each input go there.
        fixed: Whether its size cannot be chosen: it is always one instance, or as many as Spark
            has partitions.
        moving: Buckets that are on their way and must not be moved again.
        epochs: From how many epochs the loads were taken; few of them may be an accident.
    """

    id: int
    name: str
    owners: BucketMap
    instances: tuple[InstanceView, ...]
    bucket_loads: tuple[float, ...] = ()
    bucket_bytes: tuple[int, ...] = ()
    bucket_held_bytes: tuple[int, ...] = ()
    stateful: bool = True
    movable: bool = True
    ways: tuple[str, ...] = ()
    fixed: bool = False
    moving: tuple[int, ...] = ()
    epochs: int = 1

    @property
    def utilisations(self) -> tuple[float, ...]:
        """The utilisation of each instance."""
        return tuple(instance.utilisation for instance in self.instances)


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
        backlog: How much input waits; None if unknown.
        recovering: Whether the query has just started again or lost an executor, so that loads are
            not what they will be.
        busy_share: For which share of an epoch its stages were busy, one after the other, by the
            mean of their instances. Stages take turns, so a subquery can never be busier than the
            others let it be.
    """

    epoch: int
    at: float
    interval_seconds: float
    subqueries: tuple[SubqueryView, ...]
    slots: int = 1
    most_slots: int = 1
    backlog: int | None = None
    recovering: bool = False
    busy_share: float = 0.0
