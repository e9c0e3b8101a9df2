"""Table I: the same query at the same size, with and without the elastic manager.

Both run as fast as they can, in turn, so that a slow minute of the machine hits both; what is
compared is the median of several runs.
"""

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import penstock as ps
from bench.streamcloud.inputs import call_epochs, stream_of, write_epochs
from bench.streamcloud.queries import mean_by_caller
from bench.streamcloud.result import Measured, Panel, Series
from bench.streamcloud.runs import Span, run_query, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS = 2
WITHIN = 0.03
WARM = 3
KINDS = ("static", "elastic")
LIMIT_SECONDS = 300.0


def overhead(folder: Path, *, quick: bool, log: Callable[[str], None]) -> Measured:
    """Compare throughput and CPU of static and elastic runs of two sizes."""
    sizes, rounds, epochs = ((2,), 1, 6) if quick else ((2, 4), 5, 16)
    rows_of_epoch = 20_000 if quick else 100_000
    total = write_epochs(
        folder / "input", call_epochs(epochs=epochs, rows=rows_of_epoch, seconds=1.0)
    )
    spans: dict[tuple[str, int], list[Span]] = {(k, size): [] for size in sizes for k in KINDS}
    with session(SLOTS) as spark:
        for size in sizes:
            for number in range(rounds):
                for kind in KINDS if number % 2 == 0 else KINDS[::-1]:
                    place = folder / f"{kind}-{size}-{number}"
                    spans[kind, size].append(_run(spark, folder, place, kind, size, total))
            log(f"{size} instances: " + _told(spans, size))
    apart = {size: _rate(spans["elastic", size]) / _rate(spans["static", size]) for size in sizes}
    return Measured(
        holds=all(abs(ratio - 1) <= WITHIN for ratio in apart.values()),
        by="; ".join(
            f"{size} instances: {_told(spans, size)}, {100 * (ratio - 1):+.1f} % with the manager"
            for size, ratio in apart.items()
        )
        + f". The bound is {100 * WITHIN:.0f} %.",
        panels=(
            _bars("throughput", "rows/s", spans, sizes, _rate),
            _bars("CPU use", "cores", spans, sizes, lambda found: median(s.cores for s in found)),
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


def _run(spark: "SparkSession", folder: Path, place: Path, kind: str, size: int, rows: int) -> Span:
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
    return run.span(WARM - 1)


def _rate(found: list[Span]) -> float:
    return median(span.rows_per_second for span in found)


def _told(spans: dict[tuple[str, int], list[Span]], size: int) -> str:
    return " and ".join(f"{kind} {_rate(spans[kind, size]):,.0f} rows/s" for kind in KINDS)


def _bars(
    title: str,
    unit: str,
    spans: dict[tuple[str, int], list[Span]],
    sizes: tuple[int, ...],
    value: Callable[[list[Span]], float],
) -> Panel:
    names = tuple(f"{size} instances" for size in sizes)
    return Panel(
        title=title,
        x="size",
        y=unit,
        kind="bar",
        series=tuple(
            Series(name=kind, x=names, y=tuple(value(spans[kind, size]) for size in sizes))
            for kind in KINDS
        ),
    )
