"""The rescale storm as a campaign of the fault programme; see `faults.storm`."""

from __future__ import annotations

from faults.report import CampaignResult, Log
from faults.storm import SHORT_WORKERS, WORKERS, run

_FULL = 100
"""From so many operations on there is a worker more."""


def run_storm(trials: int, seed: int, log: Log) -> CampaignResult:
    """Make so many operations, and a kill in the middle of one in ten of them, but of two at least.

    A query that ended although nobody killed its driver counts as a difference.
    """
    workers = WORKERS if trials >= _FULL else SHORT_WORKERS
    tally = run(trials, min(trials, max(2, trials // 10)), seed, log, workers=workers)
    wrong = [*tally.verdict.remarks, *tally.ended]
    for remark in wrong:
        log(f"storm {seed}: {remark}")
    return CampaignResult(
        campaign="storm",
        trials=sum(tally.operations.values()),
        faults=sum(tally.kills.values()),
        lost=tally.verdict.lost,
        duplicated=tally.verdict.duplicated,
        differing=tally.verdict.differing + len(tally.ended),
        recovery_ms=[*tally.recovery_ms, *tally.restart_ms],
        failing=[seed] if wrong else [],
        seconds=tally.seconds,
    )
