"""A model of a running query for the control loop: what an instance does is its buckets' load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import polars as pl

import penstock as ps
from penstock.compiler import compile_query
from penstock.control.controller import Controller
from penstock.control.elastic import Elastic
from penstock.control.placing import deviation
from penstock.control.records import DecisionRecord
from penstock.control.views import Runtime
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import Change
from penstock.plan.compiled import CompiledQuery
from penstock.plan.statistics import EpochStatistics, InstanceLoad, SubqueryLoad

SCHEMA: dict[str, Any] = {"k": pl.String, "ts": pl.Datetime("us")}
AGGREGATE = 1
"""The number of the keyed subquery; subquery 0 reads the source."""


@cache
def keyed_query(buckets: int = 1024, instances: int = 1) -> CompiledQuery:
    """Return a query with a keyed aggregate."""
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    counted = stream.aggregate(by="k", window=ps.tumbling("1 minute"), n="count(*)")
    return compile_query(
        counted.write_memory().sinks, buckets=buckets, instances={AGGREGATE: instances}
    )


def instance_load(instance: int, busy_seconds: float = 0.0, **others: Any) -> InstanceLoad:
    """Return the load of an instance, with what does not matter left at nothing."""
    figures: dict[str, Any] = {
        "host": "a",
        "rows": 1000,
        "cpu_seconds": busy_seconds,
        "queue_seconds": 0.0,
        "memory_bytes": 0,
        "state_bytes": 0,
        "restored_bytes": 0,
    }
    return InstanceLoad(instance=instance, busy_seconds=busy_seconds, **{**figures, **others})


def epoch_statistics(
    epoch: int, subqueries: Sequence[SubqueryLoad], *, interval: float = 1.0, rows: int = 1000
) -> EpochStatistics:
    """Return the statistics of an epoch; epochs follow at the interval."""
    return EpochStatistics(
        epoch=epoch,
        at=1000.0 + epoch * interval,
        seconds=interval / 2,
        interval_seconds=interval,
        rows=rows,
        written=0,
        latency_seconds=interval,
        subqueries=tuple(subqueries),
    )


@dataclass
class Cluster:
    """A keyed subquery whose buckets have given shares of the load, under a controller."""

    rules: Elastic
    shares: Sequence[float]
    instances: int = 1
    slots: int = 1000
    bytes_of: Sequence[int] = ()
    epoch: int = -1
    changes: list[Change] = field(default_factory=list)
    records: list[DecisionRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.query = keyed_query(len(self.shares), self.instances)
        self.owners = BucketMap.even(len(self.shares), self.instances)
        self.controller = Controller(self.rules)

    @property
    def size(self) -> int:
        """How many instances there are now."""
        return self.owners.instances

    def utilisations(self, load: float) -> tuple[float, ...]:
        """Return how busy the instances are under a load, in instances' worth of work."""
        seconds = np.asarray(self.shares) * load
        return tuple(np.bincount(self.owners.owners, weights=seconds, minlength=self.size).tolist())

    def deviation(self, load: float) -> float:
        """Return the standard deviation of the utilisations."""
        return deviation(self.utilisations(load))

    def run(self, load: float, *, restored: int = 0) -> DecisionRecord | None:
        """Run an epoch, and let what was accepted take effect for the next one."""
        self.epoch += 1
        one = SubqueryLoad(
            subquery=AGGREGATE,
            name="aggregate-0",
            instances=tuple(
                instance_load(i, busy, restored_bytes=restored)
                for i, busy in enumerate(self.utilisations(load))
            ),
            bucket_rows=tuple(int(share * 1e6) for share in self.shares),
            bucket_seconds=tuple(share * load for share in self.shares),
            bucket_bytes=tuple(self.bytes_of),
            bucket_held_bytes=tuple(self.bytes_of),
        )
        found = self.controller.observe(
            self.query,
            {AGGREGATE: self.owners},
            epoch_statistics(self.epoch, [one]),
            moving={},
            recovering=False,
            runtime=Runtime(slots=self.slots, most_slots=self.slots),
        )
        if found is not None:
            self.records.append(found)
            for change in found.accepted:
                self.changes.append(change)
                self.owners = change.owners
        return found


def even(buckets: int = 256) -> tuple[float, ...]:
    """Return even shares."""
    return (1.0 / buckets,) * buckets
