"""What the state benchmark says: one row per engine and number of keys, as a table or as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from rich.box import SIMPLE
from rich.table import Table

from bench.engines.state import StateTimes
from bench.measure import Ran
from bench.state_input import StateInput


@dataclass(frozen=True, slots=True, kw_only=True)
class StateRow:
    """One engine's figures with one number of keys; `failed` says why there are none.

    `bytes_written` is the mean of what a measured epoch added to the checkpoint.
    """

    engine: str
    keys: int
    epoch_ms_p50: float | None = None
    epoch_ms_p95: float | None = None
    bytes_written: float | None = None
    bytes_written_p50: float | None = None
    state_bytes: int | None = None
    preload_seconds: float | None = None
    peak_rss_mb: float | None = None
    others_cores: float | None = None
    epochs: int
    rows_per_epoch: int
    failed: str | None = None


def state_row(engine: str, source: StateInput, ran: Ran, times: StateTimes) -> StateRow:
    """Return the figures of one run."""
    p50, p95 = np.percentile(times.epoch_ms, (50, 95))
    return StateRow(
        engine=engine,
        keys=source.keys,
        epoch_ms_p50=float(p50),
        epoch_ms_p95=float(p95),
        bytes_written=float(np.mean(times.epoch_bytes)),
        bytes_written_p50=float(np.median(times.epoch_bytes)),
        state_bytes=times.state_bytes,
        preload_seconds=times.preload_seconds,
        peak_rss_mb=ran.peak_rss_mb,
        others_cores=ran.others_cores,
        epochs=source.epochs,
        rows_per_epoch=source.rows_per_epoch,
    )


def failed_row(engine: str, source: StateInput, reason: str) -> StateRow:
    """Return the row of an engine that could not do it."""
    return StateRow(
        engine=engine,
        keys=source.keys,
        epochs=source.epochs,
        rows_per_epoch=source.rows_per_epoch,
        failed=reason,
    )


def table(rows: Sequence[StateRow]) -> Table:
    """Return the rows as a table for people."""
    shown = Table(
        title="small epochs over many keys; KB: written in one; ratio: to the fewest keys",
        box=SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    shown.add_column("engine", no_wrap=True)
    for name in ("keys", "p50 ms", "ratio", "p95 ms", "KB", "ratio", "state MB", "RSS MB"):
        shown.add_column(name, justify="right", no_wrap=True)
    for engine in dict.fromkeys(row.engine for row in rows):
        mine = sorted((row for row in rows if row.engine == engine), key=lambda row: row.keys)
        for row in mine:
            shown.add_row(engine, f"{row.keys:,}", *_cells(row, mine[0]))
    return shown


def _cells(row: StateRow, least: StateRow) -> list[str]:
    if row.failed is not None:
        return ["failed", *["–"] * 6]
    return [
        _number(row.epoch_ms_p50),
        _ratio(row.epoch_ms_p50, least.epoch_ms_p50),
        _number(row.epoch_ms_p95),
        _number(row.bytes_written, 1e3),
        _ratio(row.bytes_written, least.bytes_written),
        _number(row.state_bytes, 1e6),
        _number(row.peak_rss_mb),
    ]


def _number(value: float | None, unit: float = 1.0) -> str:
    return "–" if value is None else f"{value / unit:,.0f}"


def _ratio(value: float | None, least: float | None) -> str:
    return "–" if value is None or not least else f"{value / least:.2f}"


def to_json(rows: Sequence[StateRow]) -> str:
    """Return the rows as a JSON list of objects with the fields of `StateRow`."""
    return json.dumps([asdict(row) for row in rows], indent=2)
