"""What the benchmark says: one row per workload and engine, as a table or as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from rich.box import SIMPLE
from rich.table import Table

from bench.measure import Measured

CORES = 2
"""What every engine gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """One engine's figures for one workload."""

    workload: str
    engine: str
    rows: int
    """How many the engine was given; native gets fewer where it would take hours."""
    rows_per_second: float
    epoch_ms_p50: float
    epoch_ms_p99: float
    peak_rss_mb: float
    output_rows: int
    """Rows that were compared."""
    ratio_to_native: float | None
    comparisons_per_second_per_core: float | None = None
    """Of a product: ordered pairs of rows within the window that it looked at."""


def bench_row(
    measured: Measured, *, workload: str, rows: int, output_rows: int, comparisons: int | None
) -> BenchRow:
    """Return the figures of one run; the ratio comes with `with_ratios`."""
    seconds = measured.times.seconds
    p50, p99 = np.percentile(measured.times.epoch_ms or (0.0,), (50, 99))
    return BenchRow(
        workload=workload,
        engine=measured.job.engine,
        rows=rows,
        rows_per_second=rows / seconds,
        epoch_ms_p50=float(p50),
        epoch_ms_p99=float(p99),
        peak_rss_mb=measured.peak_rss_mb,
        output_rows=output_rows,
        ratio_to_native=None,
        comparisons_per_second_per_core=comparisons and comparisons / seconds / CORES,
    )


def with_ratios(rows: Sequence[BenchRow]) -> list[BenchRow]:
    """Set each row's rows per second over those of native on the same workload."""
    native = {row.workload: row.rows_per_second for row in rows if row.engine == "native"}
    return [
        replace(row, ratio_to_native=row.rows_per_second / native[row.workload])
        if row.workload in native
        else row
        for row in rows
    ]


def table(rows: Sequence[BenchRow]) -> Table:
    """Return the rows as a table for people."""
    shown = Table(
        title="call records, end to end; ratio: over native; compared: pairs a second and core",
        box=SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    for name in ("load", "engine"):
        shown.add_column(name, no_wrap=True)
    for name in ("rows", "rows/s", "p50 ms", "p99 ms", "RSS MB", "output", "ratio", "compared"):
        shown.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        ratio = "–" if row.ratio_to_native is None else f"{row.ratio_to_native:.2f}"
        compared = row.comparisons_per_second_per_core
        shown.add_row(
            row.workload,
            row.engine,
            rate(row.rows),
            rate(row.rows_per_second),
            f"{row.epoch_ms_p50:,.0f}",
            f"{row.epoch_ms_p99:,.0f}",
            f"{row.peak_rss_mb:,.0f}",
            f"{row.output_rows:,}",
            ratio,
            "–" if compared is None else f"{compared / 1e6:,.0f} M",
        )
    return shown


def rate(number: float) -> str:
    """Say a number of rows, or of rows a second, in thousands where that loses nothing.

    >>> rate(1234.5), rate(2_500_000)
    ('1,234', '2,500 k')
    """
    return f"{number:,.0f}" if number < 100_000 else f"{number / 1000:,.0f} k"


def to_json(rows: Sequence[BenchRow]) -> str:
    """Return the rows as a JSON list of objects with the fields of `BenchRow`."""
    return json.dumps([asdict(row) for row in rows], indent=2)
