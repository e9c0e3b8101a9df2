"""Figures 20a and 20b: load balancing while the distribution of keys changes.

The first period has callers drawn evenly; then they are drawn around a mean that moves (20a), or
with a deviation that shrinks (20b). Each run is made twice, with balancing off and on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

import penstock as ps
from bench.streamcloud.elastic_runs import (
    EVERY,
    INSTANCE_CORES,
    LIMIT_SECONDS,
    SLOTS,
    STATEFUL,
    USER_OPERATOR,
    Cost,
    Point,
    cost_of_rows,
    parameters,
    points,
    run_loads,
)
from bench.streamcloud.inputs import Load, load_epochs, stream_of, write_epochs
from bench.streamcloud.queries import mean_by_caller
from bench.streamcloud.result import Measured, Panel, Series
from bench.streamcloud.runs import Run, load_of, run_query, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTANCES = 10
UTILISATION = 0.55
UIT = 0.1
WARM = 3
SETTLED = 4
"""The last epochs of a period, after balancing has had its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A part of the run with one distribution of callers; evenly if there is no mean."""

    name: str
    mean: float | None = None
    deviation: float = 0.0


EVEN = Period(name="even")
MOVING = (EVEN, *(Period(name=f"μ={m}", mean=m, deviation=100.0) for m in (2000, 4000, 6000, 8000)))
SHRINKING = (
    EVEN,
    *(Period(name=f"σ={s}", mean=5000, deviation=float(s)) for s in (100, 75, 50, 25)),
)


def moving_mean(folder: Path, *, quick: bool, log: Callable[[str], None]) -> Measured:
    """Figure 20a: the mean of the callers' distribution moves from 2000 to 8000."""
    return _figure(MOVING, folder, quick=quick, log=log)


def shrinking_deviation(folder: Path, *, quick: bool, log: Callable[[str], None]) -> Measured:
    """Figure 20b: the deviation of the callers' distribution shrinks from 100 to 25."""
    return _figure(SHRINKING, folder, quick=quick, log=log, combined=True)


def _figure(
    periods: tuple[Period, ...],
    folder: Path,
    *,
    quick: bool,
    log: Callable[[str], None],
    combined: bool = False,
) -> Measured:
    periods = (periods[0], periods[-1]) if quick else periods
    length = 9 if quick else 12
    with session(SLOTS) as spark:
        cost = cost_of_rows(spark, folder, log)
        loads = _loads(periods, length, cost)
        runs = {}
        for name in ("off", "on"):
            rules = _rules() if name == "on" else None
            runs[name] = run_loads(spark, folder / name, loads, instances=INSTANCES, elastic=rules)
            log(f"balancing {name}: deviation {_per_period(runs[name], periods, length)}")
        trivial = _combined(spark, folder, periods[-1], loads[-1].rows) if combined else ""
    return _measured(runs, periods, length, cost, loads[-1].rows, trivial)


def _loads(periods: tuple[Period, ...], length: int, cost: Cost) -> list[Load]:
    rows = cost.rows(UTILISATION, INSTANCES)
    return [
        Load(rows=rows, mean=period.mean, deviation=period.deviation)
        for number, period in enumerate(periods)
        for _ in range(length + (WARM if number == 0 else 0))
    ]


def _rules() -> object:
    """Return rules that balance and leave the number of instances as it is: no load breaches them.

    Bounds would not do, since they hold for the subquery of the sources too.
    """
    return ps.elastic(
        max=INSTANCES,
        lower=0.001,
        target=50.0,
        upper=100.0,
        imbalance=UIT,
        instance_cores=INSTANCE_CORES,
        smoothing=2,
        cooldown_seconds=2 * EVERY,
    )


def _settled(run: Run, number: int, length: int) -> list[Point]:
    """Return the last epochs of a period."""
    end = WARM + (number + 1) * length
    return [p for p in points(run, WARM) if end - SETTLED <= p.epoch < end]


def _per_period(run: Run, periods: tuple[Period, ...], length: int) -> dict[str, float]:
    """Return the median deviation at the end of each period."""
    return {
        period.name: round(median(p.deviation for p in _settled(run, i, length)), 3)
        for i, period in enumerate(periods)
    }


