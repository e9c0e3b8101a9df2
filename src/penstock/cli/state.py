"""``penstock state``: look into a checkpoint, verify it, repair it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich.console import Console
from rich.table import Table

from penstock.base.times import FINISHED, NOT_STARTED
from penstock.base.words import pluralise
from penstock.cli.checkpoint import tell_errors
from penstock.cli.output import fail, give, say
from penstock.plan.tails import state_folder
from penstock.state.care.findings import Finding, Verification
from penstock.state.care.repair_steps import RepairPlan
from penstock.state.care.survey import QUARANTINE, Survey, survey, walk
from penstock.state.manifests import Manifest

app = typer.Typer(
    help="Look into a checkpoint: its operators, their state, its past; verify and repair it.",
    no_args_is_help=True,
)

Checkpoint = Annotated[str, typer.Argument(help="The checkpoint: a path or a URI.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
SparkFolder = Annotated[
    str | None, typer.Option(help="Spark's part, if elsewhere (spark.penstock.sparkFolder).")
]
WRITERS: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    ".parquet": lambda frame, path: frame.write_parquet(path),
    ".csv": lambda frame, path: frame.write_csv(path),
    ".arrow": lambda frame, path: frame.write_ipc(path),
}

_WIDTH = 180


@app.command("ls")
def list_state(
    checkpoint: Checkpoint, spark_folder: SparkFolder = None, as_json: Json = False
) -> None:
    """Show the newest epoch and the stateful operators."""
    with tell_errors(as_json):
        summary = summarize(survey(checkpoint, spark_folder))
    if as_json:
        give(summary)
        return
    operators = summary.pop("operators")
    totals, sinks = summary.pop("totals"), summary.pop("sinks")
    for name, value in summary.items():
        typer.echo(f"{name.replace('_', ' '):<14} {value}")
    typer.echo(f"{'totals':<14} " + ", ".join(f"{n} {rows:,}" for n, rows in totals.items()))
    for sink in sinks:
        typer.echo(
            f"{'sink':<14} {sink['target']}: {sink['state']}, {pluralise(sink['rows'], 'row')}"
        )
    _print(operators)


def summarize(found: Survey) -> dict[str, Any]:
    """Return what is to be known about a checkpoint at a glance."""
    last = found.last
    if last is None:
        if found.newest in found.unreadable:
            raise found.unreadable[found.newest]
        last = Manifest(epoch=-1)
    orphans = found.orphans()
    size = sum(entry.bytes for _, entry in walk(found.home, (QUARANTINE,)))
    return {
        "checkpoint": str(found.home),
        "newest_epoch": last.epoch,
        "committed_at": _time(last.committed_at),
        "writer": last.writer,
        "final": last.final,
        "kept_epochs": f"{found.epochs[0]} to {found.epochs[-1]}" if found.epochs else "none",
        "bytes_on_disk": size,
        "orphans": len(orphans),
        "orphan_bytes": sum(entry.bytes for _, entry in orphans),
        "totals": dict(last.totals),
        "sinks": _sinks(found, last),
        "operators": _operators(found, last),
    }


def _sinks(found: Survey, last: Manifest) -> list[dict[str, Any]]:
    from penstock.state.published import is_published

    state = "published" if is_published(found.root, last) else "staged"
    rows: dict[str, int] = {}
    for staged in last.staged:
        rows[staged.target] = rows.get(staged.target, 0) + staged.rows
    return [{"target": target, "state": state, "rows": n} for target, n in sorted(rows.items())]


def _operators(found: Survey, last: Manifest) -> list[dict[str, Any]]:
    from penstock.driver.inspect import operators

    names = sorted({*operators(found.root), *map(state_folder, last.segments)})
    return [_operator(name, last) for name in names]


def _operator(name: str, last: Manifest) -> dict[str, Any]:
    refs = [kept.ref for kept in last.kept(name)]
    files = {ref.name: ref for ref in refs}.values()  # two lineages may share one
    return {
        "operator": name,
        "segments": len(files),
        "rows": sum(ref.rows for ref in files),
        "bytes": sum(ref.bytes for ref in files),
        "buckets": len({b for ref in refs for b in ref.buckets}),
        "watermark": watermark_text(last.lowest(name)),
    }


def watermark_text(mark: int) -> str | None:
    """Return a watermark as a time.

    >>> watermark_text(1_700_000_000_000_000), watermark_text(FINISHED), watermark_text(NOT_STARTED)
    ('2023-11-14 22:13:20', 'the end', None)
    """
    if mark <= NOT_STARTED:
        return None
    return "the end" if mark >= FINISHED else _time(mark / 1e6)


def _time(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    return moment.isoformat(" ", "milliseconds" if moment.microsecond else "seconds")


@app.command("show")
def show_state(
    checkpoint: Checkpoint,
    operator: Annotated[str | None, typer.Option(help="Which one, if several.")] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="One key: VALUE, or COLUMN=VALUE for each column.")
    ] = None,
    epoch: Annotated[int | None, typer.Option(help="A past epoch that is kept.")] = None,
    rows: Annotated[int, typer.Option(min=1, help="How many rows to print.")] = 20,
    output: Annotated[
        Path | None, typer.Option(help="Write all rows to FILE.parquet, .csv or .arrow.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the state of an operator: the same frame as `query.state(...)`.

    An aggregate has a row per key and pane, with the partials p0, p1, ... of its functions merged;
    a function that cannot be merged has its rows instead. An ordered sink has the rows that wait.
    """
    from penstock.driver.inspect import operators, read_state

    if output is not None and output.suffix not in WRITERS:
        fail(f"{output}: unknown format", f"formats: {', '.join(WRITERS)}", as_json=as_json)
    with tell_errors(as_json):
        root = survey(checkpoint).root
        single = {found.name: found.by for found in operators(root).values()}
        frame = read_state(root, operator, _key(key, operator, single), epoch)
        if output is not None:
            _write(frame, output)
    if output is not None:
        say(f"{pluralise(frame.height, 'row')} written to {output}")
    if as_json:
        give({"rows": frame.height, "columns": frame.columns, "data": frame.head(rows).to_dicts()})
    elif output is None:
        _show(frame, rows)


