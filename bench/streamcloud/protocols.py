"""Figure 19: state recreation against window recreation.

One run for each size of the window and each number of keys: the stateful subquery gets one more
instance by state recreation, gives it back, gets it again, gives it back, and gets it by window
recreation. Event time goes at the pace of the clock, so a window lasts as long as it says.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.streamcloud.inputs import call_epochs, stream_of, write_epochs
from bench.streamcloud.queries import mean_by_caller
from bench.streamcloud.result import Measured, Panel, Series
from bench.streamcloud.runs import Run, run_query, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.changes import MoveProtocol
    from penstock.spark.handle import Query

SLOTS = 2
EVERY = 0.5
STATEFUL = 1
WARM = 4
LIMIT_SECONDS = 240.0
SHORT = {"state": "SR", "window": "WR"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run: the window's size in seconds, how many keys there are, from how many instances."""

    window: int
    keys: int
    instances: int = 1

    @property
    def epochs(self) -> int:
        """How many epochs it takes: the changes, a window to end, and some to be sure."""
        return WARM + 8 + round(self.window / EVERY) + 6

    @property
    def change(self) -> str:
        """The change of the number of instances."""
        return f"{self.instances} → {self.instances + 1}"


FULL = tuple(
    Case(window=window, keys=keys) for window in (1, 5, 10) for keys in (2_000, 20_000, 100_000)
) + tuple(Case(window=5, keys=keys, instances=3) for keys in (2_000, 100_000))
QUICK = (Case(window=1, keys=1_000), Case(window=1, keys=10_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What one change took under one protocol."""

    case: Case
    protocol: str
    seconds: float
    bytes: int


class _Script:
    """Asks for the changes of a run, each in its epoch."""

    def __init__(self, case: Case) -> None:
        more, fewer = case.instances + 1, case.instances
        # The first change may start a worker process; the second time it does not.
        self._todo: list[tuple[int, int, MoveProtocol]] = [
            (WARM, more, "state"),
            (WARM + 2, fewer, "state"),
            (WARM + 4, more, "state"),
            (WARM + 6, fewer, "state"),
            (WARM + 8, more, "window"),
        ]

    def __call__(self, query: "Query") -> None:
        done = len(query.epochs)
        if self._todo and done >= self._todo[0][0]:
            _, instances, protocol = self._todo.pop(0)
            query.rescale(STATEFUL, instances, protocol=protocol)


def recreation(folder: Path, *, quick: bool, log: Callable[[str], None]) -> Measured:
    """Measure completion times and bytes of both protocols."""
    cases = QUICK if quick else FULL
    found: list[Moved] = []
    with session(SLOTS) as spark:
        for number, case in enumerate(cases):
            moved = _run(spark, folder / str(number), case)
            log(f"{case}: " + ", ".join(f"{m.protocol} {m.seconds:.2f} s" for m in moved))
            found += moved
    return _measured(found, cases)


def _run(spark: "SparkSession", folder: Path, case: Case) -> list[Moved]:
    rows = round(case.keys * 1.2)  # nearly every key is in a window of one epoch already
    total = write_epochs(
        folder / "input",
        call_epochs(epochs=case.epochs, rows=rows, seconds=EVERY, callers=case.keys),
    )
    run = run_query(
        spark,
        mean_by_caller(stream_of(folder / "input"), case.window),
        folder / "run",
        rows=total,
        limit_seconds=LIMIT_SECONDS,
        every=EVERY,
        meanwhile=_Script(case),
        instances={STATEFUL: case.instances},
    )
    return [_moved(run, case, protocol) for protocol in SHORT]


def _moved(run: Run, case: Case, protocol: str) -> Moved:
    """Return the change to one more instance under a protocol, as it was when it was done."""
    ended = [c for c in run.changes if c.outcome == "done" and c.protocol == protocol]
    mine = [c for c in ended if c.after == case.instances + 1]
    if not mine:
        told = [(c.id, c.protocol, c.before, c.after, c.outcome) for c in run.changes]
        raise RuntimeError(f"no change by protocol={protocol!r} was done; changes={told!r}")
    return Moved(case=case, protocol=protocol, seconds=mine[-1].seconds, bytes=mine[-1].bytes)


def _measured(found: list[Moved], cases: tuple[Case, ...]) -> Measured:
    windows = [m for m in found if m.protocol == "window"]
    states = [m for m in found if m.protocol == "state"]
    few, many = min(c.keys for c in cases), max(c.keys for c in cases)
    by_keys = {
        keys: sum(m.bytes for m in states if m.case.keys == keys)
        / sum(m.case.keys == keys for m in states)
        for keys in (few, many)
    }
    late = max(m.seconds - m.case.window for m in windows)
    in_time = all(m.seconds <= m.case.window + 4 * EVERY for m in windows)
    times = {keys: [m.seconds for m in states if m.case.keys == keys] for keys in (few, many)}
    return Measured(
        holds=all(m.bytes == 0 for m in windows) and in_time and by_keys[many] > 2 * by_keys[few],
        by=(
            f"State recreation reads {by_keys[few] / 1e6:.2f} MB with {few:,} keys and "
            f"{by_keys[many] / 1e6:.2f} MB with {many:,}, in epochs of "
            f"{_mean(times[few]):.2f} and {_mean(times[many]):.2f} s. Window recreation reads "
            f"{sum(m.bytes for m in windows)} bytes and is done at most {late:.1f} s after a "
            "window's length, whatever the number of keys: "
            + ", ".join(_window_text(windows, size) for size in sorted({c.window for c in cases}))
            + "."
        ),
        panels=(
            _panel("time to complete", "seconds", found, lambda m: m.seconds),
            _panel("bytes that new owners read", "MB", found, lambda m: m.bytes / 1e6),
        ),
        parameters={
            "seconds between epochs": EVERY,
            "rows of an epoch": "1.2 a key",
            "slots": SLOTS,
            "changes": ", ".join(dict.fromkeys(case.change for case in cases)),
        },
        notes=(
            "State recreation is timed as the whole epoch in which the new owners read it: that is "
            "the time until they have it, and the query never waits for more.",
            "All keys of a bucket have one open window at a time, so windows and keys are as many.",
        ),
    )


def _window_text(windows: list[Moved], size: int) -> str:
    mine = [m.seconds for m in windows if m.case.window == size]
    return f"{_mean(mine):.1f} s for {size} s"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _panel(title: str, unit: str, found: list[Moved], value: Callable[[Moved], float]) -> Panel:
    lines: dict[tuple[str, Case], list[Moved]] = {}
    for moved in found:
        lines.setdefault((moved.protocol, replace(moved.case, keys=0)), []).append(moved)
    return Panel(
        title=title,
        x="keys (windows)",
        y=unit,
        series=tuple(
            Series(
                name=f"{SHORT[protocol]}, {case.window} s, {case.change}",
                x=tuple(m.case.keys for m in mine),
                y=tuple(value(m) for m in mine),
                dashed=protocol == "window",
            )
            for (protocol, case), mine in lines.items()
        ),
    )
