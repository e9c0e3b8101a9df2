"""``penstock demo``: call records as a live stream, and the heavy customers as they change."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

import penstock as ps
from penstock.cli.output import say
from penstock.cli.run import stop_on_signal
from penstock.spark.session import scratch_session
from penstock.workloads.cdr import CALL_SCHEMA, heavy_customers, live

if TYPE_CHECKING:
    from penstock.spark.handle import Query

SPEED = 240.0
"""Event time runs this much faster than the wall clock: an hour in 15 seconds."""
TOP = 8
EXAMPLE = "examples/heavy_customers.py"
PATIENCE_SECONDS = 120.0
"""How long the first results may take, on a busy machine; then the demo ends all the same."""


def run_demo(*, seconds: float, rate: int, out: Path) -> dict[str, Any]:
    """Run the demo; return what it did."""
    console = Console()
    results = out.resolve() / "heavy"
    shutil.rmtree(results, ignore_errors=True)
    say(
        f"a live stream of {rate:,} call records a second, {SPEED:.0f} times as fast as life, and "
        f"the callers with long calls in the last hour of it, every minute;\n"
        "Spark starts, which takes some seconds …"
    )
    with (
        tempfile.TemporaryDirectory(prefix="penstock-demo-") as scratch,
        scratch_session("penstock demo") as spark,
    ):
        calls = Path(scratch) / "calls"
        calls.mkdir()
        stream = ps.read_parquet(calls, time="ts", schema=CALL_SCHEMA)
        heavy = heavy_customers(stream)
        query = (
            heavy.write_parquet(str(results), mode="overwrite")
            .also(heavy.write_memory("heavy"))
            .start(spark, checkpoint=Path(scratch) / "checkpoint")
        )
        with stop_on_signal(query), _generator(calls, rate, seconds + PATIENCE_SECONDS):
            _show(console, query, seconds)
        found = query.table("heavy").height
        summary = {
            "ok": True,
            "totals": query.totals,
            "rows": found,
            "results": str(results),
        }
    _farewell(summary)
    return summary


@contextmanager
def _generator(folder: Path, rate: int, seconds: float) -> Iterator[None]:
    """Write call records in the background until the end of the block."""
    stop = threading.Event()

    def write() -> None:
        for _ in live(folder, rows_per_second=rate, speed=SPEED, seconds=seconds, stop=stop):
            pass

    thread = threading.Thread(target=write, name="call-records", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _show(console: Console, query: Query, seconds: float) -> None:
    """Show the query for a while, from its first results on."""
    say("Spark is up; waiting for the first results …")
    latest = time.monotonic() + PATIENCE_SECONDS
    while not query.table("heavy").height and time.monotonic() < latest:
        if query.awaitTermination(0.1):
            return
    until = time.monotonic() + seconds
    if not console.is_terminal:
        _print_lines(query, until)
        return
    with Live(console=console, refresh_per_second=4, transient=False) as screen:
        while not query.awaitTermination(0.25) and time.monotonic() < until:
            screen.update(_screen(query, until - time.monotonic()))


def _print_lines(query: Query, until: float) -> None:
    """Say a line every two seconds, if there is news, where nobody looks at a live screen."""
    told = -1
    while True:
        facts = _facts(query)
        if facts is not None and facts["epoch"] > told:
            told = facts["epoch"]
            say(_line(facts, _heaviest(query)))
        if query.awaitTermination(2.0) or time.monotonic() >= until:
            return


def _line(facts: dict[str, Any], heaviest: list[tuple[str, int, str]]) -> str:
    """Return a line about the newest epoch and the heaviest callers.

    >>> facts = {"epoch": 7, "rate": 41234.5, "latency_ms": 480.0, "watermark": "10:02:00"}
    >>> _line(facts, [("6000002643", 12, "23.1 min")])
    'epoch 7: 41,234 rows/s, 480 ms; until 10:02:00 the longest mean calls: 6000002643 23.1 min'
    """
    top = ", ".join(f"{caller} {mean}" for caller, _, mean in heaviest[:3])
    return (
        f"epoch {facts['epoch']}: {facts['rate']:,.0f} rows/s, {facts['latency_ms']:.0f} ms; "
        f"until {facts['watermark']} the longest mean calls: {top or 'none yet'}"
    )


def _facts(query: Query) -> dict[str, Any] | None:
    epochs = [epoch for epoch in query.epochs if epoch["rows"].get("read")]
    if not epochs:
        return None
    recent = epochs[-10:]
    # Spark reports an epoch only after Penstock has; until then there is what Penstock knows.
    progress = [(p["numInputRows"], p["durationMs"].get("triggerExecution", 0) / 1000)
                for p in query.recentProgress[-10:] if p["numInputRows"]]  # fmt: skip
    known = progress or [(epoch["rows"]["read"], epoch["epochSeconds"]) for epoch in recent]
    rows, spent = (sum(column) for column in zip(*known, strict=True))
    marks = [mark for mark in recent[-1]["watermarks"].values() if abs(mark) < 2**60]
    return {
        "epoch": recent[-1]["epoch"],
        "rate": rows / spent if spent else 0.0,
        "latency_ms": 1000 * sorted(e["epochSeconds"] for e in recent)[len(recent) // 2],
        "watermark": _clock(min(marks)) if marks else "–",
        "totals": recent[-1]["totals"],
    }


def _clock(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).strftime("%H:%M:%S")


def _heaviest(query: Query) -> list[tuple[str, int, str]]:
    """Return the callers with the longest mean call in the newest window."""
    rows = query.table("heavy")
    if rows.is_empty():
        return []
    newest = rows.filter(pl.col("window_end") == pl.col("window_end").max())
    top = newest.sort("mean", descending=True).head(TOP)
    return [
        (row["src"], row["calls"], f"{row['mean'].total_seconds() / 60:.1f} min")
        for row in top.iter_rows(named=True)
    ]


def _screen(query: Query, left: float) -> Group:
    facts = _facts(query)
    if facts is None:
        return Group(Panel("starting …", title="Penstock"))
    totals = facts["totals"]
    numbers = Table.grid(padding=(0, 3))
    numbers.add_row("rows/s while working", f"{facts['rate']:,.0f}")
    numbers.add_row("epoch", f"{facts['epoch']}")
    numbers.add_row("latency", f"{facts['latency_ms']:.0f} ms an epoch, median of ten")
    numbers.add_row("watermark", f"{facts['watermark']} (event time, {SPEED:.0f} times as fast)")
    numbers.add_row(
        "read",
        f"{totals['read']:,} = {totals['processed']:,} processed + {totals['late']:,} late + "
        f"{totals['refused']:,} refused",
    )
    numbers.add_row("seconds left", f"{max(0.0, left):.0f}")
    heaviest = Table("caller", "calls", "mean call", box=None)
    for caller, calls, mean in _heaviest(query):
        heaviest.add_row(caller, f"{calls:,}", mean)
    return Group(
        Panel(numbers, title="Penstock: heavy customers, 1 hour advancing 1 minute"),
        Panel(heaviest, title="heaviest callers of the newest window"),
    )


def _farewell(summary: dict[str, Any]) -> None:
    folder, tools = _near(Path(summary["results"])), _near(Path(sys.executable).parent)
    say(
        f"done: {summary['totals'].get('read', 0):,} rows read, {summary['rows']:,} results\n"
        f"results: {summary['results']}\n"
        "next:\n"
        f"  {tools}/python -c 'import polars as pl; print(pl.read_parquet(\"{folder}\"))'"
    )
    if Path(EXAMPLE).is_file():  # in a clone of the source tree
        say(f"  {tools}/penstock explain {EXAMPLE}\n  {tools}/penstock bench cdr --rows 1000000")


def _near(path: Path) -> Path:
    """Return a path as seen from here, if it is below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
