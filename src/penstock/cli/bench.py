"""``penstock bench``: run the benchmarks that live beside the package in the source tree."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import penstock
from penstock.cli.output import give, say


def run_calls(
    rows: int,
    workloads: Sequence[str],
    engines: str | None,
    rows_per_epoch: int,
    *,
    small: bool,
    as_json: bool,
) -> None:
    """Run the call-record benchmark and print its table or JSON."""
    _find_benchmarks()
    from bench import cdr

    figures = cdr.run(
        rows=rows,
        workloads=[name.strip() for name in workloads],
        rows_per_epoch=rows_per_epoch,
        engines=engines.split(",") if engines else None,
        small=small,
        log=say,
    )
    _show([asdict(figure) for figure in figures], cdr.table(figures), as_json=as_json)


def run_state(keys: str, engines: str | None, epochs: int, *, as_json: bool) -> None:
    """Run the state benchmark and print its table or JSON."""
    _find_benchmarks()
    from bench import state

    figures = state.run(
        keys=[int(number) for number in keys.split(",")],
        engines=engines.split(",") if engines else None,
        epochs=epochs,
        log=say,
    )
    _show([asdict(figure) for figure in figures], state.table(figures), as_json=as_json)


def _find_benchmarks() -> None:
    """Let Python find the ``bench`` folder of the source tree."""
    root = Path(penstock.__file__).resolve().parents[2]
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))


def _show(figures: list[dict[str, Any]], table: Table, *, as_json: bool) -> None:
    give(figures) if as_json else Console().print(table)
