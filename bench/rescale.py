"""The rescale benchmark: what an epoch costs in which a query gets another number of instances.

Penstock moves buckets between two epochs of a running query; native Spark is stopped, its
checkpoint is repartitioned, and it is started again. The laws this module keeps: both engines get
the same files and keep the same keys, and what they give when the window closes is compared with
a batch job before any figure is given.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.cdr import own_folder
from bench.engines.rescale import ENGINES, RescaleJob, RescaleTimes, schedule
from bench.measure import run_process
from bench.rescale_report import RescaleRow, rescale_rows, table, to_json
from bench.state import check_output
from bench.state_input import StateInput, expected

__all__ = ["ENGINES", "KEYS", "RescaleRow", "run", "table", "to_json"]

KEYS = 1_000_000
ROWS_PER_EPOCH = 100_000
ROUNDS = 5
PLAIN = 6
LIMIT_SECONDS = 1800.0
_WARM_KEYS = 10_000


def run(
    *,
    keys: int = KEYS,
    rows_per_epoch: int = ROWS_PER_EPOCH,
    engines: Sequence[str] | None = None,
    rounds: int = ROUNDS,
    plain: int = PLAIN,
    log: Callable[[str], None],
) -> list[RescaleRow]:
    """Run the engines and return their figures, a row for each direction.

    Args:
        keys: How many keys are in state.
        rows_per_epoch: Rows of an epoch; no more than there are keys.
        engines: The engines; all unless given.
        rounds: How often each direction is measured.
        plain: How many plain epochs come before each rescale.
        log: Gets a line now and then.

    Raises:
        OutputMismatchError: an engine gave other rows than the batch job.
        EngineError: an engine gave no result.
    """
    chosen = _chosen(engines)
    if rounds < 1 or plain < 1:
        raise ValueError(f"nothing to measure; rounds={rounds!r}, plain={plain!r} (at least 1)")
    epochs = len(list(schedule(rounds, plain)))
    source = StateInput(keys=keys, epochs=epochs, rows_per_epoch=min(rows_per_epoch, keys))
    warm = min(keys, _WARM_KEYS)
    warm_epochs = len(list(schedule(min(rounds, 2), min(plain, 4))))
    warming = StateInput(keys=warm, epochs=warm_epochs, rows_per_epoch=warm // 2 or 1, seed=1)
    rows: list[RescaleRow] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        folder = Path(name)
        log(f"writing {source.keys:,} keys and {source.epochs} epochs to {folder}")
        source.write(folder / "input")
        warming.write(folder / "warm")
        wanted = expected(folder / "input")
        for engine in chosen:
            with own_folder(folder / engine) as work:
                job = RescaleJob(
                    engine=engine,
                    name=f"rescale with {keys:,} keys",
                    files=folder / "input",
                    warm=folder / "warm",
                    work=work,
                    rounds=rounds,
                    plain=plain,
                )
                log(f"{job.name}: {engine}")
                ran = run_process(job, "bench.rescale_main", limit_seconds=LIMIT_SECONDS)
                check_output(job, wanted)
                log(f"{job.name}: {engine} gave the {wanted.height:,} rows of the batch job")
                log(f"{job.name}: others kept {ran.others_cores:.1f} cores busy meanwhile")
                rows += rescale_rows(engine, keys, source.rows_per_epoch, _times(ran.told), ran)
    return rows


def _times(told: dict[str, object]) -> RescaleTimes:
    fields: dict[str, object] = {n: told[n] for n in RescaleTimes.__dataclass_fields__}
    return RescaleTimes(**fields)  # type: ignore[arg-type]  # plain values of its own making


def _chosen(engines: Sequence[str] | None) -> Sequence[str]:
    """Return the engines to run; refuse names that do not exist."""
    chosen = ENGINES if engines is None else engines
    unknown = sorted(set(chosen) - set(ENGINES))
    if unknown or not chosen:
        raise ValueError(f"unknown or empty choice; unknown={unknown!r}, engines={ENGINES!r}")
    return chosen


def main() -> None:
    """Run from the command line: `python -m bench.rescale --keys 100000 --rounds 2`."""
    from rich.console import Console

    parser = argparse.ArgumentParser(description="benchmark of a rescale in a running query")
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--rows-per-epoch", type=int, default=ROWS_PER_EPOCH)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--plain", type=int, default=PLAIN)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = run(
        keys=given.keys,
        rows_per_epoch=given.rows_per_epoch,
        engines=given.engines.split(","),
        rounds=given.rounds,
        plain=given.plain,
        log=lambda line: print(line, file=sys.stderr),
    )
    print(to_json(rows)) if given.json else Console().print(table(rows))


if __name__ == "__main__":
    main()
