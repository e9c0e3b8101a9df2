"""Figures 21a, 21b and 21c: instances come and go as the load rises and falls.

LUT, UUT and TUT are the paper's. The load is given in instances: a load of 1 keeps one instance
fully busy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import pi, sin
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import penstock as ps
from bench.streamcloud.elastic_runs import (
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
    run_loads,
)
from bench.streamcloud.inputs import Load
from bench.streamcloud.result import Measured, Panel, Series
from bench.streamcloud.runs import Run, session
from penstock.control.policies.streamcloud import Provisioning
from penstock.plan.changes import Reconfiguration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LUT, UUT, TUT = 0.5, 0.9, 0.6
MOST = 12
NEAR = 0.15
"""A step reaches the target if the utilisation after it is as near as this."""
ENOUGH = LUT - 0.05
"""A step down leaves instances busy enough if they are as busy as this."""
WARM = 3
WOBBLE = 0.08
CALM = 2
"""A load that wobbles around a threshold may cause so many reconfigurations, and no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """How the load goes, in instances, from its first epoch to its last; how many there are."""

    epochs: int
    first: float
    last: float
    instances: int

    def loads(self) -> list[float]:
        """Return the load of each epoch.

        >>> Ramp(epochs=3, first=1.0, last=2.0, instances=1).loads()
        [1.0, 1.5, 2.0]
        """
        step = (self.last - self.first) / (self.epochs - 1)
        return [self.first + step * i for i in range(self.epochs)]


