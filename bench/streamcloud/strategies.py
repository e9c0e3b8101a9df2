"""Figures 14 and 15: the three ways to split a query, at the same number of instances in all.

A query-cloud has all instances in every subcluster; the operator-cloud and the operator-set-cloud
share them out among their subclusters. On Spark subclusters take turns on the same slots.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.streamcloud.inputs import call_epochs, stream_of, write_epochs
from bench.streamcloud.queries import three_stateful
from bench.streamcloud.result import Measured, Panel, Series
from bench.streamcloud.runs import Span, run_query, session
from penstock.compiler import compile_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STRATEGIES = ("query-cloud", "operator-cloud", "operator-set-cloud")
SLOTS = 2
WARM = 2
SECONDS = 10.0
"""Event time of an epoch."""
LIMIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large the runs are."""

    rows: int
    epochs: int
    instances: tuple[int, ...]


FULL_14 = Size(rows=60_000, epochs=8, instances=(18,))
QUICK_14 = Size(rows=10_000, epochs=4, instances=(8,))
FULL_15 = Size(rows=60_000, epochs=7, instances=(4, 8, 18))
QUICK_15 = Size(rows=10_000, epochs=4, instances=(8,))


def breakdown(folder: Path, *, quick: bool, log: Callable[[str], None]) -> Measured:
    """Figure 14: what the processors do under each strategy."""
    size = QUICK_14 if quick else FULL_14
    (instances,) = size.instances
    spans = {
        name: found[instances] for name, found in _all_runs(folder, size, log, least=2).items()
    }
    shares = {name: _shares(span) for name, span in spans.items()}
    ours = "operator-set-cloud"
    least = min(shares, key=lambda name: shares[name]["distribution"])
    per_row = {name: _micros_a_row(span) for name, span in spans.items()}
    told = ", ".join(
        f"{100 * shares[n]['distribution']:.0f} % in the {n} ({per_row[n]['distribution']:.1f} µs "
        "a row)"
        for n in STRATEGIES
    )
    return Measured(
        holds=per_row[ours]["distribution"] == min(p["distribution"] for p in per_row.values()),
        by=(
            f"Distribution takes {told}. The smallest share of the {SLOTS} cores is that of the "
            f"{least}; for a row, the operator-set-cloud spends "
            f"{per_row['query-cloud']['distribution'] / per_row[ours]['distribution']:.1f} times "
            "less on distribution than the query-cloud and "
            f"{per_row['operator-cloud']['distribution'] / per_row[ours]['distribution']:.1f} "
            "times less than the operator-cloud."
        ),
        panels=(
            _stacked("share of the cores", "%", shares, 100.0),
            _stacked("processor time of a row", "µs", per_row, 1.0),
        ),
        parameters=_parameters(size),
        notes=(_TURNS, _PARTS),
    )


def scalability(folder: Path, *, quick: bool, log: Callable[[str], None]) -> Measured:
    """Figure 15: throughput and CPU use of each strategy as the cluster grows."""
    size = QUICK_15 if quick else FULL_15
    runs = _all_runs(folder, size, log, least=2 if quick else 1)
    largest = size.instances[-1]
    rate = {name: runs[name][largest].rows_per_second for name in STRATEGIES}
    ours = rate["operator-set-cloud"]
    in_order = rate["query-cloud"] < rate["operator-cloud"] < ours
    best = {name: max(s.rows_per_second for s in runs[name].values()) for name in STRATEGIES}
    return Measured(
        holds=ours >= 2.5 * rate["operator-cloud"] and ours >= 5.0 * rate["query-cloud"],
        by=(
            f"With {largest} instances in all, the operator-set-cloud reads {ours:,.0f} rows/s: "
            f"{ours / rate['operator-cloud']:.1f} times the operator-cloud "
            f"({rate['operator-cloud']:,.0f}) and {ours / rate['query-cloud']:.1f} times the "
            f"query-cloud ({rate['query-cloud']:,.0f}). The order is "
            f"{'that of the paper' if in_order else 'another than in the paper'}; each at its best "
            "size: "
            + ", ".join(f"{name} {value:,.0f}" for name, value in best.items())
            + f" rows/s.{_noise(runs, size.instances[0])}"
        ),
        panels=(
            _lines("throughput", "rows/s", runs, lambda span: span.rows_per_second),
            _lines("CPU use", "% of the cores", runs, lambda span: 100 * span.cores / SLOTS),
        ),
        parameters=_parameters(size),
        notes=(_TURNS, _FUSED),
    )


