"""The benchmark of Nexmark's queries: Penstock, Structured Streaming and DuckDB, side by side.

The law this module keeps: all engines read the same rows, and each output is compared with what
DuckDB gives over all rows at once, as bags of rows. A figure never comes without the outcome.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs
from rich.box import SIMPLE
from rich.table import Table

import penstock as ps
from bench.cdr import FILES_PER_EPOCH, cache_folder, own_folder
from bench.compare import frame_difference, visible_files
from bench.engines.nexmark import ENGINES, JUDGE, MarketJob, market_of
from bench.measure import run_process
from bench.report import rate
from penstock.compiler import compile_query
from penstock.workloads.auctions import Market
from penstock.workloads.files import parts_of
from penstock.workloads.nexmark import QUERIES, House

EVENTS = 1_000_000
ROWS_PER_EPOCH = 250_000
WARM_EVENTS = 2_000
WARM_FILES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NexmarkRow:
    """One engine's figures for one query."""

    query: str
    engine: str
    form: str
    """`python` or `sql`: how the query is written for the engine."""
    rows: int
    """Rows of the streams that the query reads."""
    rows_per_second: float | None
    """None where the engine can't run the query."""
    equal: bool | None
    """Whether its rows are those that DuckDB gives over all rows at once."""
    epoch_ms_p50: float | None = None
    output_rows: int | None = None
    reason: str | None = None
    """Why the engine can't run the query, or in what way its rows differ."""


def run(
    *,
    events: int | None = None,
    queries: Sequence[str] | None = None,
    engines: Sequence[str] | None = None,
    sql: bool = False,
    rows_per_epoch: int | None = None,
    log: Callable[[str], None],
    cache: Path | None = None,
    keep: bool = False,
) -> list[NexmarkRow]:
    """Run the engines on the queries and return their figures, query by query.

    With fewer events than four epochs hold, epochs get smaller, so that there are four. DuckDB runs
    in any case, as the judge.

    Raises:
        ValueError: there is no such query or engine.
        EngineError: an engine's process gave no result.
    """
    asked, chosen = _choose(queries, engines)
    market = market_of(events or EVENTS)
    with cache_folder(cache, keep=keep) as folder:
        inputs = _write_inputs(market, rows_per_epoch or ROWS_PER_EPOCH, folder, log)
        found: dict[str, dict[str, NexmarkRow]] = {}
        with own_folder(folder / f"nexmark-{JUDGE}") as judged:
            wanted = _job(JUDGE, asked, market, inputs, judged, sql=False)
            found[JUDGE] = _run_engine(wanted, wanted, log)
            for engine in (name for name in chosen if name != JUDGE):
                with own_folder(folder / f"nexmark-{engine}") as work:
                    job = _job(engine, asked, market, inputs, work, sql=sql)
                    found[engine] = _run_engine(job, wanted, log)
    return [found[engine][query] for query in asked for engine in chosen]


def differing(rows: Iterable[NexmarkRow]) -> list[str]:
    """Return which queries gave other rows than the judge's, or failed, on which engine."""
    return [
        f"{row.query} on {row.engine}: {row.reason}"
        for row in rows
        if row.equal is False or (row.reason or "").startswith("failed")
    ]


