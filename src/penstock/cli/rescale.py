"""``penstock rescale``: ask a query that runs in another process for other sizes or owners."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import typer

from penstock.base.errors import ConfigError
from penstock.cli.checkpoint import root_of
from penstock.cli.output import give, say
from penstock.driver.steering.requests import Request, answers, ask, waits
from penstock.files.place import Place
from penstock.plan.changes import read_protocol
from penstock.state.manifests import ManifestLog

POLL_SECONDS = 0.1
_LATER = (
    "the query takes it up before its next epoch, which begins when there is input, "
    "or after its next start if it is not running"
)


def make_request(
    subquery: str | None,
    *,
    instances: int | None,
    rebalance: bool,
    moves: Sequence[str],
    protocol: str,
) -> Request:
    """Return the request that the options of the command ask for.

    Raises:
        ConfigError: They do not say one thing.
    """
    asked = [instances is not None, rebalance, bool(moves)]
    if sum(asked) != 1:
        given = [n for n, is_given in zip(_WAYS, asked, strict=True) if is_given]
        raise ConfigError(
            name="options", value=" ".join(given), allowed=f"one of {', '.join(_WAYS)}"
        )
    how = read_protocol(protocol)
    if instances is not None:
        return Request(kind="rescale", subquery=subquery or "", instances=instances, protocol=how)
    if rebalance:
        return Request(kind="rebalance", subquery=subquery or "", protocol=how)
    pairs = tuple(pair for text in moves for pair in parse_moves(text))
    return Request(kind="move", subquery=subquery or "", moves=pairs, protocol=how)


_WAYS = ("--instances", "--rebalance", "--move")


def parse_moves(text: str) -> list[tuple[int, int]]:
    """Return buckets and their new owner from ``BUCKETS:INSTANCE``.

    >>> parse_moves("3,7-9:1")
    [(3, 1), (7, 1), (8, 1), (9, 1)]
    >>> parse_moves("3")
    Traceback (most recent call last):
    ...
    penstock.base.errors.ConfigError: move='3' is not allowed; allowed: BUCKETS:INSTANCE, as 3,7-9:1
    """
    buckets, _, owner = text.partition(":")
    found: list[tuple[int, int]] = []
    try:
        for part in buckets.split(","):
            low, _, high = part.partition("-")
            first, last = int(low), int(high or low)
            if last - first > 65_536:
                raise ValueError(text)
            found += [(bucket, int(owner)) for bucket in range(first, last + 1)]
    except ValueError:
        found = []
    if not found:
        raise ConfigError(name="move", value=text, allowed="BUCKETS:INSTANCE, as 3,7-9:1")
    return found


def run_rescale(checkpoint: str, request: Request, *, wait: float, as_json: bool) -> None:
    """Leave a request in a checkpoint and, if asked, wait for what becomes of it."""
    root = root_of(checkpoint)
    _check_subquery(root, request.subquery)
    asked = ask(root, request)
    found = wait_for(root, asked, wait)
    outcome = found[-1]["outcome"] if found else "waiting"
    if as_json:
        late = wait > 0 and outcome == "waiting"
        give({"ok": outcome != "refused" and not late, "request": asked, "outcome": outcome,
              "records": found})  # fmt: skip
    for record in found:
        say(f"{record['outcome']}: {record['sentence']}")
    if outcome == "refused":
        raise typer.Exit(1)
    if outcome == "waiting" and wait > 0:
        say(f"error: request {asked} was not answered within {wait:g} s\nhint: {_LATER}")
        raise typer.Exit(1)
    if outcome == "waiting":
        say(f"asked: {_LATER}")


def _check_subquery(root: Place, subquery: str) -> None:
    """Refuse a subquery that the last epoch did not have, without waiting for the query."""
    last = ManifestLog(root).newest()
    if last is None or not subquery or subquery in last.owners:
        return
    if not (subquery.isdigit() and int(subquery) in last.instances):
        known = ", ".join([*map(str, sorted(last.instances)), *sorted(last.owners)])
        raise ConfigError(name="subquery", value=subquery, allowed=known)


def wait_for(
    root: Place,
    request: str,
    seconds: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> list[dict[str, Any]]:
    """Return what became of a request, as soon as it is done; nothing if it still waits.

    If windows are still being finished when the time is over, the records say so.
    """
    until = clock() + seconds
    while True:
        found = [] if waits(root, request) else answers(root, request)
        if found and all(record.outcome != "moving" for record in found):
            break
        if clock() >= until:
            break
        sleep(POLL_SECONDS)
    return [asdict(record) for record in found]
