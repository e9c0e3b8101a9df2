"""The commands of ``penstock``."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

import penstock
from penstock.base.errors import ConfigError, PenstockError, QueryError, RefusedLimitError
from penstock.cli.load import load_query
from penstock.cli.output import fail, give, say, show_log
from penstock.cli.state import app as state_app

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
Sizes = Annotated[
    str | None, typer.Option(help="Instances of each subquery: a number, or auto to measure.")
]
Checkpoint = Annotated[str, typer.Argument(help="The checkpoint: a path or a URI.")]
_VERBOSE = "`--verbose` shows where it was raised, and all that Spark said"
_RULES = "Fit sizes to the load, by rules such as min=1,max=8,target=0.6."
_KEYS = "10000,100000,1000000,10000000"
_FIGURES = "streamcloud: 14, 15, 16, 18, 19, 20a, 20b, 21a, 21b, 21c, table1; comma separated."
_SUITES = (
    "cdr: call records. exchange: stock orders. tpcxbb: clicks and sales. network: packets. "
    "nexmark: an auction house. state: many keys. rescale: instances come and go. "
    "streamcloud: the figures of StreamCloud's evaluation."
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
    available_now: Annotated[
        bool, typer.Option(help="Process what is there, then end; a later start goes on.")
    ] = False,
    finish: Annotated[
        bool, typer.Option(help="The input is complete for good: at the end close all windows.")
    ] = False,
    every: Annotated[str | None, typer.Option(help="Start an epoch this often.")] = None,
    instances: Sizes = None,
    strategy: Strategy = "operator-set-cloud",
    elastic: Annotated[str | None, typer.Option(help=_RULES)] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --elastic: only say what it would do.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="Show the log, and all of an error with what Spark said."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Run the query of a Python or SQL file until it ends or Ctrl-C.

    Without --instances a query begins with one instance of each subquery, or, with --elastic, with
    as many as a sample of its files asks for; after a restart it is as large as it was.
    """
    from penstock.cli.run import run_query, size_option
    from penstock.control.rules import parse_rules

    if verbose:
        show_log()
    try:
        rules = None if elastic is None else parse_rules(elastic, **_dry(dry_run))
        if dry_run and rules is None:
            raise ConfigError(name="--dry-run", value=True, allowed="only with --elastic")
        options: dict[str, Any] = {
            "available_now": available_now,
            "finish": finish,
            "every": every,
            "instances": size_option(instances),
            "strategy": strategy,
            "elastic": rules,
        }
        summary = run_query(file, checkpoint, options, progress=not as_json)
    except Exception as error:  # a user's function may raise anything
        if verbose:
            traceback.print_exception(error)
        told = (
            str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
        )
        fail(told, _hint(error) or (None if verbose else _VERBOSE), as_json=as_json)
    if as_json:
        give(summary)


@app.command()
def explain(
    file: File,
    strategy: Strategy = "operator-set-cloud",
    instances: Sizes = "1",
    mermaid: Annotated[bool, typer.Option("--mermaid", help="As a Mermaid flowchart.")] = False,
    as_json: Json = False,
) -> None:
    """Show how a query is split, shuffled and combined; with --instances auto what it costs."""
    from penstock.cli.run import size_option

    try:
        query = load_query(file, _session)
        text = query.explain(
            strategy=strategy, instances=size_option(instances) or 1, mermaid=mermaid
        )
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
            found = error.problems if isinstance(error, QueryError) else ()
            problems = [problem.located for problem in found] or [str(error)]
            give({"ok": False, "problems": problems})
            raise typer.Exit(1) from error
        fail(str(error), _hint(error))
    if as_json:
        give({"ok": True, "problems": []})
    else:
        say(f"{file}: ok")