def _choose(
    queries: Sequence[str] | None, engines: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what to run; refuse names that do not exist."""
    asked, chosen = tuple(queries or QUERIES), tuple(engines or ENGINES)
    unknown = [*(set(asked) - set(QUERIES)), *(set(chosen) - set(ENGINES))]
    if unknown:
        raise ValueError(
            f"unknown choice; unknown={sorted(unknown)!r}, engines={ENGINES!r}, "
            f"queries={tuple(QUERIES)!r}"
        )
    return asked, chosen


def _write_inputs(
    market: Market, rows_per_epoch: int, folder: Path, log: Callable[[str], None]
) -> tuple[Path, Path]:
    """Write the streams, five files of each to an epoch, and the small ones to warm up."""
    epochs = max(4, round(market.rows / rows_per_epoch))
    files = FILES_PER_EPOCH * epochs
    large, small = folder / f"nexmark-{market.rows}-{files}", folder / "nexmark-warm"
    log(f"writing {market.rows:,} events to {files} files of each stream in {large}")
    market.write(large, files=files)
    market_of(WARM_EVENTS, seed=1).write(small, files=WARM_FILES)
    return large, small


def _job(
    engine: str,
    queries: tuple[str, ...],
    market: Market,
    inputs: tuple[Path, Path],
    work: Path,
    *,
    sql: bool,
) -> MarketJob:
    return MarketJob(
        engine=engine, queries=queries, sql=sql, events=market.rows, folder=inputs[0],
        warm=inputs[1], warm_events=WARM_EVENTS, work=work, files_per_epoch=FILES_PER_EPOCH,
    )  # fmt: skip


def _run_engine(
    job: MarketJob, wanted: MarketJob, log: Callable[[str], None]
) -> dict[str, NexmarkRow]:
    """Run all queries in one process, and compare what each of them gave."""
    log(f"{job.engine}: {len(job.queries)} queries on {job.events:,} events")
    ran = run_process(job, "bench.nexmark_main")
    log(f"{job.engine}: others kept {ran.others_cores:.1f} cores busy meanwhile")
    rows = {told["query"]: _row(job, wanted, told) for told in ran.told["queries"]}
    equal = sum(row.equal is True for row in rows.values())
    log(f"{job.engine}: {equal} of {len(rows)} outputs equal what DuckDB gives over all rows")
    return rows


def _row(job: MarketJob, wanted: MarketJob, told: Mapping[str, Any]) -> NexmarkRow:
    query, rows = told["query"], _rows_read(told["query"], job.market)
    form = "python" if job.engine != JUDGE and not job.sql else "sql"
    form = "python" if job.engine == "native" else form
    bare = {"query": query, "engine": job.engine, "form": form, "rows": rows}
    if told["seconds"] is None:
        return NexmarkRow(**bare, rows_per_second=None, equal=None, reason=told["reason"])
    got, expected = _read(job.out(query)), _read(wanted.out(query))
    odd = frame_difference(got, expected) if got.columns or expected.height else ""
    return NexmarkRow(
        **bare,
        rows_per_second=rows / told["seconds"],
        equal=not odd,
        epoch_ms_p50=float(np.median(told["epoch_ms"])) if told["epoch_ms"] else None,
        output_rows=got.height,
        reason=odd or None,
    )


def _rows_read(query: str, market: Market) -> int:
    """Return how many rows the streams have that a query reads."""
    parts = parts_of(market)
    streams = {
        name: ps.from_rows([], schema=dict(part.frame(0, 1).schema), time="ts", name=name)
        for name, part in parts.items()
    }
    result = QUERIES[query](House(**streams, within=market.reach)).write_memory("it")
    return sum(parts[source.name].rows for _, source in compile_query(result.sinks).sources)


def _read(out: Path) -> pl.DataFrame:
    """Return what an engine wrote; native's times have a zone, others' have none."""
    try:
        files = visible_files(out)
    except FileNotFoundError:
        return pl.DataFrame()
    rows = pl.read_parquet(files, hive_partitioning=False)
    return rows.with_columns(cs.datetime().cast(pl.Datetime("us")))


def table(rows: Sequence[NexmarkRow]) -> Table:
    """Return the rows as a table for people."""
    shown = Table(
        title="Nexmark, end to end; equal: the rows that DuckDB gives over all rows at once",
        box=SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    for name in ("query", "engine", "form"):
        shown.add_column(name, no_wrap=True)
    for name in ("rows", "rows/s", "p50 ms", "output"):
        shown.add_column(name, justify="right", no_wrap=True)
    shown.add_column("equal", no_wrap=True)
    shown.add_column("why not")
    for row in rows:
        shown.add_row(
            row.query, row.engine, row.form, rate(row.rows), _or_dash(row.rows_per_second, rate),
            _or_dash(row.epoch_ms_p50, lambda ms: f"{ms:,.0f}"),
            _or_dash(row.output_rows, lambda n: f"{n:,}"),
            "–" if row.equal is None else ("yes" if row.equal else "NO"), row.reason or "",
        )  # fmt: skip
    return shown


def _or_dash(value: Any, say: Callable[[Any], str]) -> str:
    return "–" if value is None else say(value)
