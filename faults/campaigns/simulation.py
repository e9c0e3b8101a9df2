"""Simulation: many short runs on a disk in memory, with crashes wherever the seeds put them.

Power is lost with data half written, in recovery too; drivers come back with other layouts; at
times two run at once. Law: what a run leaves is what the clean run leaves, to the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from faults.report import CampaignResult, Log
from faults.tally import Tally
from faults.workers import workers
from penstock.testing.faults.simulate import TRIALS_PER_SCENARIO, Trial, simulate

_FEW = 2 * TRIALS_PER_SCENARIO
_AHEAD = 8
_LOG_EVERY = 1000


def run(trials: int, seed: int, log: Log) -> CampaignResult:
    """Run the trials of some seeds, the first of which is given."""
    tally = Tally(campaign="simulation", log=log)
    seeds = range(seed, seed + trials)
    for trial in map(simulate, seeds) if trials <= _FEW else _spread(seeds):
        tally.add(
            trial.seed,
            trial.odd,
            faults=trial.crashes,
            detected=trial.fenced,
            recovery_ms=trial.recovery_ms,
        )
        if tally.trials % _LOG_EVERY == 0:
            log(f"simulation: {tally.trials} of {trials}, {len(tally.failing)} failed")
    return tally.result()


def _spread(seeds: range) -> Iterator[Trial]:
    """Run the trials in worker processes; those of one scenario in one."""
    first, last = seeds.start // TRIALS_PER_SCENARIO, (seeds.stop - 1) // TRIALS_PER_SCENARIO
    chunks = (
        [s for s in range(c * TRIALS_PER_SCENARIO, (c + 1) * TRIALS_PER_SCENARIO) if s in seeds]
        for c in range(first, last + 1)
    )
    with workers() as pool:
        running: set[Future[list[Trial]]] = set()
        for chunk in chunks:
            running.add(_submit(pool, chunk))
            if len(running) >= _AHEAD:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
        for future in running:
            yield from future.result()


def _submit(pool: ProcessPoolExecutor, chunk: Sequence[int]) -> Future[list[Trial]]:
    return pool.submit(simulate_all, chunk)


def simulate_all(seeds: Sequence[int]) -> list[Trial]:
    """Run the trials of some seeds; a worker's task."""
    return [simulate(seed) for seed in seeds]
