"""The benchmarks of the applications: Penstock from files beside a batch job of the same.

The law this module keeps: both read the same files, and their outputs are compared before any
figure is given.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl
from rich.box import SIMPLE
from rich.table import Table

from bench.cdr import FILES_PER_EPOCH, cache_folder, own_folder
from bench.compare import OutputMismatchError, frame_difference, visible_files
from bench.engines.application import ENGINES, AppJob
from bench.measure import Ran, run_process
from bench.report import rate
from bench.suites import SUITES, Question

ROWS = {"exchange": 2_000_000, "tpcxbb": 10_000_000, "network": 10_000_000}
ROWS_PER_EPOCH = 1_000_000
WARM_ROWS = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AppRow:
    """One engine's figures for one question of an application."""

    workload: str
    engine: str
    rows: int
    rows_per_second: float
    epoch_ms_p50: float
    epoch_ms_p99: float
    peak_rss_mb: float
    output_rows: int
    ratio_to_batch: float | None = None
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds: what tasks spent on what, and `epochs`, what all epochs took."""


def run(
    suite: str,
    *,
    rows: int | None = None,
    questions: Sequence[str] | None = None,
    engines: Sequence[str] | None = None,
    rows_per_epoch: int = ROWS_PER_EPOCH,
    log: Callable[[str], None],
    cache: Path | None = None,
    keep: bool = False,
) -> list[AppRow]:
    """Run the engines on an application's questions and return their figures.

    With fewer rows than four epochs hold, epochs get smaller, so that there are four.

    Raises:
        OutputMismatchError: the outputs of two engines differ.
        EngineError: an engine's process gave no result.
    """
    asked, chosen = _chosen(suite, questions, engines)
    with cache_folder(cache, keep=keep) as folder:
        return [
            row
            for question in asked
            for row in _run_question(
                suite, question, chosen, rows or ROWS[suite], rows_per_epoch, folder, log
            )
        ]


def _run_question(
    suite: str,
    question: Question,
    engines: Sequence[str],
    rows: int,
    rows_per_epoch: int,
    folder: Path,
    log: Callable[[str], None],
) -> list[AppRow]:
    """Run one question on each engine, compare the outputs, and only then give figures."""
    found: list[AppRow] = []
    outputs: dict[str, dict[str, pl.DataFrame]] = {}
    inputs = _write_inputs(question, rows, rows_per_epoch, folder, log)
    for engine in engines:
        with own_folder(folder / f"{question.name}-{engine}") as work:
            job = AppJob(
                engine=engine, suite=suite, name=question.name, rows=rows, folder=inputs[0],
                warm=inputs[1], work=work, files_per_epoch=FILES_PER_EPOCH,
            )  # fmt: skip
            log(f"{question.name}: {engine} on {rows:,} rows")
            ran = run_process(job, "bench.application_main")
            log(f"{question.name}: others kept {ran.others_cores:.1f} cores busy meanwhile")
            outputs[engine] = _read_outputs(job.out)
        found.append(_row(job, ran, outputs[engine]))
        for phase, seconds in found[-1].phases.items():
            log(f"{question.name}: {engine}: {phase} {seconds:.1f} s")
    _check_equal(question.name, outputs)
    same = f"outputs of {len(outputs)} engines are equal, row by row"
    log(f"{question.name}: {same if len(outputs) > 1 else 'one engine, so nothing was compared'}")
    return _with_ratios(found)


def _write_inputs(
    question: Question,
    rows: int,
    rows_per_epoch: int,
    folder: Path,
    log: Callable[[str], None],
) -> tuple[Path, Path]:
    """Write the input, five files to an epoch, and the small one to warm up, unless there."""
    per_epoch = max(FILES_PER_EPOCH, min(rows_per_epoch, rows // 4))
    files = max(1, round(rows / per_epoch * FILES_PER_EPOCH))
    kind = question.make.__name__.lower()
    large, small = folder / f"{kind}-{rows}-{files}", folder / f"{kind}-warm"
    log(f"writing {rows:,} {kind} to {files} files in {large}")
    question.input(rows).write(large, files=files)
    question.input(WARM_ROWS, seed=1).write(small, files=4)
    return large, small


def _read_outputs(out: Path) -> dict[str, pl.DataFrame]:
    """Return what an engine wrote, by stream."""
    return {
        folder.name: pl.read_parquet(visible_files(folder), hive_partitioning=False)
        for folder in sorted(out.iterdir())
        if any(folder.rglob("*.parquet"))
    }


def _check_equal(question: str, outputs: dict[str, dict[str, pl.DataFrame]]) -> None:
    (reference, wanted), *others = outputs.items()
    for engine, got in others:
        for name in sorted({*got, *wanted}):
            empty = (got.get(name), wanted.get(name))
            here, there = (pl.DataFrame() if frame is None else frame for frame in empty)
            detail = frame_difference(here, there) if here.height or there.height else ""
            if detail:
                raise OutputMismatchError(f"{question} {name}", engine, reference, detail)


def _row(job: AppJob, ran: Ran, outputs: dict[str, pl.DataFrame]) -> AppRow:
    p50, p99 = np.percentile(ran.told["epoch_ms"] or (0.0,), (50, 99))
    return AppRow(
        workload=job.name,
        engine=job.engine,
        rows=job.rows,
        rows_per_second=job.rows / ran.told["seconds"],
        epoch_ms_p50=float(p50),
        epoch_ms_p99=float(p99),
        peak_rss_mb=ran.peak_rss_mb,
        output_rows=sum(frame.height for frame in outputs.values()),
        phases=ran.told["phases"],
    )


def _with_ratios(rows: Sequence[AppRow]) -> list[AppRow]:
    """Set each row's rows per second over those of the batch job."""
    batch = [row.rows_per_second for row in rows if row.engine == "polars"]
    return [replace(r, ratio_to_batch=r.rows_per_second / batch[0]) if batch else r for r in rows]


