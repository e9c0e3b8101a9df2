"""Measure figures, write what they gave, and say it in a table."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from bench.streamcloud.registry import chosen, measure
from bench.streamcloud.result import Result
from bench.streamcloud.web import name_of, write_result


class FigureError(ValueError):
    """Figures that could not be measured, and why."""

    def __init__(self, failed: dict[str, str]) -> None:
        super().__init__(failed)
        self.failed = failed

    def __str__(self) -> str:
        told = "; ".join(f"figure {name}: {reason}" for name, reason in self.failed.items())
        return f"some figures could not be measured: {told}"


def run(figures: str, *, quick: bool, out: Path | None, log: Callable[[str], None]) -> list[Result]:
    """Measure figures one after the other; write each as soon as it is there.

    Args:
        figures: Their names, comma separated, or `all`.
        quick: A short form of each, which shows the way and not the figures.
        out: Where JSON, PNG and HTML go; nowhere unless given.
        log: Takes messages.

    Raises:
        FigureError: Some figures could not be measured; the others have been written.
    """
    results, failed = [], {}
    for figure in chosen(figures):
        log(f"figure {figure.name}: {figure.title}")
        try:
            result = measure(figure, quick=quick, log=log)
        except (RuntimeError, TimeoutError) as error:
            failed[figure.name] = str(error)
            log(f"figure {figure.name}: failed: {error}")
            continue
        log(f"figure {figure.name}: {result.seconds:.0f} s; {result.by}")
        if out is not None:
            written = write_result(result, out)
            log(f"figure {figure.name}: wrote {', '.join(map(str, written))}")
        results.append(result)
    if failed:
        raise FigureError(failed)
    return results


def table(results: Sequence[Result]) -> Table:
    """Return the results as a table for people."""
    shown = Table(title="StreamCloud's evaluation", box=SIMPLE, pad_edge=False, show_lines=True)
    shown.add_column("figure", max_width=24)
    shown.add_column("the paper")
    shown.add_column("holds", no_wrap=True)
    shown.add_column("here")
    for result in results:
        shown.add_row(name_of(result), result.claim, "yes" if result.holds else "no", result.by)
    return shown


def plain(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return the results as plain values."""
    return [json.loads(result.to_json()) for result in results]


def main() -> None:
    """Run from the command line: `python -m bench.streamcloud.report --figure 14 --quick`."""
    from rich.console import Console

    parser = argparse.ArgumentParser(description="StreamCloud's evaluation")
    parser.add_argument("--figure", default="all")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    results = run(
        given.figure,
        quick=given.quick,
        out=given.out,
        log=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(json.dumps(plain(results))) if given.json else Console().print(table(results))


if __name__ == "__main__":
    main()