PACED = Scale(every=2.4, instance_cores=0.09, instances=MOST)
"""An instance here is so small that what every epoch costs it is felt; longer epochs lessen it."""
RISING = Ramp(epochs=75, first=1.0, last=6.0, instances=2)
QUICK_RISING = Ramp(epochs=12, first=0.6, last=2.4, instances=1)
FALLING = Ramp(epochs=60, first=5.5, last=0.5, instances=9)
QUICK_FALLING = Ramp(epochs=12, first=2.0, last=0.6, instances=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A reconfiguration and the mean utilisation until the next one."""

    change: Reconfiguration
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioned:
    """A run under a load that changes."""

    run: Run
    cost: Cost
    scale: Scale
    loads: tuple[float, ...]

    @property
    def points(self) -> list[Point]:
        """The epochs after the warm-up."""
        return points(self.run, self.scale, WARM)

    @property
    def steps(self) -> list[Step]:
        """The changes of the number of instances, with the utilisation before and after."""
        mine = [c for c in self.run.changes if c.subquery == STATEFUL and c.before != c.after]
        ends = [c.epoch for c in mine[1:]] + [self.run.epochs[-1].epoch + 1]
        return [
            Step(change=c, before=self._used(c.epoch - 2, c.epoch), after=self._after(c.epoch, end))
            for c, end in zip(mine, ends, strict=True)
        ]

    def _used(self, first: int, end: int) -> float:
        found = [p.mean for p in points(self.run, self.scale) if first <= p.epoch < end]
        return float(np.mean(found)) if found else float("nan")

    def _after(self, epoch: int, end: int) -> float:
        """Return the utilisation right after a change; its first epoch has to read state."""
        return (
            self._used(epoch + 1, min(end, epoch + 3))
            if end > epoch + 1
            else self._used(epoch, end)
        )


_RUNS: dict[tuple[str, bool], Provisioned] = {}


def _rising(
    provisioning: Provisioning, folder: Path, *, quick: bool, log: Callable[[str], None]
) -> Provisioned:
    """Run the rising load under a strategy; once in a process, since two figures show it."""
    key = (provisioning, quick)
    if key not in _RUNS:
        ramp = QUICK_RISING if quick else RISING
        with session(SLOTS) as spark:
            cost = cost_of_rows(spark, folder, log)
            _RUNS[key] = _run(
                spark,
                folder,
                ramp.loads(),
                provisioning,
                cost,
                _scale(quick),
                instances=ramp.instances,
            )
        log(f"{provisioning}: {_sizes(_RUNS[key])}")
    return _RUNS[key]


def _scale(quick: bool) -> Scale:
    return QUICK if quick else PACED


def _run(
    spark: "SparkSession",
    folder: Path,
    loads: Sequence[float],
    provisioning: Provisioning,
    cost: Cost,
    scale: Scale,
    *,
    instances: int,
) -> Provisioned:
    padded = [loads[0]] * WARM + list(loads)
    # Each instance has a fixed cost; how many there will be is not known, so it is left out here.
    factor = scale.capacity_seconds / cost.row_seconds
    rules = ps.elastic(
        min=1,
        max=MOST,
        lower=LUT,
        upper=UUT,
        target=TUT,
        imbalance=0.25,
        provisioning=provisioning,
        instance_cores=scale.instance_cores,
        smoothing=2,
        cooldown_seconds=2 * scale.every,
    )
    run = run_loads(
        spark,
        folder / f"{provisioning}-{instances}-{len(loads)}",
        [Load(rows=max(100, round(load * factor))) for load in padded],
        scale=scale,
        instances=instances,
        elastic=rules,
    )
    return Provisioned(run=run, cost=cost, scale=scale, loads=tuple(loads))


def individual(folder: Path, *, quick: bool, log: Callable[[str], None]) -> Measured:
    """Figure 21a: the load rises, and instances come one at a time."""
    found = _rising("individual", folder, quick=quick, log=log)
    steps = found.steps
    near = [step for step in steps if abs(step.after - TUT) <= NEAR]
    later = [step.after for step in steps[len(steps) // 2 :]] or [float("nan")]
    first = [step.after for step in steps[: max(1, len(steps) // 2)]] or [float("nan")]
    return Measured(
        holds=bool(steps) and float(np.mean(later)) > float(np.mean(first)),
        by=(
            f"{len(steps)} reconfigurations, {_sizes(found)}; {len(near)} of them left the "
            f"utilisation within {NEAR} of TUT = {TUT}. After the first half of the steps it was "
            f"{np.mean(first):.2f} on average, after the second half {np.mean(later):.2f}."
        ),
        panels=_panels({"individual": found}),
        parameters=_parameters(found),
        notes=(USER_OPERATOR,),
    )


def load_aware(folder: Path, *, quick: bool, log: Callable[[str], None]) -> Measured:
    """Figure 21b: the load rises, and as many instances come as the target needs."""
    one = _rising("individual", folder / "21a", quick=quick, log=log)
    many = _rising("load-aware", folder / "21b", quick=quick, log=log)
    near = [step for step in many.steps if abs(step.after - TUT) <= NEAR]
    told = "; ".join(f"{s.before:.2f} to {s.after:.2f}" for s in many.steps)
    wobble = None if quick else _wobble(folder, log)
    calm = wobble is None or len(wobble.steps) <= CALM
    return Measured(
        holds=len(many.steps) < len(one.steps) and len(near) == len(many.steps) and calm,
        by=(
            f"{len(many.steps)} reconfigurations ({_sizes(many)}) against {len(one.steps)} of the "
            f"individual strategy ({_sizes(one)}) under the same load. Utilisation at each step: "
            f"{told}; {len(near)} of {len(many.steps)} steps end within {NEAR} of TUT = {TUT}."
            f"{'' if wobble is None else _wobble_text(wobble)}"
        ),
        panels=_panels({"load-aware": many, "individual": one}),
        parameters=_parameters(many),
        notes=(USER_OPERATOR,),
    )


def _wobble(folder: Path, log: Callable[[str], None]) -> Provisioned:
    """Run a load that wobbles around the upper threshold of three instances."""
    with session(SLOTS) as spark:
        cost = cost_of_rows(spark, folder, log)
        edge = 3 * max(0.1, UUT - cost.fixed_seconds / PACED.capacity_seconds)
        loads = [edge * (1.0 + WOBBLE * sin(2 * pi * i / 5)) for i in range(32)]
        found = _run(spark, folder, loads, "load-aware", cost, PACED, instances=3)
    log(f"wobbling: {_sizes(found)}")
    return found


def _wobble_text(found: Provisioned) -> str:
    return (
        f" Under a load that wobbles by {100 * WOBBLE:.0f} % around UUT for {len(found.loads)} "
        f"epochs there were {len(found.steps)} reconfigurations ({_sizes(found)})."
    )


def decommissioning(folder: Path, *, quick: bool, log: Callable[[str], None]) -> Measured:
    """Figure 21c: the load falls, and instances go."""
    ramp = QUICK_FALLING if quick else FALLING
    with session(SLOTS) as spark:
        cost = cost_of_rows(spark, folder, log)
        found = _run(
            spark,
            folder,
            ramp.loads(),
            "load-aware",
            cost,
            _scale(quick),
            instances=ramp.instances,
        )
    steps = found.steps
    fewer = [step for step in steps if step.change.after < step.change.before]
    fitting = [step for step in fewer if _fits(step)]
    return Measured(
        holds=bool(fewer) and len(fewer) == len(steps) and len(fitting) == len(fewer),
        by=(
            f"{len(fewer)} decommissionings, {_sizes(found)}, and {len(steps) - len(fewer)} "
            f"provisionings in between; after each the utilisation was "
            f"{', '.join(f'{step.after:.2f}' for step in fewer)} (TUT = {TUT}). "
            f"{len(fitting)} of {len(fewer)} steps ended between {ENOUGH:.2f} and UUT, or lower "
            "where one instance fewer would be above TUT."
        ),
        panels=_panels({"load-aware": found}),
        parameters=_parameters(found),
        notes=(USER_OPERATOR,),
    )


def _fits(step: Step) -> bool:
    """Return whether a step ended where it should: busy enough, or as small as it may be."""
    size = step.change.after
    smallest = size == 1 or step.after * size / (size - 1) > TUT
    return step.after <= UUT and (step.after >= ENOUGH or smallest)


def _sizes(found: Provisioned) -> str:
    """Return the sizes that a run went through."""
    points = found.points
    sizes = [points[0].instances]
    sizes += [p.instances for p in points if p.instances]
    kept = [size for i, size in enumerate(sizes) if i == 0 or size != sizes[i - 1]]
    return " → ".join(map(str, kept)) + " instances"


def _panels(found: dict[str, Provisioned]) -> tuple[Panel, ...]:
    def panel(
        title: str,
        y: str,
        value: Callable[[Point], float],
        kind: str = "line",
        **more: dict[str, float],
    ) -> Panel:
        return Panel(
            title=title,
            x="seconds",
            y=y,
            kind=kind,
            series=tuple(
                Series(
                    name=name,
                    x=tuple(round(p.seconds, 2) for p in one.points),
                    y=tuple(round(value(p), 4) for p in one.points),
                    dashed=number > 0,
                )
                for number, (name, one) in enumerate(found.items())
            ),
            **more,
        )

    return (
        panel("instances", "", lambda p: p.instances, "step"),
        panel(
            "mean utilisation",
            "share of an instance",
            lambda p: p.mean,
            levels={"LUT": LUT, "TUT": TUT, "UUT": UUT},
        ),
        panel("throughput", "rows/s", lambda p: p.rows_per_second),
    )


def _parameters(found: Provisioned) -> dict[str, float | int | str]:
    more: dict[str, float | int | str] = {
        "LUT, UUT, TUT": f"{LUT}, {UUT}, {TUT}",
        "epochs": len(found.loads),
        "load in instances": f"{found.loads[0]:.1f} to {found.loads[-1]:.1f}",
    }
    return parameters(found.cost, found.scale) | more
