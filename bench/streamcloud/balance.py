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
    FULL,
    LIMIT_SECONDS,
    QUICK,
    SLOTS,
    STATEFUL,
    USER_OPERATOR,
    Cost,
    Point,
    Scale,
    cost_of_rows,
    parameters,
    points,
    rows_deviation,
    run_loads,
    utilisations,
)
from bench.streamcloud.inputs import Load, load_epochs, stream_of, write_epochs
from bench.streamcloud.queries import mean_by_caller
from bench.streamcloud.result import Measured, Panel, Series
from bench.streamcloud.runs import Run, load_of, run_query, session
from penstock.plan.statistics import EpochStatistics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTILISATION = 0.6
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
MOVING = (EVEN, *(Period(name=f"μ={m}", mean=m, deviation=10.0) for m in (2000, 4000, 6000, 8000)))
SHRINKING = (
    EVEN,
    *(Period(name=f"σ={s}", mean=5000, deviation=float(s)) for s in (100, 75, 50, 25)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """Periods of so many epochs at a scale, with the most deviation that is allowed."""

    periods: tuple[Period, ...]
    length: int
    scale: Scale
    imbalance: float
    """StreamCloud's UIT."""

    def loads(self, cost: Cost) -> list[Load]:
        """Return the load of each epoch."""
        rows = cost.rows(self.scale, UTILISATION, self.scale.instances)
        return [
            Load(rows=rows, mean=period.mean, deviation=period.deviation)
            for number, period in enumerate(self.periods)
            for _ in range(self.length + (WARM if number == 0 else 0))
        ]

    def rules(self) -> object:
        """Return rules that balance and leave sizes as they are: no utilisation breaches them.

        Bounds would not do, since they hold for the subquery of the sources too.
        """
        return ps.elastic(
            max=self.scale.instances,
            lower=0.001,
            target=50.0,
            upper=100.0,
            imbalance=self.imbalance,
            instance_cores=self.scale.instance_cores,
            cooldown_seconds=2 * self.scale.every,
        )

    def settled(self, run: Run, number: int) -> list[EpochStatistics]:
        """Return the last epochs of a period."""
        end = WARM + (number + 1) * self.length
        return [e for e in run.epochs if end - SETTLED <= e.epoch < end]

    def deviations(self, run: Run) -> dict[str, float]:
        """Return the deviation of the utilisation at the end of each period.

        The utilisation of an instance is its median of some epochs, as the controller sees it.
        """
        found = {}
        for number, period in enumerate(self.periods):
            used = [utilisations(e, self.scale) for e in self.settled(run, number)]
            found[period.name] = round(float(np.std(np.median(used, axis=0))), 3)
        return found

    def rows_deviation(self, run: Run) -> float:
        """Return the deviation of the instances' rows at the end of the last period."""
        last = self.settled(run, len(self.periods) - 1)
        return median(rows_deviation(epoch) for epoch in last)


def moving_mean(folder: Path, *, quick: bool, log: Callable[[str], None]) -> Measured:
    """Figure 20a: the mean of the callers' distribution moves from 2000 to 8000."""
    return _figure(_experiment(MOVING, quick=quick), folder, log)


def shrinking_deviation(folder: Path, *, quick: bool, log: Callable[[str], None]) -> Measured:
    """Figure 20b: the deviation of the callers' distribution shrinks from 100 to 25."""
    return _figure(_experiment(SHRINKING, quick=quick), folder, log, combined=not quick)


STEEP = Period(name="σ=5", mean=5000, deviation=5.0)
"""So few keys have the load that even a short run on a busy machine shows what balancing does."""


def _experiment(periods: tuple[Period, ...], *, quick: bool) -> Experiment:
    if quick:
        return Experiment(periods=(STEEP,), length=12, scale=QUICK, imbalance=0.04)
    return Experiment(periods=periods, length=10, scale=FULL, imbalance=0.1)


def _figure(
    experiment: Experiment, folder: Path, log: Callable[[str], None], *, combined: bool = False
) -> Measured:
    instances = experiment.scale.instances
    with session(SLOTS) as spark:
        cost = cost_of_rows(spark, folder, log)
        loads = experiment.loads(cost)
        runs = {}
        for name, rules in (("off", None), ("on", experiment.rules())):
            runs[name] = run_loads(
                spark,
                folder / name,
                loads,
                scale=experiment.scale,
                instances=instances,
                elastic=rules,
            )
            log(f"balancing {name}: deviation {experiment.deviations(runs[name])}")
        trivial = _combined(spark, folder, experiment, loads[-1]) if combined else ""
    return Measured(
        holds=all(d <= experiment.imbalance for d in experiment.deviations(runs["on"]).values()),
        by=_sentence(experiment, runs) + trivial,
        panels=_panels(experiment, runs),
        parameters={
            **parameters(cost, experiment.scale),
            "instances": instances,
            "rows of an epoch": loads[-1].rows,
            "epochs of a period": experiment.length,
            "UIT": experiment.imbalance,
        },
        notes=(
            USER_OPERATOR,
            "Keys are hashed to 1024 buckets, so neighbouring keys are spread over all instances "
            "from the start; with a deviation of 100, about 350 buckets have the load.",
            f"UIT = {experiment.imbalance} is our choice, and so is σ = {MOVING[1].deviation:.0f} "
            "where the mean moves; the paper's text names neither.",
        ),
    )


def _sentence(experiment: Experiment, runs: dict[str, Run]) -> str:
    off, on = (experiment.deviations(runs[name]) for name in ("off", "on"))
    most = experiment.imbalance
    moves = [c for c in runs["on"].changes if c.subquery == STATEFUL and c.kind == "rebalance"]
    told = ", ".join(f"{name}: {off[name]:.3f} off and {on[name]:.3f} on" for name in off)
    return (
        f"The deviation of the {experiment.scale.instances} instances' utilisation, at the end of "
        f"each period: {told}. It is at or under UIT = {most} in "
        f"{sum(d <= most for d in on.values())} of {len(on)} periods with balancing and in "
        f"{sum(d <= most for d in off.values())} without. {len(moves)} rebalances moved "
        f"{sum(c.buckets for c in moves)} buckets and read "
        f"{sum(c.bytes for c in moves) / 1e6:.2f} MB of state. In rows, the last period's "
        f"deviation is {experiment.rows_deviation(runs['off']):.0%} of the mean off and "
        f"{experiment.rows_deviation(runs['on']):.0%} on."
    )


def _panels(experiment: Experiment, runs: dict[str, Run]) -> tuple[Panel, ...]:
    found = {name: points(run, experiment.scale, WARM) for name, run in runs.items()}
    clock = found["on"]
    marks = {
        period.name: clock[min(i * experiment.length, len(clock) - 1)].seconds
        for i, period in enumerate(experiment.periods)
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

    share, level = "share of an instance", {"UIT": experiment.imbalance}
    return (
        panel("mean utilisation", share, lambda p: p.mean, {}),
        panel("its deviation", share, lambda p: p.deviation, level),
        panel("deviation of the rows", "share of the mean", lambda p: p.rows_deviation, {}),
    )


def _combined(spark: "SparkSession", folder: Path, experiment: Experiment, load: Load) -> str:
    """Run the built-in aggregate on the most skewed load; return how many rows instances get."""
    frames = load_epochs([load] * 7, seconds=experiment.scale.every)
    total = write_epochs(folder / "combined-input", frames)
    run = run_query(
        spark,
        mean_by_caller(stream_of(folder / "combined-input"), 5),
        folder / "combined",
        rows=total,
        limit_seconds=LIMIT_SECONDS,
        instances={STATEFUL: experiment.scale.instances},
    )
    arrived = [i.rows for e in run.epochs[2:] for i in load_of(e, STATEFUL).instances]
    return (
        " With the built-in aggregate, whose rows are combined before they are sent, an instance "
        f"gets {np.mean(arrived):.0f} rows of an epoch's {load.rows:,}, and {max(arrived)} at "
        "most: there is nothing left to balance."
    )
