"""The state benchmark: what a small epoch costs with few and with many keys in state.

The laws this module keeps: every engine reads the same files with the same memory, and what it
gives when the window closes is compared with a batch job before any of its figures is given.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import polars as pl

from bench.cdr import own_folder
from bench.compare import OutputMismatchError, visible_files
from bench.engines.state import ENGINES, StateJob, StateTimes
from bench.measure import EngineError, Job, run_process
from bench.state_input import StateInput, expected
from bench.state_report import StateRow, failed_row, state_row, table, to_json

__all__ = ["ENGINES", "KEYS", "StateRow", "run", "table", "to_json"]

KEYS = (10_000, 100_000, 1_000_000, 10_000_000)
EPOCHS = 40
ROWS_PER_EPOCH = 10_000
LIMIT_SECONDS = 1200.0
"""An engine that takes longer than this at one number of keys has failed there."""
WARM_EPOCHS = 19
"""Besides the one that brings the keys in; a short run warms up on as many as it measures."""


def run(
    *,
    keys: Sequence[int] = KEYS,
    engines: Sequence[str] | None = None,
    epochs: int = EPOCHS,
    rows_per_epoch: int = ROWS_PER_EPOCH,
    log: Callable[[str], None],
) -> list[StateRow]:
    """Run the engines with each number of keys and return their figures.

    With fewer keys than an epoch has rows, epochs have as many rows as there are keys. An engine
    that gives no result gets a row that says why.

    Raises:
        OutputMismatchError: an engine gave other rows than the batch job.
    """
    chosen = _chosen(engines, keys)
    figures = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        warm = min(epochs, WARM_EPOCHS)
        StateInput(keys=1_000, epochs=warm, rows_per_epoch=1_000, seed=1).write(folder / "warm")
        for number in keys:
            source = StateInput(
                keys=number, epochs=epochs, rows_per_epoch=min(rows_per_epoch, number)
            )
            with own_folder(folder / f"state-{number}") as here:
                figures += _run_size(source, chosen, here, folder / "warm", log)
    return figures


def _run_size(
    source: StateInput, engines: Sequence[str], here: Path, warm: Path, log: Callable[[str], None]
) -> list[StateRow]:
    """Run all engines on one input."""
    log(f"writing {source.keys:,} keys and {source.epochs} epochs to {here}")
    source.write(here / "input")
    wanted = expected(here / "input")
    rows = []
    for engine in engines:
        with own_folder(here / engine) as work:
            name = f"{source.keys:,} keys"
            job = StateJob(engine=engine, name=name, files=here / "input", warm=warm, work=work)
            log(f"{name}: {engine}")
            rows.append(_run_engine(job, source, wanted, log))
    return rows


def _run_engine(
    job: StateJob, source: StateInput, wanted: pl.DataFrame, log: Callable[[str], None]
) -> StateRow:
    """Run one engine and compare what it gave; a run without a result becomes a row."""
    try:
        ran = run_process(job, "bench.state_main", limit_seconds=LIMIT_SECONDS)
    except EngineError as error:
        log(str(error))
        return failed_row(job.engine, source, _reason(error))
    told = {name: ran.told[name] for name in StateTimes.__dataclass_fields__}
    times = StateTimes(**told)
    check_output(job, wanted)
    if len(times.epoch_ms) != source.epochs:
        return failed_row(job.engine, source, f"ran {len(times.epoch_ms)} epochs")
    log(f"{job.name}: {job.engine} gave the {wanted.height:,} rows of the batch job")
    log(f"{job.name}: others kept {ran.others_cores:.1f} cores busy meanwhile")
    return state_row(job.engine, source, ran, times)


def check_output(job: Job, wanted: pl.DataFrame) -> None:
    """Compare an engine's output with what is expected, key by key.

    Raises:
        OutputMismatchError: They differ.
    """
    files = visible_files(job.work / "out")
    found = pl.scan_parquet(files, hive_partitioning=False).select(
        "key", pl.col("rows").cast(pl.Int64), pl.col("total").cast(pl.Int64)
    )
    got = found.sort("key").collect()
    if not got.equals(wanted):
        odd = got.join(wanted, on=got.columns, how="anti")
        raise OutputMismatchError(
            job.name,
            job.engine,
            "a batch job",
            f"{got.height} rows of {wanted.height}, {odd.height} others: {odd.head(3).rows()!r}",
        )


def _reason(error: EngineError) -> str:
    """Return in one line why an engine gave no result."""
    if error.code is not None and error.code < 0:
        return f"killed after {LIMIT_SECONDS:.0f} s, or for want of memory; code={error.code}"
    telling = [line for line in error.log.splitlines() if "Error" in line or "Exception" in line]
    return (telling or ["no result"])[-1].strip()[:200]


def _chosen(engines: Sequence[str] | None, keys: Sequence[int]) -> Sequence[str]:
    """Return the engines to run; refuse names that do not exist."""
    chosen = ENGINES if engines is None else engines
    unknown = sorted(set(chosen) - set(ENGINES))
    if unknown or not chosen or not keys:
        raise ValueError(
            f"unknown or empty choice; unknown={unknown!r}, engines={ENGINES!r}, keys={keys!r}"
        )
    return chosen


def main() -> None:
    """Run from the command line: `python -m bench.state --keys 10000,100000 --epochs 10`."""
    from rich.console import Console

    parser = argparse.ArgumentParser(description="benchmark of epochs over many keys")
    parser.add_argument("--keys", default=",".join(map(str, KEYS)))
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = run(
        keys=[int(number) for number in given.keys.split(",")],
        engines=given.engines.split(","),
        epochs=given.epochs,
        log=lambda line: print(line, file=sys.stderr),
    )
    print(to_json(rows)) if given.json else Console().print(table(rows))


if __name__ == "__main__":
    main()