def table(rows: Sequence[AppRow]) -> Table:
    """Return the rows as a table for people."""
    shown = Table(
        title="end to end; ratio: rows/s over those of the batch job",
        box=SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    for name in ("load", "engine"):
        shown.add_column(name, no_wrap=True)
    for name in ("rows", "rows/s", "p50 ms", "p99 ms", "RSS MB", "output", "ratio"):
        shown.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        ratio = "–" if row.ratio_to_batch is None else f"{row.ratio_to_batch:.2f}"
        shown.add_row(
            row.workload, row.engine, rate(row.rows), rate(row.rows_per_second),
            f"{row.epoch_ms_p50:,.0f}", f"{row.epoch_ms_p99:,.0f}", f"{row.peak_rss_mb:,.0f}",
            f"{row.output_rows:,}", ratio,
        )  # fmt: skip
    return shown


def _chosen(
    suite: str, questions: Sequence[str] | None, engines: Sequence[str] | None
) -> tuple[list[Question], Sequence[str]]:
    """Return what to run; refuse names that do not exist."""
    known = SUITES[suite]
    asked, chosen = questions or tuple(known), engines or ENGINES
    unknown = [*(set(asked) - set(known)), *(set(chosen) - set(ENGINES))]
    if unknown:
        raise ValueError(
            f"unknown choice; unknown={sorted(unknown)!r}, engines={ENGINES!r}, "
            f"workloads={tuple(known)!r}"
        )
    return [known[name] for name in asked], chosen


def main() -> None:
    """Run from the command line: `python -m bench.applications tpcxbb --rows 1000000`."""
    from rich.console import Console

    parser = argparse.ArgumentParser(description="benchmarks of the applications")
    parser.add_argument("suite", choices=tuple(SUITES))
    parser.add_argument("--rows", type=int)
    parser.add_argument("--rows-per-epoch", type=int, default=ROWS_PER_EPOCH)
    parser.add_argument("--workload")
    parser.add_argument("--engines")
    parser.add_argument("--keep", action="store_true", help="keep the input files")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = run(
        given.suite,
        rows=given.rows,
        questions=given.workload.split(",") if given.workload else None,
        engines=given.engines.split(",") if given.engines else None,
        rows_per_epoch=given.rows_per_epoch,
        log=lambda line: print(line, file=sys.stderr),
        keep=given.keep,
    )
    shown = json.dumps([asdict(row) for row in rows], indent=2)
    print(shown) if given.json else Console().print(table(rows))


if __name__ == "__main__":
    main()
