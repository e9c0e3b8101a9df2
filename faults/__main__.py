"""``python -m faults``: run the campaigns and print one table.

Exit code 1 if anything was lost, doubled, different or not noticed. One seed alone:
``python -m faults --campaign simulation --seed 4711 --trials 1``.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module, util
from typing import Annotated

import typer
from rich.console import Console

from faults.report import Campaign, CampaignResult, Log, summary, table_of


@dataclass(frozen=True, slots=True)
class Entry:
    """A campaign: where it is, and how many trials it makes in full and in short; 0 for all."""

    module: str
    full: int
    short: int
    function: str = "run"

    def find(self) -> Campaign | None:
        """Return the campaign, if it is there."""
        module = f"faults.campaigns.{self.module}"
        if util.find_spec(module) is None:
            return None
        found: Campaign | None = getattr(import_module(module), self.function, None)
        return found


CAMPAIGNS: dict[str, Entry] = {
    "simulation": Entry("simulation", 20_000, 200),
    "crash-points": Entry("crash_points", 0, 40),
    "io-errors": Entry("io_errors", 0, 40),
    "zombies": Entry("zombies", 240, 30),
    "races": Entry("races", 120, 8),
    "corruption": Entry("corruption", 2_000, 100),
    "histories": Entry("histories", 2_000, 12),
    "driver-kills": Entry("kills", 200, 6, "run_driver_kills"),
    "worker-kills": Entry("kills", 200, 6, "run_worker_kills"),
    "storm": Entry("storm", 1_000, 12, "run_storm"),
}


def main(
    campaign: Annotated[list[str] | None, typer.Option(help="Run only these.")] = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 1,
    trials: Annotated[int | None, typer.Option(help="How many trials of each.")] = None,
    short: Annotated[bool, typer.Option("--short", help="A few minutes' worth.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Break Penstock in every way we know, and count what is lost."""
    messages = Console(stderr=True)
    found = {name: run for name, entry in CAMPAIGNS.items() if (run := entry.find()) is not None}
    chosen = [name.replace("_", "-") for name in campaign or found]
    unknown = [name for name in chosen if name not in found]
    if unknown:
        messages.print(f"error: no campaign {unknown[0]!r}")
        messages.print(f"hint: campaigns: {', '.join(found)}")
        raise typer.Exit(2)
    results = []
    for name in chosen:
        entry = CAMPAIGNS[name]
        count = (entry.short if short else entry.full) if trials is None else trials
        messages.print(f"{name}: {count or 'all'} trials from seed {seed} on")
        results.append(_timed(found[name], count, seed, partial(messages.print, markup=False)))
    _show(results, as_json)
    if not summary(results)["passed"]:
        raise typer.Exit(1)


def _timed(run: Campaign, trials: int, seed: int, log: Log) -> CampaignResult:
    since = time.perf_counter()
    result = run(trials, seed, log)
    return replace(result, seconds=time.perf_counter() - since)


def _show(results: Sequence[CampaignResult], as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary(results), indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else 160).print(table_of(results))


def _exit(*_: object) -> None:
    """End as after an error, so that folders and processes are cleared away."""
    raise SystemExit(143)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _exit)
    typer.run(main)