def _key(
    parts: Sequence[str] | None, operator: str | None, keys: dict[str, tuple[str, ...]]
) -> Any:
    """Return a key from the command line: a value, or values by column."""
    if not parts:
        return None
    names = keys.get(operator or next(iter(keys), ""), ())
    if len(parts) == 1 and len(names) == 1 and not parts[0].startswith(f"{names[0]}="):
        return parts[0]
    return dict(part.partition("=")[::2] for part in parts)


def _write(frame: pl.DataFrame, output: Path) -> None:
    try:
        WRITERS[output.suffix](frame, output)
    except pl.exceptions.PolarsError as error:
        raise OSError(f"{output}: {error}") from error


def _show(frame: pl.DataFrame, rows: int) -> None:
    with pl.Config(tbl_rows=rows, tbl_cols=20, tbl_hide_dataframe_shape=True):
        typer.echo(str(frame.head(rows)))
    if frame.height > rows:
        say(f"{rows} of {frame.height:,} rows; --rows shows more, --output writes all")


@app.command("history")
def show_history(checkpoint: Checkpoint, as_json: Json = False) -> None:
    """Show a row for each epoch that is kept."""
    with tell_errors(as_json):
        past = history(survey(checkpoint))
    if as_json:
        give(past)
    else:
        _print(past)


def history(found: Survey) -> list[dict[str, Any]]:
    """Return what is known of each epoch that is kept; counts are those of the epoch alone."""
    sizes = {entry.name: entry.bytes for entry in found.log.folder.list()}
    past = []
    for epoch in found.epochs:
        manifest, before = found.manifests.get(epoch), found.manifests.get(epoch - 1)
        size = sizes.get(found.log.place(epoch).name, 0)
        if manifest is None:
            past.append({"epoch": epoch, "manifest_bytes": size, "damaged": True})
        else:
            past.append(_epoch(manifest, before) | {"manifest_bytes": size})
    return past


