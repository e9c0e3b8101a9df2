"""What the elastic figures share: instances of a small part of a core, and a load in their units.

The paper has a machine for each instance. Here an instance may use a small part of a core, so that
ten of them fit into two cores; utilisation is a share of that, as for the controller. What a row
costs is measured first, so that a load can be given in instances, on a fast machine or a slow one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.streamcloud.inputs import Load, load_epochs, stream_of, write_epochs
from bench.streamcloud.queries import heavy_callers
from bench.streamcloud.runs import Run, load_of, run_query
from penstock.plan.statistics import EpochStatistics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS = 2
STATEFUL = 1
"""The subquery that is watched: the one with the stateful operator, as in the paper."""
LIMIT_SECONDS = 420.0
_PROBE_INSTANCES = 6
_WARM_UP = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How often an epoch begins, what an instance may use, and how many there are."""

    every: float
    instance_cores: float
    instances: int

    @property
    def capacity_seconds(self) -> float:
        """How long an instance may be busy in an epoch."""
        return self.every * self.instance_cores


FULL = Scale(every=1.6, instance_cores=0.09, instances=10)
QUICK = Scale(every=0.5, instance_cores=0.12, instances=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """How long an instance is busy: a fixed part of an epoch, and a part for each row."""

    fixed_seconds: float
    row_seconds: float

    def rows(self, scale: Scale, utilisation: float, instances: float) -> int:
        """Return the rows of an epoch that keep so many instances busy to some utilisation.

        On a machine so busy that an epoch without rows takes it all, rows still take as long as
        the rest, so that load follows rows there too.

        >>> tenth = Scale(every=1.0, instance_cores=0.1, instances=2)
        >>> Cost(fixed_seconds=0.01, row_seconds=1e-5).rows(tenth, 0.6, 2)
        10000
        """
        capacity = scale.capacity_seconds
        busy = max(self.fixed_seconds, utilisation * capacity - self.fixed_seconds)
        return max(100, round(instances * busy / self.row_seconds))


_COSTS: dict[int, Cost] = {}


def cost_of_rows(spark: "SparkSession", folder: Path, log: Callable[[str], None]) -> Cost:
    """Measure what rows cost; once in a process."""
    if 0 not in _COSTS:
        few, many, each = 4_000, 40_000, 6
        # A process becomes faster with each epoch, so the two sizes take turns.
        sizes = [many] * _WARM_UP + [few, many] * each
        loads = [Load(rows=size * _PROBE_INSTANCES) for size in sizes]
        rows = write_epochs(folder / "probe-input", load_epochs(loads))
        run = run_query(
            spark,
            heavy_callers(stream_of(folder / "probe-input")),
            folder / "probe",
            rows=rows,
            limit_seconds=LIMIT_SECONDS,
            instances={STATEFUL: _PROBE_INSTANCES},
        )
        busy = [_busy(epoch) for epoch in run.epochs]
        low, high = (float(np.median(busy[_WARM_UP + i :: 2])) for i in (0, 1))
        per_row = max((high - low) / (many - few), 1e-7)
        _COSTS[0] = Cost(fixed_seconds=max(0.0, low - few * per_row), row_seconds=per_row)
        log(
            f"an instance is busy for {1000 * _COSTS[0].fixed_seconds:.1f} ms of an epoch and "
            f"{1e6 * per_row:.1f} µs of a row"
        )
    return _COSTS[0]


def _busy(epoch: EpochStatistics) -> float:
    return float(np.mean([i.busy_seconds for i in load_of(epoch, STATEFUL).instances]))


def run_loads(
    spark: "SparkSession",
    folder: Path,
    loads: Sequence[Load],
    *,
    scale: Scale,
    instances: int,
    elastic: Any = None,
) -> Run:
    """Run the query on an epoch of each load, at the pace of a scale."""
    rows = write_epochs(folder / "input", load_epochs(loads, seconds=scale.every))
    return run_query(
        spark,
        heavy_callers(stream_of(folder / "input")),
        folder / "run",
        rows=rows,
        limit_seconds=LIMIT_SECONDS,
        every=scale.every,
        instances={STATEFUL: instances},
        elastic=elastic,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The stateful subquery in one epoch; `rows_deviation` is a share of an instance's mean."""

    epoch: int
    seconds: float
    instances: int
    mean: float
    deviation: float
    rows_deviation: float
    rows_per_second: float


def points(run: Run, scale: Scale, first: int = 0) -> list[Point]:
    """Return the epochs of a run from `first` on, in seconds since then."""
    epochs = [e for e in run.epochs if e.epoch >= first]
    return [_point(epoch, epochs[0].at, scale) for epoch in epochs]


def utilisations(epoch: EpochStatistics, scale: Scale) -> list[float]:
    """Return how busy each instance was in an epoch, as a share of what it may use."""
    capacity = epoch.interval_seconds * scale.instance_cores
    return [one.busy_seconds / capacity for one in load_of(epoch, STATEFUL).instances]


def rows_deviation(epoch: EpochStatistics) -> float:
    """Return the deviation of the instances' rows in an epoch, as a share of their mean."""
    rows = [one.rows for one in load_of(epoch, STATEFUL).instances]
    return float(np.std(rows)) / max(1.0, float(np.mean(rows)))


def _point(epoch: EpochStatistics, begun: float, scale: Scale) -> Point:
    used = utilisations(epoch, scale)
    return Point(
        epoch=epoch.epoch,
        seconds=epoch.at - begun,
        instances=len(used),
        mean=float(np.mean(used)),
        deviation=float(np.std(used)),
        rows_deviation=rows_deviation(epoch),
        rows_per_second=epoch.rows / epoch.interval_seconds,
    )


def parameters(cost: Cost, scale: Scale) -> dict[str, float | int | str]:
    """Return what the elastic figures tell of their runs."""
    return {
        "seconds between epochs": scale.every,
        "cores of an instance": scale.instance_cores,
        "slots": SLOTS,
        "keys": 10_000,
        "ms of an instance in an epoch without rows": round(1000 * cost.fixed_seconds, 2),
        "µs of a row": round(1e6 * cost.row_seconds, 2),
    }


USER_OPERATOR = (
    "The operator is a user's own, row by row in Python, so that load follows rows as in the "
    "paper. With a built-in aggregate rows are combined before the shuffle, and a hot key costs "
    "one row a pane."
)
