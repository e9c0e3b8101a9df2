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

import polars as pl

from bench.batch.calls import comparisons
from bench.compare import Output, check_equal, last_time, read_output
from bench.engine_main import MODULES
from bench.engines.base import EngineJob
from bench.measure import Measured, run_engine
from bench.report import BenchRow, bench_row, table, to_json, with_ratios
from bench.workloads import WORKLOADS, Workload
from penstock.workloads.cdr import CallRecords
from penstock.workloads.draws import SECOND

__all__ = ["ENGINES", "WORKLOADS", "BenchRow", "run", "small_epoch", "table", "to_json"]

ENGINES = tuple(MODULES)
FILES_PER_EPOCH = 5
WARM_EPOCHS, SHORT_WARM_EPOCHS, LONG_ROWS = 20, 4, 1_000_000
ROWS = 10_000_000
ROWS_PER_EPOCH = 2_500_000
NATIVE_JOIN_PART = 10
"""Native does some thousand rows a second of the join, so it gets a tenth of them."""
PRODUCT_PART = 50
PRODUCT_ROWS_PER_SECOND = 333
UNABLE = {("product", "native")}
"""Structured Streaming refuses a join of streams without an equality."""
SMALL = "W2-1k"
SMALL_ENGINES = ("penstock-files", "native")


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The files that all engines read, and those that warm them up."""

    calls: Path
    warm: Path
    rows: int
    files_per_epoch: int

    def first(self, files: int) -> "Inputs":
        """Return the first few files as an input of their own, one of them to an epoch."""
        taken = sorted(self.calls.glob("*.parquet"))[:files]
        folder = self.calls.with_name(f"{self.calls.name}-first-{files}")
        folder.mkdir(exist_ok=True)
        for file in taken:
            if not (folder / file.name).exists():
                (folder / file.name).hardlink_to(file)
        rows = pl.scan_parquet(taken).select(pl.len()).collect().item()
        return Inputs(calls=folder, warm=self.warm, rows=rows, files_per_epoch=1)


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
        figures = [
            row
            for load in map(WORKLOADS.__getitem__, workloads)
            for row in run_workload(
                load,
                make_inputs(folder, load, rows=rows, rows_per_epoch=rows_per_epoch, log=log),
                [engine for engine in chosen if (load.kind, engine) not in UNABLE],
                folder,
                log,
            )
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
    given = {engine: _inputs_of(engine, load, inputs) for engine in engines}
    last = min(last_time(taken.calls) for taken in given.values())
    for engine in engines:
        with own_folder(folder / f"{name}-{engine}") as work:
            log(f"{name}: {engine} on {given[engine].rows:,} rows")
            runs[engine] = run_engine(_job(engine, load, given[engine], work))
            outputs[engine] = read_output(work / "out", load, last)
            open_rows = outputs[engine].open_rows
            log(f"{name}: {engine} wrote {open_rows:,} rows of what others do not have complete")
            log(f"{name}: others kept {runs[engine].others_cores:.1f} cores busy meanwhile")
    check_equal(load, outputs)
    same = f"outputs of {len(outputs)} engines are equal, row by row"
    log(f"{name}: {same if len(outputs) > 1 else 'one engine, so nothing was compared'}")
    compared = _comparisons(load, inputs)
    return with_ratios(
        [
            bench_row(
                run,
                workload=name,
                rows=given[engine].rows,
                output_rows=outputs[engine].closed.height,
                comparisons=compared if engine.startswith("penstock") else None,
            )
            for engine, run in runs.items()
        ]
    )


def _inputs_of(engine: str, load: Workload, inputs: Inputs) -> Inputs:
    """Return what an engine is given: all, or native for the join the first tenth of the files."""
    if (load.kind, engine) != ("join", "native"):
        return inputs
    files = len(list(inputs.calls.glob("*.parquet")))
    return inputs.first(max(1, files // NATIVE_JOIN_PART))


def _comparisons(load: Workload, inputs: Inputs) -> int | None:
    """Return how many ordered pairs of rows a product has to look at."""
    if load.kind != "product":
        return None
    calls = pl.scan_parquet(inputs.calls / "*.parquet")
    return comparisons(calls, within_us=load.size_seconds * SECOND)


def make_inputs(
    folder: Path, load: Workload, *, rows: int, rows_per_epoch: int, log: Callable[[str], None]
) -> Inputs:
    """Write the call records, five files to an epoch, unless they are there.

    A product gets fewer rows, as many to a second whatever their number, since its work is their
    product.
    """
    records = CallRecords(rows=rows)
    if load.kind == "product":
        few = max(FILES_PER_EPOCH, rows // PRODUCT_PART)
        records = CallRecords(rows=few, hours=few / PRODUCT_ROWS_PER_SECOND / 3600)
    rows_per_epoch = max(FILES_PER_EPOCH, min(rows_per_epoch, records.rows // 4))
    files = max(1, round(records.rows / rows_per_epoch * FILES_PER_EPOCH))
    calls = folder / f"calls-{records.rows}-{files}-{records.hours:g}h"
    log(f"writing {records.rows:,} call records to {files} files in {calls}")
    records.write(calls, files=files)
    warm = _warm(folder, epochs=WARM_EPOCHS if rows >= LONG_ROWS else SHORT_WARM_EPOCHS)
    return Inputs(calls=calls, warm=warm, rows=records.rows, files_per_epoch=FILES_PER_EPOCH)


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


def _warm(folder: Path, epochs: int = WARM_EPOCHS) -> Path:
    """Write the small input that warms the engines up: some epochs of an hour in all.

    A continuous query runs for days; what the JVM's compiler does in its first seconds is not
    what it costs. Runs that are too short for figures are warmed up shortly, too.
    """
    warm = folder / f"warm-{epochs}"
    CallRecords(rows=1_000 * epochs, hours=1.0, seed=1).write(warm, files=epochs)
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
