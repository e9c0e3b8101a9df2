"""``penstock bench``: run the benchmarks that live beside the package in the source tree."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

import penstock
from penstock.cli.output import give, say


def run_bench(
    rows: int,
    workloads: Sequence[str],
    engines: str | None,
    rows_per_epoch: int,
    *,
    small: bool,
    as_json: bool,
) -> None:
    """Run the call-record benchmark and print its table or JSON."""
    root = Path(penstock.__file__).resolve().parents[2]
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    from bench import cdr

    figures = cdr.run(
        rows=rows,
        workloads=[name.strip() for name in workloads],
        rows_per_epoch=rows_per_epoch,
        engines=engines.split(",") if engines else None,
        small=small,
        log=say,
    )
    if as_json:
        give([asdict(figure) for figure in figures])
    else:
        Console().print(cdr.table(figures))
