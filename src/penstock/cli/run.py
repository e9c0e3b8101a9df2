"""``penstock run``: start a query and show a line for each epoch."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from penstock.cli.load import load_query
from penstock.cli.output import say
from penstock.runtime.spark.session import scratch_session

if TYPE_CHECKING:
    from penstock.runtime.spark.handle import Query


def run_query(
    file: Path, checkpoint: Path, options: dict[str, Any], *, progress: bool
) -> dict[str, Any]:
    """Run the query of a file until it ends or is interrupted; return what it did."""
    with scratch_session("penstock run") as spark:
        query = load_query(file, lambda: spark).start(spark, checkpoint=checkpoint, **options)
        say(f"running {file} on {spark.sparkContext.master}; Ctrl-C stops it")
        with stopping_on_signal(query):
            _follow(query, progress)
        return {"ok": True, "totals": query.totals, "checkpoint": str(query.checkpoint)}


@contextmanager
def stopping_on_signal(query: Query) -> Iterator[None]:
    """Stop a query on Ctrl-C or a polite kill, instead of dying in the middle of an epoch."""

    def stop(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=query.stop, name="stop", daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        query.stop()


def _follow(query: Query, progress: bool) -> None:
    shown = -1
    while True:
        ended = query.awaitTermination(0.5)
        for epoch in query.epochs:
            if progress and epoch["epoch"] > shown:
                shown = epoch["epoch"]
                say(describe_epoch(epoch))
        if ended:
            return


def describe_epoch(epoch: dict[str, Any]) -> str:
    """Return one line about an epoch.

    >>> describe_epoch({"epoch": 3, "epochSeconds": 0.25, "rows": {"read": 5, "written": 1}})
    'epoch 3: 5 rows in, 1 out, 0 late, 0 refused, 250 ms'
    """
    rows = epoch["rows"]
    return (
        f"epoch {epoch['epoch']}: {rows.get('read', 0):,} rows in, {rows.get('written', 0):,} out, "
        f"{rows.get('late', 0):,} late, {rows.get('refused', 0):,} refused, "
        f"{epoch['epochSeconds'] * 1000:.0f} ms"
    )
