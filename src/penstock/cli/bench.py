"""``penstock bench``: run the benchmarks that live beside the package in the source tree."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import penstock
from penstock.cli.output import give, say

WIDTH = 100
BENCHMARKS = ("cdr", "exchange", "tpcxbb", "network", "nexmark", "state", "rescale", "streamcloud")


def run_calls(
    rows: int | None,
    workloads: str | None,
    engines: str | None,
    rows_per_epoch: int | None,
    *,
    small: bool,
    as_json: bool,
) -> None:
    """Run the call-record benchmark and print its table or JSON."""
    _find_benchmarks()
    from bench import cdr

    figures = cdr.run(
        rows=rows or cdr.ROWS,
        workloads=_names(workloads) or tuple(cdr.WORKLOADS),
        rows_per_epoch=rows_per_epoch or cdr.ROWS_PER_EPOCH,
        engines=_names(engines),
        small=small,
        log=say,
    )
    _show([asdict(figure) for figure in figures], cdr.table(figures), as_json=as_json)


def run_application(
    suite: str,
    rows: int | None,
    questions: str | None,
    engines: str | None,
    rows_per_epoch: int | None,
    *,
    as_json: bool,
) -> None:
    """Run an application's benchmark and print its table or JSON."""
    _find_benchmarks()
    from bench import applications

    figures = applications.run(
        suite,
        rows=rows,
        questions=_names(questions),
        rows_per_epoch=rows_per_epoch or applications.ROWS_PER_EPOCH,
        engines=_names(engines),
        log=say,
    )
    _show([asdict(figure) for figure in figures], applications.table(figures), as_json=as_json)


def run_nexmark(
    events: int | None,
    queries: str | None,
    engines: str | None,
    rows_per_epoch: int | None,
    *,
    sql: bool,
    as_json: bool,
) -> None:
    """Run Nexmark's queries and print a table or JSON; exit code 1 if an output is not equal."""
    _find_benchmarks()
    from bench import nexmark

    figures = nexmark.run(
        events=events,
        queries=_names(queries),
        engines=_names(engines),
        sql=sql,
        rows_per_epoch=rows_per_epoch,
        log=say,
    )
    _show([asdict(figure) for figure in figures], nexmark.table(figures), as_json=as_json)
    if odd := nexmark.differing(figures):
        say("\n".join(odd))
        raise SystemExit(1)


def run_state(keys: str, engines: str | None, epochs: int, *, as_json: bool) -> None:
    """Run the state benchmark and print its table or JSON."""
    _find_benchmarks()
    from bench import state

    figures = state.run(
        keys=[int(number) for number in keys.split(",")],
        engines=_names(engines),
        epochs=epochs,
        log=say,
    )
    _show([asdict(figure) for figure in figures], state.table(figures), as_json=as_json)


def run_rescale(
    keys: int | None,
    engines: str | None,
    rows_per_epoch: int | None,
    rounds: int | None,
    *,
    as_json: bool,
) -> None:
    """Run the rescale benchmark and print its table or JSON."""
    _find_benchmarks()
    from bench import rescale

    figures = rescale.run(
        keys=keys or rescale.KEYS,
        rows_per_epoch=rows_per_epoch or rescale.ROWS_PER_EPOCH,
        engines=_names(engines),
        rounds=rounds or rescale.ROUNDS,
        log=say,
    )
    _show([figure.as_json() for figure in figures], rescale.table(figures), as_json=as_json)


def run_streamcloud(figures: str, out: Path | None, *, quick: bool, as_json: bool) -> None:
    """Measure figures of StreamCloud's evaluation and print a table or JSON."""
    _find_benchmarks()
    from bench.streamcloud import report

    results = report.run(figures, quick=quick, out=out, log=say)
    _show(report.plain(results), report.table(results), as_json=as_json)


def _names(given: str | None) -> list[str] | None:
    """Return what a comma-separated option names, or None if it was not given."""
    return [name.strip() for name in given.split(",")] if given else None


def _find_benchmarks() -> None:
    """Let Python find the ``bench`` folder of the source tree."""
    root = Path(penstock.__file__).resolve().parents[2]
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))


def _show(figures: list[dict[str, Any]], table: Table, *, as_json: bool) -> None:
    # Cut columns say nothing; on a narrow terminal lines wrap instead.
    give(figures) if as_json else Console(width=max(Console().width, WIDTH)).print(table)