def _epoch(manifest: Manifest, before: Manifest | None) -> dict[str, Any]:
    refs = {ref.name: ref for refs in manifest.segments.values() for ref in refs}.values()
    known = before is not None or manifest.epoch == 0
    marks = [m for name in manifest.watermarks if (m := manifest.lowest(name)) > NOT_STARTED]
    counts = {
        name: manifest.totals.get(name, 0) - (before.totals.get(name, 0) if before else 0)
        if known
        else None
        for name in ("read", "late", "refused", "written")
    }
    return {
        "epoch": manifest.epoch,
        "committed_at": _time(manifest.committed_at),
        "writer": manifest.writer[:8],
        **counts,
        "segments": len(refs),
        "state_bytes": sum(ref.bytes for ref in refs),
        "instances": "+".join(str(n) for _, n in sorted(manifest.instances.items())),
        "watermark": watermark_text(min(marks)) if marks else None,
        "repaired": manifest.repaired,
    }


def _print(rows: Sequence[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(box=None, pad_edge=False)
    for name in names:
        number = all(isinstance(row.get(name), int | None) for row in rows)
        table.add_column(name.replace("_", " "), justify="right" if number else "left")
    for row in rows:
        table.add_row(*["" if row.get(n) is None else _cell(row[n]) for n in names])
    wide = max(Console().width, _WIDTH)  # rather wrapped by the terminal than cut off
    Console(highlight=False, width=wide).print(table)


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


@app.command("verify")
def verify_state(
    checkpoint: Checkpoint, spark_folder: SparkFolder = None, as_json: Json = False
) -> None:
    """Look at every file of a checkpoint; exit code 1 if one is damaged."""
    from penstock.state.care.verify import verify

    with tell_errors(as_json):
        found = verify(checkpoint, spark_folder)
    if as_json:
        give(found.as_dict())
    else:
        _report(found)
    if not found.sound:
        raise typer.Exit(1)


def _report(found: Verification) -> None:
    for item in found.findings:
        _tell(item)
    for item in found.notes:
        typer.echo(f"note: {item.path}: {item.wrong}; {item.means}")
    damage = f"damaged in {pluralise(len(found.findings), 'place')}"
    state = damage if found.findings else "sound"
    say(
        f"{found.checkpoint}: {state}; newest epoch {found.newest}, "
        f"{pluralise(found.files, 'file')}, {pluralise(found.bytes, 'byte')}, "
        f"{pluralise(found.orphans, 'orphan')}"
    )
    if found.findings:
        say(f"hint: `penstock state repair {found.checkpoint} --dry-run` shows what can be done")


def _tell(item: Finding) -> None:
    typer.echo(f"{item.path}: {item.wrong}")
    typer.echo(f"  means: {item.means}")
    typer.echo(f"  repair: {item.repair or 'none'}")


@app.command("repair")
def repair_state(
    checkpoint: Checkpoint,
    spark_folder: SparkFolder = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Even if the query seems to run.")] = False,
    as_json: Json = False,
) -> None:
    """Make a damaged checkpoint sound; nothing is deleted, only moved to its quarantine.

    Stop the query first. A query that commits epochs is noticed and the repair refused; one that
    waits for input, or starts an epoch only every few seconds, is not.
    """
    from penstock.state.care.repair import plan_repair
    from penstock.state.care.repair_steps import carry_out, seems_to_run

    with tell_errors(as_json):
        survey(checkpoint, spark_folder)
        if not dry_run and not force and seems_to_run(checkpoint):
            fail(f"{checkpoint}: its query seems to be running", "stop it first, or use --force",
                 as_json=as_json)  # fmt: skip
        plan = plan_repair(checkpoint, spark_folder)
        folder = None
        if plan.needed and not plan.impossible and not dry_run:
            folder = str(carry_out(plan))
    if as_json:
        give({"ok": not plan.impossible, "quarantine": folder} | plan.as_dict())
    else:
        _show_plan(plan, folder)
    if plan.impossible:
        raise typer.Exit(1)


def _show_plan(plan: RepairPlan, folder: str | None) -> None:
    for step in plan.steps:
        typer.echo(f"{step.action}: {step.path.removeprefix(plan.checkpoint + '/')} ({step.why})")
    for text in plan.notes:
        typer.echo(f"note: {text}")
    for text in plan.impossible:
        say(f"error: {text}")
    if not plan.needed:
        say(f"{plan.checkpoint}: sound, nothing to repair")
    elif folder is not None:
        say(f"repaired; what was taken away is in {folder}")
    elif not plan.impossible:
        say("nothing was changed; without --dry-run the plan is carried out")