def _rows(run: Run, periods: tuple[Period, ...], length: int) -> float:
    """Return the deviation of the instances' rows at the end of the last period."""
    return median(p.rows_deviation for p in _settled(run, len(periods) - 1, length))


def _measured(
    runs: dict[str, Run],
    periods: tuple[Period, ...],
    length: int,
    cost: Cost,
    rows: int,
    trivial: str,
) -> Measured:
    off, on = (_per_period(runs[name], periods, length) for name in ("off", "on"))
    moves = [c for c in runs["on"].changes if c.subquery == STATEFUL and c.kind == "rebalance"]
    told = ", ".join(f"{name}: {off[name]:.2f} off and {on[name]:.2f} on" for name in off)
    under = [name for name in on if on[name] <= UIT]
    return Measured(
        holds=len(under) == len(on),
        by=(
            f"The deviation of the {INSTANCES} instances' utilisation, at the end of each period: "
            f"{told}. It is at or under UIT = {UIT} in {len(under)} of {len(on)} periods with "
            f"balancing and in {sum(value <= UIT for value in off.values())} without. "
            f"{len(moves)} rebalances moved {sum(c.buckets for c in moves)} buckets and read "
            f"{sum(c.bytes for c in moves) / 1e6:.1f} MB of state. In rows, the last period's "
            f"deviation is {_rows(runs['off'], periods, length):.0%} of the mean off and "
            f"{_rows(runs['on'], periods, length):.0%} on.{trivial}"
        ),
        panels=_panels(runs, periods, length),
        parameters=parameters(
            cost,
            instances=INSTANCES,
            **{"rows of an epoch": rows, "epochs of a period": length, "UIT": UIT},
        ),
        notes=(
            USER_OPERATOR,
            "Keys are hashed to 1024 buckets, so neighbouring keys are spread over all instances "
            "from the start; a deviation of 100 keys is spread over about 350 buckets.",
        ),
    )


def _panels(runs: dict[str, Run], periods: tuple[Period, ...], length: int) -> tuple[Panel, ...]:
    found = {name: points(run, WARM) for name, run in runs.items()}
    clock = found["on"]
    marks = {
        period.name: clock[min(i * length, len(clock) - 1)].seconds
        for i, period in enumerate(periods)
    }

    def panel(
        title: str, y: str, value: Callable[[Point], float], levels: dict[str, float]
    ) -> Panel:
        return Panel(
            title=title,
            x="seconds",
            y=y,
            series=tuple(
                Series(
                    name=f"balancing {name}",
                    x=tuple(round(p.seconds, 2) for p in mine),
                    y=tuple(round(value(p), 4) for p in mine),
                    dashed=name == "off",
                )
                for name, mine in found.items()
            ),
            marks=marks,
            levels=levels,
        )

    return (
        panel("mean utilisation", "share of an instance", lambda p: p.mean, {}),
        panel("its deviation", "share of an instance", lambda p: p.deviation, {"UIT": UIT}),
        panel("deviation of the rows", "share of the mean", lambda p: p.rows_deviation, {}),
    )


def _combined(spark: "SparkSession", folder: Path, period: Period, rows: int) -> str:
    """Run the built-in aggregate on the most skewed load; return what its deviation is."""
    loads = [Load(rows=rows, mean=period.mean, deviation=period.deviation)] * 7
    total = write_epochs(folder / "combined-input", load_epochs(loads, seconds=EVERY))
    run = run_query(
        spark,
        mean_by_caller(stream_of(folder / "combined-input"), 5.0),
        folder / "combined",
        rows=total,
        limit_seconds=LIMIT_SECONDS,
        instances={STATEFUL: INSTANCES},
    )
    arrived = [i.rows for e in run.epochs[2:] for i in load_of(e, STATEFUL).instances]
    busiest = max(
        max(i.rows for i in load_of(e, STATEFUL).instances) / max(1, e.rows) for e in run.epochs[2:]
    )
    return (
        f" With the built-in aggregate, whose rows are combined before they are sent, an instance "
        f"gets {np.mean(arrived):.0f} rows of an epoch's {rows:,}, at most {100 * busiest:.2f} %: "
        "there is nothing left to balance."
    )
