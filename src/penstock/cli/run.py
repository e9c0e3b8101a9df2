"""``penstock run``: start a query and show a line for each epoch."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from penstock.base.errors import ConfigError, PenstockError
from penstock.base.words import pluralise
from penstock.cli.checkpoint import root_of
from penstock.cli.load import import_from, load_query
from penstock.cli.output import say
from penstock.control.records import DecisionRecord
from penstock.driver.sizing.sizes import read_first
from penstock.observe.history import describe_all
from penstock.observe.log import read_events
from penstock.spark.session import scratch_session

if TYPE_CHECKING:
    from penstock.spark.handle import Query


def run_query(
    file: Path, checkpoint: Path, options: dict[str, Any], *, progress: bool
) -> dict[str, Any]:
    """Run the query of a file until it ends or is interrupted; return what it did."""
    import_from(file.parent)  # before Spark starts, so that its workers find the modules too
    with scratch_session("penstock run") as spark:
        query = load_query(file, lambda: spark).start(spark, checkpoint=checkpoint, **options)
        say(f"running {file} on {spark.sparkContext.master}; Ctrl-C stops it")
        sizes = read_first(root_of(str(checkpoint)))
        if sizes is not None and progress:
            say(sizes.describe())
        with stop_on_signal(query):
            _follow(query, _Teller(str(checkpoint)) if progress else None)
        totals = query.totals
        unread = describe_files(totals.get("files", {}), str(checkpoint))
        if unread:
            say(unread)
        return {"ok": True, "totals": totals, "checkpoint": str(query.checkpoint)}


@contextmanager
def stop_on_signal(query: Query) -> Iterator[None]:
    """Stop a query on Ctrl-C or a polite kill, instead of dying in the middle of an epoch."""

    def stop(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=query.stop, name="stop", daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        query.stop()


def size_option(text: str | None) -> int | str | None:
    """Return the sizes that ``--instances`` asks for.

    >>> size_option("4"), size_option("auto"), size_option(None)
    (4, 'auto', None)
    """
    if text is None or text == "auto":
        return text
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(name="--instances", value=text, allowed="1 or more, or auto")
    return int(text)


def _follow(query: Query, tell: _Teller | None) -> None:
    while True:
        ended = query.awaitTermination(0.5)
        if tell is not None:
            tell(query)
        if ended:
            return


class _Teller:
    """Says a line for each epoch and for each decision that a policy takes."""

    def __init__(self, checkpoint: str) -> None:
        self.root = root_of(checkpoint)
        self.shown = -1
        self.decided = max((d.epoch for d in self._decisions()), default=-1)

    def __call__(self, query: Query) -> None:
        for epoch in query.epochs:
            if epoch["epoch"] > self.shown:
                self.shown = epoch["epoch"]
                say(describe_epoch(epoch))
        for decision in self._decisions():
            if decision.epoch > self.decided:
                self.decided = decision.epoch
                say(describe_decision(decision))

    def _decisions(self) -> list[DecisionRecord]:
        with suppress(PenstockError, OSError):
            found = read_events(self.root, "decision", last=5)
            return [event for event in found if isinstance(event, DecisionRecord)]
        return []


def describe_decision(record: DecisionRecord) -> str:
    """Return what a policy decided, and why, in lines."""
    done = describe_all(record, record.accepted)
    wanted = describe_all(record, record.proposed.plan)
    lines = [f"{record.rules.policy} after epoch {record.epoch}:"]
    if record.rules.dry_run:
        lines += [f"  would {text}" for text in wanted]
    else:
        lines += [f"  {text}" for text in done]
    lines += [f"  because {text}" for text in record.proposed.reasons]
    lines += [f"  refused: {text}" for text in record.refused]
    return "\n".join(lines)


def describe_epoch(epoch: dict[str, Any]) -> str:
    """Return one line about an epoch.

    >>> describe_epoch({"epoch": 3, "epochSeconds": 0.25, "rows": {"read": 5, "written": 1}})
    'epoch 3: 5 rows in, 1 out, 0 late, 0 refused, 250 ms'
    """
    rows, files = epoch["rows"], epoch.get("files", {})
    odd = [f"{pluralise(files[n], 'file')} {n}" for n in ("refused", "waiting") if files.get(n)]
    return ", ".join(
        [
            f"epoch {epoch['epoch']}: {pluralise(rows.get('read', 0), 'row')} in",
            f"{rows.get('written', 0):,} out",
            f"{rows.get('late', 0):,} late",
            f"{rows.get('refused', 0):,} refused",
            *odd,
            f"{epoch['epochSeconds'] * 1000:.0f} ms",
        ]
    )


def describe_files(files: Mapping[str, int], checkpoint: str) -> str:
    """Return a sentence about the files of a run that were not read; empty if all were.

    >>> describe_files({"seen": 5, "read": 3, "refused": 1, "waiting": 1}, "c")
    'files: 5 seen, 3 read, 1 refused, 1 waiting; `penstock retry c` lists what was not read'
    """
    if files.get("seen", 0) == files.get("read", 0):
        return ""
    counts = ", ".join(f"{number:,} {name}" for name, number in files.items())
    return f"files: {counts}; `penstock retry {checkpoint}` lists what was not read"
