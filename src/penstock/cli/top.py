"""``penstock top``: a running query at a glance, from another process."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.cli.checkpoint import root_of
from penstock.cli.output import fail, give, say
from penstock.files.place import Place
from penstock.observe.snapshot import DecisionNow, Snapshot, SubqueryNow, read_snapshot

_BAR = 12
_WIDTH = 100
_NOTHING = "the query has told nothing of itself yet"
_HINT = "start it, or wait for its first epoch; an epoch begins when there is input"


def run_top(checkpoint: str, *, once: bool, every: float, as_json: bool) -> None:
    """Show how the query of a checkpoint does, once or until Ctrl-C."""
    root = root_of(checkpoint)
    if once:
        show_once(root, as_json=as_json)
        return
    console = Console(width=max(Console().width, _WIDTH))
    if as_json or not console.is_terminal:
        _repeat(every, lambda: show_once(root, as_json=as_json, wait=True))
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        _repeat(every, lambda: live.update(_screen(root), refresh=True))


def _repeat(every: float, show: Callable[[], None]) -> None:
    try:
        while True:
            show()
            time.sleep(every)
    except KeyboardInterrupt:
        return


def show_once(root: Place, *, as_json: bool, wait: bool = False) -> None:
    """Print how a query does now; if it has told nothing, fail, or say so where one waits."""
    found = read_snapshot(root)
    if found is None and not wait:
        fail(f"{root.parent}: {_NOTHING}", _HINT, as_json=as_json)
    if found is None:
        say(f"{_NOTHING}; {_HINT}")
    elif as_json:
        give(found.as_dict() | {"checkpoint": str(root.parent)})
    else:
        width = max(Console().width, _WIDTH)
        Console(width=width, highlight=False).print(render(found, str(root.parent), time.time()))


def _screen(root: Place) -> RenderableType:
    found = read_snapshot(root)
    if found is None:
        return Panel(f"{_NOTHING}; {_HINT}", title=str(root.parent))
    return render(found, str(root.parent), time.time())


def render(now: Snapshot, title: str, clock: float) -> RenderableType:
    """Return a snapshot as something to print.

    Args:
        now: The snapshot.
        title: What stands above it.
        clock: The time, to say how old the newest epoch is.
    """
    return Group(
        Text(f"{title}   epoch {now.epoch}, {_ago(clock - now.at)}", style="bold"),
        _facts(now),
        *[_subquery(subquery) for subquery in now.subqueries],
        *_changes(now),
        *_decision(now.decision),
        *_executors(now),
    )


def _facts(now: Snapshot) -> RenderableType:
    waiting = "unknown" if now.backlog is None else f"{now.backlog:,}"
    return Text(
        f"{now.rows_per_second:,.0f} rows/s in, {now.written_per_second:,.0f} out   "
        f"epoch {now.epoch_seconds * 1000:.0f} ms of {now.interval_seconds * 1000:.0f} ms   "
        f"latency {_seconds(now.latency_seconds)}   backlog {waiting}" + _files(now)
    )


def _files(now: Snapshot) -> str:
    """Return how many files were not read, if any; they deserve a look."""
    odd = [f"{now.files[n]:,} {n}" for n in ("refused", "waiting") if now.files.get(n)]
    return f"   files: {now.files['read']:,} read, {', '.join(odd)}" if odd else ""


def _subquery(subquery: SubqueryNow) -> RenderableType:
    table = Table(box=None, pad_edge=False, title_justify="left", padding=(0, 2, 0, 0))
    count = len(subquery.instances)
    table.title = f"\nsubquery {subquery.subquery} ({subquery.name}): {count} instance" + "s" * (
        count != 1
    )
    for name in ("", "host"):
        table.add_column(name)
    table.add_column("busy", min_width=_BAR + 6)
    for name in ("rows/s", "queue", "CPU", "memory", "state"):
        table.add_column(name, justify="right")
    for one in subquery.instances:
        table.add_row(
            str(one.instance),
            one.host,
            _bar(one.busy),
            f"{one.rows_per_second:,.0f}",
            f"{one.queue_seconds * 1000:.0f} ms",
            f"{one.cpu:.0%}",
            _bytes(one.memory_bytes),
            _bytes(one.state_bytes),
        )
    return Group(table, *_hottest(subquery))


def _hottest(subquery: SubqueryNow) -> list[RenderableType]:
    lines = []
    if subquery.hot_buckets:
        buckets = ", ".join(f"{hot.bucket} {hot.share:.1%}" for hot in subquery.hot_buckets)
        lines.append(f"hottest buckets: {buckets}")
    if subquery.hot_keys:
        keys = ", ".join(f"{_short(hot.key)} {hot.share:.1%}" for hot in subquery.hot_keys)
        lines.append(f"hottest keys: {keys}")
    return [Text("   ".join(lines), style="dim")] if lines else []


def _bar(share: float) -> Text:
    """Return a share as a bar; more than all of it is full and red."""
    filled = round(min(1.0, max(0.0, share)) * _BAR)
    style = "red" if share > 0.9 else "yellow" if share > 0.6 else "green"
    return Text.assemble(("█" * filled, style), "·" * (_BAR - filled), f" {share:4.0%}")


def _changes(now: Snapshot) -> list[RenderableType]:
    lines = [
        Text(f"epoch {change.epoch}, {change.outcome}: {change.sentence}")
        for change in reversed(now.reconfigurations)
    ]
    return [Text("\nlast changes", style="italic"), *lines] if lines else []


def _decision(decision: DecisionNow | None) -> list[RenderableType]:
    if decision is None:
        return []
    trial = ", dry run" if decision.dry_run else ""
    lines = [f"\nlast decision: epoch {decision.epoch}, policy {decision.policy}{trial}"]
    for name in ("proposed", "accepted", "refused", "reasons"):
        lines += [f"{name}: {text}" for text in getattr(decision, name)]
    return [Text(lines[0], style="italic"), *[Text(line) for line in lines[1:]]]


def _executors(now: Snapshot) -> list[RenderableType]:
    lines = [
        Text(f"{_clock(event.at)} executor {event.executor} on {event.host}: {event.what}")
        for event in reversed(now.executors)
    ]
    return [Text("\nexecutors", style="italic"), *lines] if lines else []


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def _ago(seconds: float) -> str:
    return f"{_seconds(max(0.0, seconds))} ago"


def _seconds(seconds: float) -> str:
    """Return a duration as a person says it.

    >>> _seconds(0.25), _seconds(12.3), _seconds(4000), _seconds(200_000)
    ('250 ms', '12.3 s', '67 min', '56 h')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _bytes(count: int) -> str:
    """Return a number of bytes as a person says it.

    >>> _bytes(0), _bytes(1500), _bytes(2_500_000_000)
    ('0 B', '2 kB', '2.5 GB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1000:.0f} kB" if count >= 1000 else f"{count} B"


def _short(key: str) -> str:
    r"""Return a key without what a terminal would take for a command, and not too long.

    >>> _short("ann\x1b[31m"), len(_short("x" * 100))
    ('ann?[31m', 24)
    """
    plain = "".join(c if c.isprintable() else "?" for c in key)
    return plain if len(plain) <= 24 else f"{plain[:23]}…"
