"""``penstock replay``: take every recorded decision again and compare."""

from __future__ import annotations

from typing import Any

import typer

from penstock.base.words import pluralise
from penstock.cli.checkpoint import root_of
from penstock.cli.output import give, say
from penstock.control.records import DecisionRecord
from penstock.control.replay import differences
from penstock.observe.history import describe_all
from penstock.observe.log import read_events


def run_replay(checkpoint: str, *, last: int | None, as_json: bool) -> None:
    """Replay the decisions of a checkpoint; exit code 1 if one would be another today."""
    events = read_events(root_of(checkpoint), "decision", last=last)
    found = [replay_decision(event) for event in events if isinstance(event, DecisionRecord)]
    different = sum(not one["same"] for one in found)
    if as_json:
        give({"ok": not different, "decisions": found})
    else:
        for one in found:
            _show(one)
    if not found:
        say("no decision was recorded; start the query with elastic=ps.elastic(...)")
    else:
        say(
            f"{pluralise(len(found), 'decision')} replayed: {len(found) - different} same, "
            f"{different} different"
        )
    if different:
        raise typer.Exit(1)


def replay_decision(record: DecisionRecord) -> dict[str, Any]:
    """Return a decision and in what it would be another today."""
    different = differences(record)
    return {
        "epoch": record.epoch,
        "at": record.at,
        "policy": record.rules.policy,
        "same": not different,
        "differences": list(different),
        "proposed": describe_all(record, record.proposed.plan),
        "accepted": describe_all(record, record.accepted),
        "refused": list(record.refused),
        "reasons": list(record.proposed.reasons),
    }


def _show(one: dict[str, Any]) -> None:
    typer.echo(f"epoch {one['epoch']}: {'same' if one['same'] else 'different'}")
    for name in ("accepted", "refused", "reasons", "differences"):
        for text in one[name]:
            typer.echo(f"  {name}: {text}")
