"""Histories: checkpoints and folders that are continued, finished, removed, taken over, moved.

Each trial is a sequence of steps in this process, drawn by its seed, with crashes among them. Law:
a plain reader of the folder finds what a plain model says, after every step, and at the end an
audit of every checkpoint agrees.
"""

from __future__ import annotations

import shutil

from faults.real import scratch
from faults.report import CampaignResult, Log
from faults.tally import Tally
from penstock.testing.faults.histories import live

_LOG_EVERY = 200


def run(trials: int, seed: int, log: Log) -> CampaignResult:
    """Live through the histories of some seeds, the first of which is given."""
    tally = Tally(campaign="histories", log=log)
    with scratch() as folder:
        for number in range(seed, seed + trials):
            place = folder / str(number)
            place.mkdir()
            found = live(number, place)
            shutil.rmtree(place)
            tally.add(number, found.odd, faults=found.crashes, detected=found.refused)
            if tally.trials % _LOG_EVERY == 0:
                log(f"histories: {tally.trials} of {trials}, {len(tally.failing)} failed")
    return tally.result()
