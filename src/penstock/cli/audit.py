"""``penstock audit``: does everything that a query has counted agree with what is there?"""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.console import Console
from rich.table import Table

from penstock.base.words import pluralise
from penstock.cli.checkpoint import tell_errors
from penstock.cli.output import give, say
from penstock.state.care.audit import audit
from penstock.state.care.audited import Audit


def run_audit(checkpoint: str, *, spark_folder: str | None, strict: bool, as_json: bool) -> None:
    """Print an audit; end with exit code 1 if something does not agree."""
    with tell_errors(as_json):
        found = audit(checkpoint, spark_folder)
    agrees = found.agrees and not (strict and found.missing)
    if as_json:
        give(found.as_dict() | {"ok": agrees})
    else:
        _print(found)
    if not agrees:
        raise typer.Exit(1)


def _print(found: Audit) -> None:
    for rows in (found.epochs, found.outputs):
        if rows:
            table = Table(box=None, pad_edge=False)
            values = [asdict(row) for row in rows]
            for name, value in values[0].items():
                right = not isinstance(value, str)
                table.add_column(name.replace("_", " "), justify="right" if right else "left")
            for value in values:
                table.add_row(*[_cell(cell) for cell in value.values()])
            Console(width=180).print(table)
            typer.echo()
    for parting in (*found.partings, *found.missing):
        typer.echo(f"{parting.kind}: {parting.where}: {parting.text}")
    reached = "no epoch yet" if found.newest < 0 else f"up to epoch {found.newest}"
    newest = f"{found.checkpoint}, {reached}"
    if found.partings:
        say(f"{newest}: {pluralise(len(found.partings), 'disagreement')}")
    elif found.missing:
        say(f"{newest}: everything agrees, except that published rows are gone from their folders")
    else:
        say(f"{newest}: everything agrees")


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else str(value)
