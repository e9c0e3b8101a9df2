"""Figures 16 and 18: single operators under a growing load, and instances on one machine."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.streamcloud.inputs import call_epochs, gathered, stream_of, write_epochs
from bench.streamcloud.result import Measured, Panel, Series
from bench.streamcloud.runs import Run, run_query, session
from penstock.workloads.cdr import calls_by_district, durations, nearby_calls, overlapping_calls

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.query.stream import Stream

SLOTS = 2
LIMIT_SECONDS = 300.0
FUSED = (
    "One instance is one task with its source: nothing is sent. Two instances need an exchange, "
    "which the paper's have in any case; it is the rest between the tasks' gain and the query's."
)
LINEAR = 1.8
"""Twice the instances with at least this many times the throughput are called linear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator of section X-A; `rows` is the smallest load, in rows of an epoch.

    They are so many seconds of event time. The load grows to `levels` levels at most.
    """

    name: str
    query: "Callable[[Stream], Stream]"
    rows: int
    callers: int = 10_000
    seconds: float = 10.0
    levels: int = 7


OPERATORS = (
    Operator(name="aggregate", query=calls_by_district, rows=60_000),
    Operator(name="map", query=durations, rows=40_000),
    Operator(
        name="join", query=lambda c: nearby_calls(c, "10 seconds"), rows=10_000, callers=50_000
    ),
    Operator(
        name="cartesian product",
        query=lambda c: overlapping_calls(c, "10 seconds"),
        rows=3_000,
        seconds=3.0,
        levels=5,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """How the load grows: `levels` of so many epochs, each level twice the one before."""

    every: float
    levels: int
    epochs: int
    warm: int = 2

    def rows(self, least: int, most_levels: int) -> list[int]:
        """Return the rows of each epoch.

        >>> Ramp(every=1.0, levels=2, epochs=2, warm=1).rows(10, 5)
        [10, 10, 10, 20, 20]
        """
        levels = min(self.levels, most_levels)
        ramp = [least << level for level in range(levels) for _ in range(self.epochs)]
        return [least] * self.warm + ramp


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """What came of one level of the load; rates are in rows a second."""

    injected: float
    throughput: float
    task_throughput: float
    cpu_percent: float
    queue: int


def scalability(folder: Path, *, quick: bool, log: Callable[[str], None]) -> Measured:
    """Figure 16: throughput, CPU and queue against the injected load, for 1 and 2 instances."""
    operators = OPERATORS[:2] if quick else OPERATORS
    ramp = Ramp(every=0.5, levels=2, epochs=2) if quick else Ramp(every=0.5, levels=7, epochs=3)
    found: dict[str, dict[int, list[Level]]] = {}
    with session(SLOTS) as spark:
        for operator in operators:
            here = folder / operator.name.replace(" ", "-")
            found[operator.name] = _run_operator(spark, operator, ramp, here)
            log(f"{operator.name}: " + _most_text(found[operator.name]))
    gain = {name: most(by[2]) / most(by[1]) for name, by in found.items()}
    return Measured(
        holds=all(ratio >= LINEAR for ratio in gain.values()),
        by=(
            "Two instances against one, each at its highest throughput: "
            + "; ".join(
                f"{name} {_most_text(by)}, {gain[name]:.2f} times" for name, by in found.items()
            )
            + ". With one instance the query kept at most "
            + ", ".join(
                f"{max(level.cpu_percent for level in by[1]):.0f} % ({name})"
                for name, by in found.items()
            )
            + f" of the {SLOTS} cores busy, the JVM and the driver included. The tasks alone, at "
            "the highest load, are "
            + ", ".join(
                f"{by[2][-1].task_throughput / by[1][-1].task_throughput:.2f} times ({name})"
                for name, by in found.items()
            )
            + " as fast with two instances."
        ),
        panels=tuple(panel for name, by in found.items() for panel in _panels(name, by)),
        parameters={
            "seconds between epochs": ramp.every,
            "epochs of a level": ramp.epochs,
            "slots": SLOTS,
            "smallest loads": ", ".join(
                f"{o.name} {o.rows / ramp.every:,.0f}/s" for o in operators
            ),
        },
        notes=(
            "An epoch takes one file, so that a backlog makes no larger epochs; a query that may "
            "take more at a time reaches more.",
            FUSED,
        ),
    )


def _run_operator(
    spark: "SparkSession", operator: Operator, ramp: Ramp, folder: Path
) -> dict[int, list[Level]]:
    sizes = ramp.rows(operator.rows, operator.levels)
    whole = call_epochs(
        epochs=sum(sizes) // operator.rows,
        rows=operator.rows,
        seconds=operator.seconds,
        callers=operator.callers,
    )
    rows = write_epochs(
        folder / "input", gathered(whole, [size // operator.rows for size in sizes])
    )
    found = {}
    for instances in (1, 2):
        run = run_query(
            spark,
            operator.query(stream_of(folder / "input")),
            folder / str(instances),
            rows=rows,
            limit_seconds=LIMIT_SECONDS,
            every=ramp.every,
            instances=instances,
        )
        found[instances] = _levels(run, sizes, ramp)
    return found


def _levels(run: Run, sizes: list[int], ramp: Ramp) -> list[Level]:
    levels = []
    for first in range(ramp.warm, len(sizes), ramp.epochs):
        last = first + ramp.epochs - 1
        span = run.span(first - 1, last)
        begun = next(e for e in run.epochs if e.epoch == first - 1)
        ended = next(e for e in run.epochs if e.epoch == last)
        due = round((ended.at - begun.at) / ramp.every)
        levels.append(
            Level(
                injected=sizes[first] / ramp.every,
                throughput=span.rows_per_second,
                task_throughput=span.task_rows_per_second,
                cpu_percent=100 * span.cores / SLOTS,
                queue=max(0, due - ramp.epochs) * sizes[first],
            )
        )
    return levels


def most(levels: list[Level]) -> float:
    """Return the highest throughput."""
    return max(level.throughput for level in levels)


def _most_text(by: dict[int, list[Level]]) -> str:
    return " and ".join(f"{most(levels):,.0f}" for levels in by.values()) + " rows/s"


def _panels(name: str, by: dict[int, list[Level]]) -> tuple[Panel, ...]:
    def panel(what: str, unit: str, value: Callable[[Level], float]) -> Panel:
        return Panel(
            title=f"{name}: {what}",
            x="injected rows/s",
            y=unit,
            series=tuple(
                Series(
                    name=f"{instances} instance{'s' * (instances > 1)}",
                    x=tuple(level.injected for level in levels),
                    y=tuple(value(level) for level in levels),
                )
                for instances, levels in by.items()
            ),
        )

    return (
        panel("throughput", "rows/s", lambda level: level.throughput),
        panel("CPU", "% of the cores", lambda level: level.cpu_percent),
        panel("queue", "rows that were due", lambda level: level.queue),
    )


def instances_per_node(folder: Path, *, quick: bool, log: Callable[[str], None]) -> Measured:
    """Figure 18: the join's highest throughput with 1, 2 and 4 instances on this machine."""
    rows, epochs, warm = (10_000, 4, 2) if quick else (1_000_000, 14, 6)
    join = OPERATORS[2]
    seconds = join.seconds * rows / (10 * join.rows)
    total = write_epochs(
        folder / "input",
        call_epochs(epochs=epochs, rows=rows, seconds=seconds, callers=join.callers),
    )
    rate, cpu, tasks = {}, {}, {}
    for slots in (1, 2) if quick else (1, 2, 4):
        with session(slots) as spark:
            run = run_query(
                spark,
                join.query(stream_of(folder / "input")),
                folder / str(slots),
                rows=total,
                limit_seconds=LIMIT_SECONDS,
                instances=slots,
            )
        span = run.span(warm - 1)
        rate[slots], cpu[slots] = span.rows_per_second, span.cores
        tasks[slots] = span.task_rows_per_second
        log(f"join, {slots} instances: {rate[slots]:,.0f} rows/s")
    gain = rate[2] / rate[1]
    more = f", 4 instances {rate[4] / rate[1]:.2f} times" if 4 in rate else ""
    return Measured(
        holds=gain >= LINEAR,
        by=(
            f"One instance joins {rate[1]:,.0f} rows/s, two {rate[2]:,.0f}: {gain:.2f} times{more} "
            f"(there are two cores, and one instance already keeps {cpu[1]:.1f} of them busy with "
            f"the JVM and the driver). The tasks alone are {tasks[2] / tasks[1]:.2f} times as fast."
        ),
        panels=(
            _by_slots("highest throughput of the join", "rows/s", rate),
            _by_slots("CPU use", "cores", cpu),
        ),
        parameters={"rows of an epoch": rows, "epochs": epochs, "of them to warm up": warm},
        notes=(FUSED,),
    )


def _by_slots(title: str, unit: str, values: dict[int, float]) -> Panel:
    return Panel(
        title=title,
        x="instances on this machine",
        y=unit,
        series=(Series(name="join", x=tuple(values), y=tuple(values.values())),),
    )
