"""What the rescale benchmark says: one row per engine and direction, as a table or as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from bench.engines.rescale import RescaleTimes
from bench.measure import Ran


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleRow:
    """One engine's figures for one direction.

    A plain epoch is the lesser of two medians: of the plain epochs before the change and of those
    after it. `pause_ms` is the median rescale epoch less a plain epoch, and `extra_epochs` how many
    plain epochs that is. `next_extra_ms` is what the epoch after it still took more. `stopped_ms`
    is how long no query ran.
    """

    engine: str
    before: int
    after: int
    keys: int
    extra_epochs: float
    pause_ms: float
    plain_epoch_ms: float
    rescale_epoch_ms: float
    rescale_epoch_ms_most: float
    next_extra_ms: float
    stopped_ms: float
    rows_per_epoch: int
    rescales: int
    others_cores: float

    def as_json(self) -> dict[str, Any]:
        """Return plain values; `from` and `to` are the numbers of instances."""
        values = asdict(self)
        engine, before, after = (values.pop(name) for name in ("engine", "before", "after"))
        return {"engine": engine, "from": before, "to": after, **values}


def rescale_rows(
    engine: str, keys: int, rows_per_epoch: int, times: RescaleTimes, ran: Ran
) -> list[RescaleRow]:
    """Return the figures of one run, a row for each direction."""
    ways = list(dict.fromkeys((a, b) for a, b, _ in times.epochs if a != b))
    changes = [(a, b) for a, b, _ in times.epochs if a != b]
    rows = []
    for way in ways:
        plain = min(_median(times, (size, size)) for size in way)
        epochs = [ms for a, b, ms in times.epochs if (a, b) == way]
        following = [ms for (a, b, _), (*_, ms) in pairwise(times.epochs) if (a, b) == way]
        stopped = [ms for change, ms in zip(changes, times.stopped, strict=True) if change == way]
        pause = median(epochs) - plain
        rows.append(
            RescaleRow(
                engine=engine,
                before=way[0],
                after=way[1],
                keys=keys,
                extra_epochs=round(pause / plain, 3),
                pause_ms=round(pause, 1),
                plain_epoch_ms=round(plain, 1),
                rescale_epoch_ms=round(median(epochs), 1),
                rescale_epoch_ms_most=round(max(epochs), 1),
                next_extra_ms=round(median(following) - plain, 1) if following else 0.0,
                stopped_ms=round(median(stopped), 1),
                rows_per_epoch=rows_per_epoch,
                rescales=len(epochs),
                others_cores=round(ran.others_cores, 2),
            )
        )
    return rows


def _median(times: RescaleTimes, way: tuple[int, int]) -> float:
    return median(ms for a, b, ms in times.epochs if (a, b) == way)


def table(rows: Sequence[RescaleRow]) -> Table:
    """Return the rows as a table for people."""
    shown = Table(
        title="an epoch with a rescale; milliseconds; pause: over a plain epoch",
        box=SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    shown.add_column("engine", no_wrap=True)
    names = ("instances", "keys", "plain", "rescale", "most", "pause", "epochs", "next", "stopped")
    for name in names:
        shown.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        shown.add_row(
            row.engine,
            f"{row.before} to {row.after}",
            f"{row.keys:,}",
            f"{row.plain_epoch_ms:,.0f}",
            f"{row.rescale_epoch_ms:,.0f}",
            f"{row.rescale_epoch_ms_most:,.0f}",
            f"{row.pause_ms:,.0f}",
            f"{row.extra_epochs:.2f}",
            f"{row.next_extra_ms:,.0f}",
            f"{row.stopped_ms:,.0f}",
        )
    return shown


def to_json(rows: Sequence[RescaleRow]) -> str:
    """Return the rows as a JSON list."""
    return json.dumps([row.as_json() for row in rows], indent=2)