@app.command()
def size(
    file: File,
    instances: Annotated[int | None, typer.Option(min=1, help="Share so many in all.")] = None,
    rate: Annotated[float | None, typer.Option(help="Rows a second that it has to read.")] = None,
    target: Annotated[float, typer.Option(help="With --rate: how busy instances are.")] = 0.6,
    rows: Annotated[int, typer.Option(min=1000, help="Rows of each source to look at.")] = 200_000,
    strategy: Strategy = "operator-set-cloud",
    as_json: Json = False,
) -> None:
    """Measure what a query's rows cost, and say how many instances its subqueries need.

    It runs here on the first rows of its files, and writes to none of its sinks. Without --rate the
    instances of --instances, or one for each core, are shared so that none is full before another.
    """
    from penstock.cli.size import run_size

    try:
        if instances is not None and rate is not None:
            raise ConfigError(name="--rate", value=rate, allowed="only without --instances")
        run_size(load_query(file, _session), instances=instances, rate=rate, target=target,
                 rows=rows, strategy=strategy, as_json=as_json)  # fmt: skip
    except PenstockError as error:
        fail(str(error), _hint(error), as_json=as_json)


@app.command()
def top(
    checkpoint: Checkpoint,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds from one look to the next.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Show a query live: instances, busy shares, hottest buckets and keys, moves, decisions.

    It reads the events in the checkpoint, so the query may run anywhere, or have ended.
    """
    from penstock.cli.checkpoint import tell_errors
    from penstock.cli.top import run_top

    with tell_errors(as_json):
        run_top(checkpoint, once=once, every=every, as_json=as_json)


@app.command()
def rescale(
    checkpoint: Checkpoint,
    subquery: Annotated[
        str | None, typer.Option(help="Its number or name, as explain and top show them.")
    ] = None,
    instances: Annotated[int | None, typer.Option(min=1, help="How many it is to have.")] = None,
    rebalance: Annotated[
        bool, typer.Option("--rebalance", help="Even out the load; of all without --subquery.")
    ] = False,
    move: Annotated[
        list[str] | None, typer.Option(help="BUCKETS:INSTANCE, as 3,7-9:1; may be repeated.")
    ] = None,
    protocol: Annotated[str, typer.Option(help="How state moves: auto, state or window.")] = "auto",
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the outcome.")] = 0.0,
    as_json: Json = False,
) -> None:
    """Change the sizes or bucket owners of a query that runs in another process, without a stop.

    The request lies in the checkpoint until the query takes it up, before its next epoch. If the
    query does not run, that is when it is started again.
    """
    from penstock.cli.checkpoint import tell_errors
    from penstock.cli.rescale import make_request, run_rescale

    with tell_errors(as_json):
        request = make_request(
            subquery, instances=instances, rebalance=rebalance, moves=move or [], protocol=protocol
        )
        run_rescale(checkpoint, request, wait=wait, as_json=as_json)


@app.command()
def retry(
    checkpoint: Checkpoint,
    file: Annotated[
        str | None, typer.Argument(help="A refused file; without it they are listed.")
    ] = None,
    source: Annotated[str, typer.Option(help="Its source's name or number, if need be.")] = "",
    as_json: Json = False,
) -> None:
    """Give a refused file back to its query, which reads it with its next epoch.

    Mend the file first. A query that runs takes it within seconds; one that does not, when it is
    started again. Rows that are late by then go to the late rows.
    """
    from penstock.cli.checkpoint import tell_errors
    from penstock.cli.retry import list_unread, run_retry

    with tell_errors(as_json):
        if file is None:
            list_unread(checkpoint, as_json=as_json)
        else:
            run_retry(checkpoint, file, source=source, as_json=as_json)


@app.command()
def replay(
    checkpoint: Checkpoint,
    last: Annotated[int | None, typer.Option(min=1, help="Only so many of the newest.")] = None,
    as_json: Json = False,
) -> None:
    """Take every recorded decision of an elastic query again; exit code 1 if one differs."""
    from penstock.cli.checkpoint import tell_errors
    from penstock.cli.replay import run_replay

    with tell_errors(as_json):
        run_replay(checkpoint, last=last, as_json=as_json)


@app.command()
def audit(
    checkpoint: Checkpoint,
    spark_folder: Annotated[
        str | None, typer.Option(help="Spark's part, if elsewhere (spark.penstock.sparkFolder).")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Count published rows that are gone as well.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare what was handed out, read, late, refused and written with what is there.

    Exit code 1 if something does not agree. Readers may move or delete published epochs; these are
    shown as missing, and count only with --strict.
    """
    from penstock.cli.audit import run_audit

    run_audit(checkpoint, spark_folder=spark_folder, strict=strict, as_json=as_json)


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
    rows: Annotated[
        int | None, typer.Option("--rows", "--events", min=1000, help="How many rows or events.")
    ] = None,
    workload: Annotated[
        str | None, typer.Option("--workload", "--queries", help="Which, comma separated.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="Engines, comma separated.")] = None,
    rows_per_epoch: Annotated[int | None, typer.Option(min=100, help="Rows of one.")] = None,
    sql: Annotated[bool, typer.Option("--sql", help="nexmark: the queries in SQL.")] = False,
    small: Annotated[bool, typer.Option(help="cdr: also epochs of 1 000 rows.")] = True,
    keys: Annotated[str, typer.Option(help="state, rescale: how many keys.")] = _KEYS,
    epochs: Annotated[int, typer.Option(min=1, help="state: how many are measured.")] = 40,
    rounds: Annotated[int | None, typer.Option(min=1, help="rescale: how often, each way.")] = None,
    figure: Annotated[str, typer.Option(help=_FIGURES)] = "all",
    out: Annotated[Path | None, typer.Option(help="streamcloud: folder for the figures.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="streamcloud: a short form.")] = False,
    as_json: Json = False,
) -> None:
    """Measure Penstock beside native Structured Streaming and a Polars batch job."""
    from penstock.cli.bench import (
        BENCHMARKS,
        run_application,
        run_calls,
        run_nexmark,
        run_rescale,
        run_state,
        run_streamcloud,
    )

    if suite not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        fail(f"no benchmark {suite!r}", f"benchmarks: {known}", as_json=as_json)
    try:
        if suite == "state":
            run_state(keys, engine, epochs, as_json=as_json)
        elif suite == "rescale":
            number = None if keys == _KEYS else int(keys)
            run_rescale(number, engine, rows_per_epoch, rounds, as_json=as_json)
        elif suite == "nexmark":
            run_nexmark(rows, workload, engine, rows_per_epoch, sql=sql, as_json=as_json)
        elif suite == "streamcloud":
            run_streamcloud(figure, out, quick=quick, as_json=as_json)
        elif suite == "cdr":
            run_calls(rows, workload, engine, rows_per_epoch, small=small, as_json=as_json)
        else:
            run_application(suite, rows, workload, engine, rows_per_epoch, as_json=as_json)
    except (PenstockError, ValueError, ImportError) as error:
        fail(str(error), "benchmarks need a clone of the source tree", as_json=as_json)


def _dry(dry_run: bool) -> dict[str, Any]:
    return {"dry_run": True} if dry_run else {}


def _session() -> Any:
    from penstock.spark.session import local_session

    return local_session()


def _hint(error: Exception) -> str | None:
    if isinstance(error, QueryError):
        return "mend the query; `penstock check FILE` lists all mistakes without running it"
    if isinstance(error, RefusedLimitError):
        return "mend the input, or raise spark.penstock.maxRefusedRows in Spark's settings"
    if "no sample could be taken" in str(error):
        return "put some files into the folders of its sources, or give the sizes by hand"
    if "damaged" in str(error) or "missing" in str(error):
        return "`penstock state verify CHECKPOINT` says what is wrong, `state repair` mends it"
    if "it belongs to another query" in str(error):
        return "a checkpoint belongs to one query; use another folder for another query"
    return None