def _noise(runs: dict[str, dict[int, Span]], least: int) -> str:
    """Return how far apart two runs of the same plan are: at the least size, both fuse to one."""
    if least > 4:
        return ""
    one, two = (runs[n][least].rows_per_second for n in ("operator-cloud", "operator-set-cloud"))
    return (
        f" With {least} instances the operator-cloud and the operator-set-cloud are the same plan, "
        f"one task: that they differ by {100 * abs(one / two - 1):.0f} % there is noise."
    )


_TURNS = (
    "On Spark the stages of an epoch take turns on the same slots, so a subcluster is not a set of "
    "machines of its own, and a small one leaves slots idle."
)
_PARTS = (
    "Processing is the processor time of tasks without sending; distribution is all other "
    "processor time of the query's processes: packing, shuffling, scheduling tasks, planning and "
    "committing epochs; idle is the rest of the cores."
)
_FUSED = (
    "Neighbouring subqueries with one instance each are fused into one task, so the smallest "
    "operator-cloud has no hops at all; the paper's has all of them."
)


def sizes_of(strategy: str, subqueries: int, instances: int, *, least: int = 1) -> dict[int, int]:
    """Return how many instances each subquery gets.

    >>> sizes_of("query-cloud", 2, 8), sizes_of("operator-set-cloud", 4, 9)
    ({0: 8, 1: 8}, {0: 3, 1: 2, 2: 2, 3: 2})
    """
    if strategy == "query-cloud":
        return dict.fromkeys(range(subqueries), instances)
    share, rest = divmod(instances, subqueries)
    return {number: max(least, share + (number < rest)) for number in range(subqueries)}


def _all_runs(
    folder: Path, size: Size, log: Callable[[str], None], *, least: int = 1
) -> dict[str, dict[int, Span]]:
    """Run each strategy at each size on the same input; subclusters are at least so large."""
    frames = call_epochs(epochs=size.epochs, rows=size.rows, seconds=SECONDS)
    rows = write_epochs(folder / "input", frames)
    spans: dict[str, dict[int, Span]] = {name: {} for name in STRATEGIES}
    with session(SLOTS) as spark:
        for instances in size.instances:
            for strategy in STRATEGIES:
                span = _run(spark, folder, strategy, instances, rows, least)
                log(f"{strategy}, {instances} instances: {span.rows_per_second:,.0f} rows/s")
                spans[strategy][instances] = span
    return spans


def _run(
    spark: "SparkSession", folder: Path, strategy: str, instances: int, rows: int, least: int
) -> Span:
    stream = three_stateful(stream_of(folder / "input"))
    plan = compile_query(stream.write_parquet("x").sinks, strategy=strategy)
    run = run_query(
        spark,
        stream,
        folder / f"{strategy}-{instances}",
        rows=rows,
        limit_seconds=LIMIT_SECONDS,
        instances=sizes_of(strategy, len(plan.subqueries), instances, least=least),
        strategy=strategy,
    )
    return run.span(WARM - 1)


def _shares(span: Span) -> dict[str, float]:
    """Return how the cores' time is shared out."""
    all_of_it = SLOTS * span.seconds
    used = min(1.0, span.cores / SLOTS)
    processing = min(used, span.processing_seconds / all_of_it)
    return {"processing": processing, "distribution": used - processing, "idle": 1.0 - used}


def _micros_a_row(span: Span) -> dict[str, float]:
    used = span.cores * span.seconds / span.rows * 1e6
    processing = min(used, span.processing_seconds / span.rows * 1e6)
    return {"processing": processing, "distribution": used - processing}


def _stacked(title: str, unit: str, parts: dict[str, dict[str, float]], factor: float) -> Panel:
    names = tuple(next(iter(parts.values())))
    return Panel(
        title=title,
        x="strategy",
        y=unit,
        kind="stack",
        series=tuple(
            Series(name=name, x=STRATEGIES, y=tuple(factor * parts[s][name] for s in STRATEGIES))
            for name in names
        ),
    )


def _lines(
    title: str, unit: str, runs: dict[str, dict[int, Span]], value: Callable[[Span], float]
) -> Panel:
    return Panel(
        title=title,
        x="instances in all",
        y=unit,
        series=tuple(
            Series(name=name, x=tuple(spans), y=tuple(value(span) for span in spans.values()))
            for name, spans in runs.items()
        ),
    )


def _parameters(size: Size) -> dict[str, float | int | str]:
    return {
        "query": "map, filter, join, map, filter, aggregate, aggregate",
        "rows of an epoch": size.rows,
        "epochs": size.epochs,
        "of them to warm up": WARM,
        "slots": SLOTS,
        "instances in all": ", ".join(map(str, size.instances)),
    }
