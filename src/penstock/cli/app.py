"""The commands of ``penstock``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import penstock
from penstock.cli.load import load_query
from penstock.cli.output import fail, give, say
from penstock.cli.state import app as state_app
from penstock.errors import PenstockError, QueryError

app = typer.Typer(
    help="Penstock: continuous queries on Apache Spark, exact, in order and fast.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(state_app, name="state")

File = Annotated[Path, typer.Argument(help="A Python file that defines `query`, or an SQL file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Strategy = Annotated[str, typer.Option(help="operator-set-cloud, operator-cloud or query-cloud.")]
Instances = Annotated[int, typer.Option(min=1, help="Instances of each subquery.")]
_KEYS = "10000,100000,1000000,10000000"
_SUITES = (
    "cdr: call records. exchange: stock orders. tpcxbb: clicks and sales. network: packets. "
    "state: many keys."
)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Print the version, if asked."""
    if version:
        typer.echo(penstock.__version__)
        raise typer.Exit


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(min=1, help="How long to run.")] = 60.0,
    rate: Annotated[int, typer.Option(min=1, help="Call records a second.")] = 20_000,
    out: Annotated[Path, typer.Option(help="Where results go.")] = Path("penstock-demo"),
    as_json: Json = False,
) -> None:
    """Run the heavy-customers query on a live stream of call records."""
    from penstock.cli.demo import run_demo

    summary = run_demo(seconds=seconds, rate=rate, out=out)
    if as_json:
        give(summary)


@app.command()
def run(
    file: File,
    checkpoint: Annotated[Path, typer.Option(help="The folder of the query's state.")],
    available_now: Annotated[bool, typer.Option(help="Process what is there, then end.")] = False,
    finish: Annotated[bool, typer.Option(help="At the end close all windows.")] = False,
    every: Annotated[str | None, typer.Option(help="Start an epoch this often.")] = None,
    instances: Instances = 1,
    strategy: Strategy = "operator-set-cloud",
    as_json: Json = False,
) -> None:
    """Run the query of a Python or SQL file until it ends or Ctrl-C."""
    from penstock.cli.run import run_query

    options: dict[str, Any] = {
        "available_now": available_now,
        "finish": finish,
        "every": every,
        "instances": instances,
        "strategy": strategy,
    }
    try:
        summary = run_query(file, checkpoint, options, progress=not as_json)
    except PenstockError as error:
        fail(str(error), _hint(error), as_json=as_json)
    if as_json:
        give(summary)


@app.command()
def explain(
    file: File,
    strategy: Strategy = "operator-set-cloud",
    instances: Instances = 1,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart.")] = False,
    as_json: Json = False,
) -> None:
    """Show how a query is split, shuffled and combined."""
    try:
        query = load_query(file, _session)
        text = query.explain(strategy=strategy, instances=instances, mermaid=mermaid)
    except PenstockError as error:
        fail(str(error), _hint(error), as_json=as_json)
    give({"ok": True, "explain": text}) if as_json else typer.echo(text)


@app.command()
def check(file: File, as_json: Json = False) -> None:
    """Check a query without running it; all mistakes at once."""
    try:
        query = load_query(file, _session)
        query.explain()
    except PenstockError as error:
        if as_json:
            problems = list(error.problems) if isinstance(error, QueryError) else [str(error)]
            give({"ok": False, "problems": problems})
            raise typer.Exit(1) from error
        fail(str(error), _hint(error))
    if as_json:
        give({"ok": True, "problems": []})
    else:
        say(f"{file}: ok")


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check Java, Spark, Polars, cores and memory, and run a short trial job."""
    from penstock.cli.doctor import diagnose, render

    findings = diagnose()
    give(findings) if as_json else render(findings)
    if not findings["ok"]:
        raise typer.Exit(1)


@app.command()
def bench(
    suite: Annotated[str, typer.Argument(help=_SUITES)] = "cdr",
    rows: Annotated[int | None, typer.Option(min=1000, help="How many rows.")] = None,
    workload: Annotated[str | None, typer.Option(help="Workloads, comma separated.")] = None,
    engine: Annotated[str | None, typer.Option(help="Engines, comma separated.")] = None,
    rows_per_epoch: Annotated[int | None, typer.Option(min=100, help="Rows of one.")] = None,
    small: Annotated[bool, typer.Option(help="cdr: also epochs of 1 000 rows.")] = True,
    keys: Annotated[str, typer.Option(help="state: how many keys, comma separated.")] = _KEYS,
    epochs: Annotated[int, typer.Option(min=1, help="state: how many are measured.")] = 40,
    as_json: Json = False,
) -> None:
    """Measure Penstock beside native Structured Streaming and a Polars batch job."""
    from penstock.cli.bench import BENCHMARKS, run_application, run_calls, run_state

    if suite not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        fail(f"no benchmark {suite!r}", f"benchmarks: {known}", as_json=as_json)
    try:
        if suite == "state":
            run_state(keys, engine, epochs, as_json=as_json)
        elif suite == "cdr":
            run_calls(rows, workload, engine, rows_per_epoch, small=small, as_json=as_json)
        else:
            run_application(suite, rows, workload, engine, rows_per_epoch, as_json=as_json)
    except (PenstockError, ValueError, ImportError) as error:
        fail(str(error), "benchmarks need a clone of the source tree", as_json=as_json)


def _session() -> Any:
    from penstock.runtime.spark.session import local_session

    return local_session()


def _hint(error: PenstockError) -> str | None:
    if isinstance(error, QueryError):
        return "mend the query; `penstock check FILE` lists all mistakes without running it"
    if "checkpoint" in str(error):
        return "a checkpoint belongs to one query; use another folder for another query"
    return None
