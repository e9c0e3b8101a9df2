"""Adds up what the trials of a campaign found."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from faults.report import CampaignResult, Log
from penstock.testing.faults.oracle import Difference

_SHOWN = 5


@dataclass(slots=True, kw_only=True)
class Tally:
    """The sums of a campaign so far."""

    campaign: str
    log: Log
    trials: int = 0
    faults: int = 0
    detected: int = 0
    odd: Difference = field(default_factory=Difference)
    recovery_ms: list[float] = field(default_factory=list)
    failing: list[int | str] = field(default_factory=list)
    since: float = field(default_factory=time.perf_counter)

    def add(
        self,
        name: int | str,
        odd: Difference,
        *,
        faults: int = 1,
        detected: int = 0,
        recovery_ms: Sequence[float] = (),
    ) -> None:
        """Add a trial; the notes of the first ones that fail are logged."""
        self.trials += 1
        self.faults += faults
        self.detected += detected
        self.recovery_ms += recovery_ms
        self.odd.lost += odd.lost
        self.odd.duplicated += odd.duplicated
        self.odd.differing += odd.differing
        if odd:
            self.failing.append(name)
            if len(self.failing) <= _SHOWN:
                self.log(f"{self.campaign} {name}: {'; '.join(odd.notes)[:500]}")

    def result(self, points: int | None = None, points_total: int | None = None) -> CampaignResult:
        """Return the sums as the campaign's result."""
        return CampaignResult(
            campaign=self.campaign,
            trials=self.trials,
            faults=self.faults,
            points=points,
            points_total=points_total,
            lost=self.odd.lost,
            duplicated=self.odd.duplicated,
            differing=self.odd.differing,
            detected=self.detected,
            recovery_ms=self.recovery_ms,
            failing=self.failing,
            seconds=time.perf_counter() - self.since,
        )
