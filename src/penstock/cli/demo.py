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
from penstock.cli.run import stopping_on_signal
from penstock.runtime.spark.session import scratch_session
from penstock.workloads.cdr import CALL_SCHEMA, heavy_customers, live

if TYPE_CHECKING:
    from penstock.runtime.spark.handle import Query

SPEED = 240.0
"""Event time runs this much faster than the wall clock: an hour in 15 seconds."""
TOP = 8


def run_demo(*, seconds: float, rate: int, out: Path) -> dict[str, Any]:
    """Run the demo; return what it did."""
    console = Console()
    results = out.resolve() / "heavy"
    shutil.rmtree(results, ignore_errors=True)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-demo-") as scratch,
        scratch_session("penstock demo") as spark,
    ):
        calls = Path(scratch) / "calls"
        calls.mkdir()
        stream = ps.read_parquet(calls, time="ts", schema=CALL_SCHEMA)
        heavy = heavy_customers(stream)
        query = (
            heavy.write_parquet(str(results))
            .also(heavy.write_memory("heavy"))
            .start(spark, checkpoint=Path(scratch) / "checkpoint")
        )
        with stopping_on_signal(query), _generator(calls, rate, seconds):
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
    until = time.monotonic() + seconds
    if not console.is_terminal:
        _print_lines(query, until)
        return
    with Live(console=console, refresh_per_second=4, transient=False) as screen:
        while not query.awaitTermination(0.25) and time.monotonic() < until:
            screen.update(_screen(query, until - time.monotonic()))


def _print_lines(query: Query, until: float) -> None:
    """Say a line every two seconds, where nobody looks at a live screen."""
    while not query.awaitTermination(2.0) and time.monotonic() < until:
        facts = _facts(query)
        if facts is None:
            say("starting …")
            continue
        top = ", ".join(f"{caller} {mean}" for caller, _, mean in _heaviest(query)[:3])
        say(
            f"{facts['rate']:,.0f} rows/s  epoch {facts['epoch']}  "
            f"latency {facts['latency_ms']:.0f} ms  "
            f"watermark {facts['watermark']}  heaviest: {top or 'none yet'}"
        )


def _facts(query: Query) -> dict[str, Any] | None:
    epochs = [epoch for epoch in query.epochs if epoch["rows"].get("read")]
    if not epochs:
        return None
    recent = epochs[-10:]
    progress = query.recentProgress[-10:]
    spent = sum(p["durationMs"].get("triggerExecution", 0) for p in progress) / 1000
    rows = sum(p["numInputRows"] for p in progress)
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
        f"  {tools}/python -c 'import polars as pl; print(pl.read_parquet(\"{folder}\"))'\n"
        f"  {tools}/penstock explain examples/heavy_customers.py\n"
        f"  {tools}/penstock bench cdr --rows 1000000"
    )


def _near(path: Path) -> Path:
    """Return a path as seen from here, if it is below."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
