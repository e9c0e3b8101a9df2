"""Table I: the same query at the same size, with and without the elastic manager.

Both run as fast as they can, in turn, so that a slow minute of the machine hits both; what is
compared is the median epoch of several runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import penstock as ps
from bench.streamcloud.inputs import call_epochs, stream_of, write_epochs
from bench.streamcloud.queries import mean_by_caller
from bench.streamcloud.result import Measured, Panel, Series
from bench.streamcloud.runs import run_query, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS = 2
WITHIN = 0.03
WARM = 3
KINDS = ("static", "elastic")
LIMIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The rows per second of each epoch of a run, and the cores that it used."""

    rates: tuple[float, ...]
    cores: float


Samples = dict[tuple[str, int], list[Sample]]


def overhead(folder: Path, *, quick: bool, log: Callable[[str], None]) -> Measured:
    """Compare throughput and CPU of static and elastic runs of two sizes."""
    sizes, rounds, epochs = ((2,), 1, 6) if quick else ((2, 4), 5, 16)
    rows_of_epoch = 20_000 if quick else 100_000
    total = write_epochs(
        folder / "input", call_epochs(epochs=epochs, rows=rows_of_epoch, seconds=1.0)
    )
    samples: Samples = {(k, size): [] for size in sizes for k in KINDS}
    with session(SLOTS) as spark:
        for size in sizes:
            for number in range(rounds):
                for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
                    place = folder / f"{kind}-{size}-{number}"
                    samples[kind, size].append(_run(spark, folder, place, kind, size, total))
            log(f"{size} instances: " + _told(samples, size))
    apart = {
        size: _rate(samples["elastic", size]) / _rate(samples["static", size]) for size in sizes
    }
    return Measured(
        holds=all(abs(ratio - 1) <= WITHIN for ratio in apart.values()),
        by="; ".join(
            f"{size} instances: {_told(samples, size)}, {100 * (ratio - 1):+.1f} % with the manager"
            for size, ratio in apart.items()
        )
        + f". The bound is {100 * WITHIN:.0f} %.",
        panels=(
            _bars("throughput", "rows/s", samples, sizes, _rate),
            _bars("CPU use", "cores", samples, sizes, lambda found: median(s.cores for s in found)),
        ),
        parameters={
            "rows of an epoch": rows_of_epoch,
            "epochs": epochs,
            "of them to warm up": WARM,
            "runs of each": rounds,
            "slots": SLOTS,
        },
        notes=(
            "The elastic runs gather statistics, ask the policy and the guard after every epoch "
            "and write their events; bounds keep them at the size that is compared.",
        ),
    )


def _run(
    spark: "SparkSession", folder: Path, place: Path, kind: str, size: int, rows: int
) -> Sample:
    rules = ps.elastic(min=size, max=size, instance_cores=SLOTS / max(size, SLOTS))
    run = run_query(
        spark,
        mean_by_caller(stream_of(folder / "input"), 5),
        place,
        rows=rows,
        limit_seconds=LIMIT_SECONDS,
        instances=size,
        elastic=rules if kind == "elastic" else None,
    )
    return Sample(
        rates=tuple(e.rows / e.interval_seconds for e in run.epochs if e.epoch >= WARM),
        cores=run.span(WARM - 1).cores,
    )


def _rate(found: list[Sample]) -> float:
    return median(rate for sample in found for rate in sample.rates)


def _told(samples: Samples, size: int) -> str:
    return " and ".join(f"{kind} {_rate(samples[kind, size]):,.0f} rows/s" for kind in KINDS)


def _bars(
    title: str,
    unit: str,
    samples: Samples,
    sizes: tuple[int, ...],
    value: Callable[[list[Sample]], float],
) -> Panel:
    names = tuple(f"{size} instances" for size in sizes)
    return Panel(
        title=title,
        x="size",
        y=unit,
        kind="bar",
        series=tuple(
            Series(name=kind, x=names, y=tuple(value(samples[kind, size]) for size in sizes))
            for kind in KINDS
        ),
    )
