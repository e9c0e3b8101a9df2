"""The benchmark on call records: Penstock, Structured Streaming and the limit, side by side.

The law this module keeps: every engine reads the same files, and all outputs of a workload
are compared before any of its figures is given.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.compare import Output, check_equal, last_time, read_output
from bench.engine_main import MODULES
from bench.engines.base import EngineJob
from bench.measure import Measured, run_engine
from bench.report import BenchRow, bench_row, table, to_json, with_ratios
from bench.workloads import WORKLOADS, Workload
from penstock.workloads.cdr import CallRecords

__all__ = ["ENGINES", "BenchRow", "run", "small_epoch", "table", "to_json"]

ENGINES = tuple(MODULES)
FILES_PER_EPOCH = 5
ROWS = 10_000_000
ROWS_PER_EPOCH = 2_500_000
SMALL = "W2-1k"
SMALL_ENGINES = ("penstock-files", "native")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The files that all engines read, and those that warm them up."""

    calls: Path
    warm: Path
    rows: int
    files_per_epoch: int


def run(
    *,
    rows: int = ROWS,
    workloads: Sequence[str] = tuple(WORKLOADS),
    rows_per_epoch: int = ROWS_PER_EPOCH,
    engines: Sequence[str] | None = None,
    log: Callable[[str], None],
    cache: Path | None = None,
    keep: bool = False,
    small: bool = False,
) -> list[BenchRow]:
    """Run the engines on the workloads and return their figures.

    With fewer rows than four epochs hold, epochs get smaller, so that there are four. The
    cache folder is removed at the end unless `keep`. With `small`, the rows of `small_epoch`
    follow.

    Raises:
        OutputMismatchError: two engines gave different rows.
        EngineError: an engine's process gave no result.
    """
    chosen = _chosen(engines, workloads)
    with cache_folder(cache, keep=keep) as folder:
        inputs = make_inputs(folder, rows=rows, rows_per_epoch=rows_per_epoch, log=log)
        figures = [
            row
            for name in workloads
            for row in run_workload(WORKLOADS[name], inputs, chosen, folder, log)
        ]
    if small:
        few = [engine for engine in SMALL_ENGINES if engine in chosen]
        figures += small_epoch(engines=few, log=log, cache=cache, keep=keep) if few else []
    return figures


def small_epoch(
    *,
    rows_per_epoch: int = 1_000,
    epochs: int = 30,
    engines: Sequence[str] = SMALL_ENGINES,
    log: Callable[[str], None],
    cache: Path | None = None,
    keep: bool = False,
) -> list[BenchRow]:
    """Measure epochs of one small file each, on W2; every epoch spans a minute of event time."""
    with cache_folder(cache, keep=keep) as folder:
        calls = CallRecords(rows=rows_per_epoch * epochs, hours=epochs / 60)
        small = folder / f"small-{calls.rows}-{epochs}"
        calls.write(small, files=epochs)
        inputs = Inputs(calls=small, warm=_warm(folder), rows=calls.rows, files_per_epoch=1)
        return run_workload(WORKLOADS["W2"], inputs, engines, folder, log, shown_as=SMALL)


def run_workload(
    load: Workload,
    inputs: Inputs,
    engines: Sequence[str],
    folder: Path,
    log: Callable[[str], None],
    *,
    shown_as: str | None = None,
) -> list[BenchRow]:
    """Run one workload on each engine, compare the outputs, and only then give figures."""
    name = shown_as or load.name
    runs: dict[str, Measured] = {}
    outputs: dict[str, Output] = {}
    last = last_time(inputs.calls)
    for engine in engines:
        with own_folder(folder / f"{name}-{engine}") as work:
            log(f"{name}: {engine} on {inputs.rows:,} rows")
            runs[engine] = run_engine(_job(engine, load, inputs, work))
            outputs[engine] = read_output(work / "out", load, last)
            open_rows = outputs[engine].open_rows
            log(f"{name}: {engine} wrote {open_rows:,} rows of windows still open at the end")
            log(f"{name}: others kept {runs[engine].others_cores:.1f} cores busy meanwhile")
    check_equal(load, outputs)
    same = f"outputs of {len(outputs)} engines are equal, row by row"
    log(f"{name}: {same if len(outputs) > 1 else 'one engine, so nothing was compared'}")
    return with_ratios(
        [
            bench_row(run, workload=name, rows=inputs.rows, output_rows=outputs[e].closed.height)
            for e, run in runs.items()
        ]
    )


def make_inputs(
    folder: Path, *, rows: int, rows_per_epoch: int, log: Callable[[str], None]
) -> Inputs:
    """Write the call records, five files to an epoch, unless they are there."""
    rows_per_epoch = max(FILES_PER_EPOCH, min(rows_per_epoch, rows // 4))
    files = max(1, round(rows / rows_per_epoch * FILES_PER_EPOCH))
    calls = folder / f"calls-{rows}-{files}"
    log(f"writing {rows:,} call records to {files} files in {calls}")
    CallRecords(rows=rows).write(calls, files=files)
    return Inputs(calls=calls, warm=_warm(folder), rows=rows, files_per_epoch=FILES_PER_EPOCH)


@contextmanager
def cache_folder(cache: Path | None, *, keep: bool) -> Iterator[Path]:
    """Give the folder for inputs and scratch, and remove it at the end unless `keep`."""
    folder = cache or Path(tempfile.gettempdir()) / "penstock-bench"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def own_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder, and remove it at the end."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _job(engine: str, load: Workload, inputs: Inputs, work: Path) -> EngineJob:
    return EngineJob(
        engine=engine,
        workload=load,
        calls=inputs.calls,
        warm=inputs.warm,
        out=work / "out",
        work=work,
        files_per_epoch=inputs.files_per_epoch,
    )


def _warm(folder: Path) -> Path:
    """Write the small input that warms the engines up: twenty epochs of an hour in all.

    A continuous query runs for days; what the JVM's compiler does in its first seconds is not
    what it costs.
    """
    warm = folder / "warm-20"
    CallRecords(rows=20_000, hours=1.0, seed=1).write(warm, files=20)
    return warm


def _chosen(engines: Sequence[str] | None, workloads: Sequence[str]) -> Sequence[str]:
    """Return the engines to run; refuse names that do not exist."""
    chosen = ENGINES if engines is None else engines
    unknown = [*(set(chosen) - set(ENGINES)), *(set(workloads) - set(WORKLOADS))]
    if unknown or not chosen or not workloads:
        raise ValueError(
            f"unknown or empty choice; unknown={sorted(unknown)!r}, "
            f"engines={ENGINES!r}, workloads={tuple(WORKLOADS)!r}"
        )
    return chosen


def main() -> None:
    """Run from the command line: `python -m bench.cdr --rows 1000000 --engines native,polars`."""
    from rich.console import Console

    parser = argparse.ArgumentParser(description="benchmark on call records")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rows-per-epoch", type=int, default=ROWS_PER_EPOCH)
    parser.add_argument("--workload", default=",".join(WORKLOADS))
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--small", action="store_true", help="also measure small epochs")
    parser.add_argument("--keep", action="store_true", help="keep the input files")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = run(
        rows=given.rows,
        workloads=given.workload.split(","),
        rows_per_epoch=given.rows_per_epoch,
        engines=given.engines.split(","),
        log=lambda line: print(line, file=sys.stderr),
        keep=given.keep,
        small=given.small,
    )
    print(to_json(rows)) if given.json else Console().print(table(rows))


if __name__ == "__main__":
    main()
