"""What a campaign found, and the table of all campaigns.

Law: a campaign that did nothing, lost, doubled or changed a row, or let damage pass, is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from rich.table import Table

Log = Callable[[str], None]
"""Takes one line about how a campaign goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignResult:
    """What a campaign found.

    Attributes:
        campaign: Its name.
        trials: How many runs it made.
        faults: How many faults it injected in them.
        points: How many different points of a run it stopped at; None if that has no meaning.
        points_total: How many such points there are.
        lost: Rows that should be there and are not.
        duplicated: Rows that are there more than once.
        differing: Other things that differ: counts, watermarks, state, or an error that should not
            have been.
        detected: Faults that Penstock had to notice and did, with a clear error.
        undetected: Faults that it had to notice and did not.
        recovery_ms: How long each restart took until it could go on.
        failing: Seeds, or names, of the trials that failed; each can be run alone.
        seconds: How long the campaign took.
    """

    campaign: str
    trials: int
    faults: int
    points: int | None = None
    points_total: int | None = None
    lost: int = 0
    duplicated: int = 0
    differing: int = 0
    detected: int = 0
    undetected: int = 0
    recovery_ms: Sequence[float] = ()
    failing: Sequence[int | str] = ()
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether it did something and nothing went wrong."""
        wrong = self.lost + self.duplicated + self.differing + self.undetected
        return self.trials > 0 and self.faults > 0 and not wrong and not self.failing

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        found = asdict(self) | {"failing": list(self.failing), "passed": self.passed}
        del found["recovery_ms"]
        return found | {
            "recovery_median_ms": percentile(self.recovery_ms, 0.5),
            "recovery_p95_ms": percentile(self.recovery_ms, 0.95),
        }


class Campaign(Protocol):
    """A module of `faults.campaigns`."""

    def __call__(self, trials: int, seed: int, log: Log) -> CampaignResult:
        """Make a number of trials; with one trial, the one of that seed."""
        ...


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the value below which a share of the values lies.

    >>> percentile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    if not values:
        return None
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def table_of(results: Sequence[CampaignResult]) -> Table:
    """Return the table of all campaigns."""
    table = Table(title="Faults")
    table.add_column("campaign", no_wrap=True)
    for heading in ("trials", "faults", "points", "lost", "doubled", "differing", "detected"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("recovery ms\nmedian / p95", justify="right", no_wrap=True)
    table.add_column("seconds", justify="right")
    table.add_column("failing seeds")
    for result in results:
        table.add_row(*_cells(result), style=None if result.passed else "bold red")
    return table


def _cells(result: CampaignResult) -> list[str]:
    points = "–" if result.points is None else f"{result.points} of {result.points_total}"
    detected = str(result.detected)
    if result.undetected:
        detected += f" of {result.detected + result.undetected}"
    times = [percentile(result.recovery_ms, share) for share in (0.5, 0.95)]
    recovery = " / ".join("–" if t is None else f"{t:.1f}" for t in times)
    counts = [result.trials, result.faults]
    wrong = [result.lost, result.duplicated, result.differing]
    return [
        result.campaign,
        *[str(n) for n in counts],
        points,
        *[str(n) for n in wrong],
        detected,
        recovery,
        f"{result.seconds:.1f}",
        ", ".join(str(seed) for seed in result.failing[:8]) or "none",
    ]


def summary(results: Sequence[CampaignResult]) -> Mapping[str, Any]:
    """Return all results as plain values, for ``--json``."""
    return {
        "passed": bool(results) and all(result.passed for result in results),
        "campaigns": [result.as_dict() for result in results],
    }
