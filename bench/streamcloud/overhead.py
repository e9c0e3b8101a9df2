"""Table I: the same query at the same size, with and without the elastic manager.

Both run as fast as they can, in turn, beginning and ending with a static run. A machine becomes
faster and slower from one minute to the next, so an elastic run is compared with the two static
ones around it, and a static one with its two static neighbours, which tells how much is noise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
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
    sizes, rounds, epochs = ((2,), 1, 6) if quick else ((2, 4), 10, 16)
    rows_of_epoch = 20_000 if quick else 100_000
    total = write_epochs(
        folder / "input", call_epochs(epochs=epochs, rows=rows_of_epoch, seconds=1.0)
    )
    samples: Samples = {(k, size): [] for size in sizes for k in KINDS}
    with session(SLOTS) as spark:
        for size in sizes:
            for number in range(2 * rounds + 1):
                kind, place = KINDS[number % 2], folder / f"{size}-{number}"
                samples[kind, size].append(_run(spark, folder, place, kind, size, total))
            log(f"{size} instances: " + _told(samples, size))
    rates = {key: [median(sample.rates) for sample in found] for key, found in samples.items()}
    apart = {size: beside(rates["elastic", size], rates["static", size]) for size in sizes}
    return Measured(
        holds=all(abs(ratio - 1) <= WITHIN for ratio in apart.values()),
        by="; ".join(
            f"{size} instances: {_told(samples, size)}; an elastic run is {100 * (ratio - 1):+.1f} "
            f"% beside the static ones around it (median of {rounds})"
            + noise(rates["static", size])
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
            "elastic runs": rounds,
            "static runs": rounds + 1,
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


def beside(elastic: Sequence[float], static: Sequence[float]) -> float:
    """Return the median ratio of a rate to the mean of the two static ones around it.

    >>> beside([99.0, 110.0], [100.0, 100.0, 120.0])
    0.995
    """
    return median(
        rate / mean(around) for rate, around in zip(elastic, pairwise(static), strict=True)
    )


def noise(static: Sequence[float]) -> str:
    """Return what the same comparison finds between static runs, if there are enough.

    >>> noise([100.0, 103.0, 100.0, 97.0, 100.0])
    '; a static run differs by 3.0 % from its static neighbours'
    >>> noise([100.0, 103.0])
    ''
    """
    threes = zip(static, static[1:], static[2:], strict=False)
    found = [abs(rate / mean((before, after)) - 1) for before, rate, after in threes]
    if not found:
        return ""
    return f"; a static run differs by {100 * median(found):.1f} % from its static neighbours"


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
