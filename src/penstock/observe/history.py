"""The past of a query as frames: its changes, its statistics, its decisions.

Law: a frame has its columns whether or not there is a row, so that a script can rely on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, get_type_hints

import polars as pl

from penstock.control.records import DecisionRecord
from penstock.files.place import Place
from penstock.observe.log import read_events
from penstock.plan.changes import Change, Reconfiguration, newest
from penstock.plan.statistics import EpochStatistics, InstanceLoad

_NUMBERS: dict[Any, pl.DataType] = {int: pl.Int64(), float: pl.Float64()}


def _columns(kind: type) -> dict[str, pl.DataType]:
    """Return the columns of a dataclass of numbers and words."""
    return {name: _NUMBERS.get(type_, pl.String()) for name, type_ in get_type_hints(kind).items()}


RECONFIGURATIONS: dict[str, pl.DataType] = _columns(Reconfiguration)
STATISTICS: dict[str, pl.DataType] = {
    "epoch": pl.Int64(),
    "at": pl.Float64(),
    "seconds": pl.Float64(),
    "interval_seconds": pl.Float64(),
    "latency_seconds": pl.Float64(),
    "backlog": pl.Int64(),
    "epoch_rows": pl.Int64(),
    "epoch_written": pl.Int64(),
    "subquery": pl.Int64(),
    "name": pl.String(),
} | _columns(InstanceLoad)
DECISIONS: dict[str, pl.DataType] = {
    "epoch": pl.Int64(),
    "at": pl.Float64(),
    "policy": pl.String(),
    "dry_run": pl.Boolean(),
    "proposed": pl.List(pl.String()),
    "accepted": pl.List(pl.String()),
    "refused": pl.List(pl.String()),
    "reasons": pl.List(pl.String()),
}


def reconfigurations(root: Place) -> pl.DataFrame:
    """Return the newest record of every change, oldest first.

    Args:
        root: Penstock's folder in a checkpoint.
    """
    found = read_events(root, "reconfiguration")
    records = newest(e for e in found if isinstance(e, Reconfiguration))
    return pl.DataFrame([asdict(record) for record in records], schema=RECONFIGURATIONS)


def statistics(root: Place) -> pl.DataFrame:
    """Return what epochs cost, as far as it is kept: a row per epoch, subquery and instance."""
    found = [e for e in read_events(root, "statistics") if isinstance(e, EpochStatistics)]
    rows = [
        {
            "epoch": epoch.epoch,
            "at": epoch.at,
            "seconds": epoch.seconds,
            "interval_seconds": epoch.interval_seconds,
            "latency_seconds": epoch.latency_seconds,
            "backlog": epoch.backlog,
            "epoch_rows": epoch.rows,
            "epoch_written": epoch.written,
            "subquery": load.subquery,
            "name": load.name,
        }
        | asdict(instance)
        for epoch in found
        for load in epoch.subqueries
        for instance in load.instances
    ]
    return pl.DataFrame(rows, schema=STATISTICS)


def decisions(root: Place) -> pl.DataFrame:
    """Return what was decided, oldest first: a row for each decision that has a record."""
    found = [e for e in read_events(root, "decision") if isinstance(e, DecisionRecord)]
    rows = [
        {
            "epoch": record.epoch,
            "at": record.at,
            "policy": record.rules.policy,
            "dry_run": record.rules.dry_run,
            "proposed": describe_all(record, record.proposed.plan),
            "accepted": describe_all(record, record.accepted),
            "refused": list(record.refused),
            "reasons": list(record.proposed.reasons),
        }
        for record in found
    ]
    return pl.DataFrame(rows, schema=DECISIONS)


def describe_all(record: DecisionRecord, changes: Sequence[Change]) -> list[str]:
    """Return what the changes of a decision do, one clause each."""
    subqueries = {s.id: s for s in record.view.subqueries}
    return [
        describe_change(
            change,
            subqueries[change.subquery].name if change.subquery in subqueries else "",
            subqueries[change.subquery].owners.instances if change.subquery in subqueries else 0,
        )
        for change in changes
    ]


def describe_change(change: Change, name: str, before: int) -> str:
    """Return a change as a clause.

    >>> from penstock.plan.buckets import BucketMap
    >>> from penstock.plan.changes import USER
    >>> wanted = Change(subquery=1, owners=BucketMap.even(8, 4), kind="rescale", cause=USER)
    >>> describe_change(wanted, "aggregate-0", 2)
    'rescale aggregate-0 from 2 to 4 instances'
    """
    after, who = change.instances, name or f"subquery {change.subquery}"
    parts = f", with {' and '.join(change.parts)}" if change.parts else ""
    if after != before:
        return f"{change.kind} {who} from {before} to {after} instances{parts}"
    return f"{change.kind} {who} on its {after} instances{parts}"
