"""Typed events: what happened to a query, for those who look at it later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from penstock.base.errors import CheckpointError
from penstock.control.records import DecisionRecord
from penstock.plan.changes import Reconfiguration
from penstock.plan.statistics import EpochStatistics

ExecutorNews = Literal["added", "lost", "decommissioning", "released"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorEvent:
    """An executor came or went."""

    at: float
    executor: str
    host: str
    what: ExecutorNews
    epoch: int = -1


Event = EpochStatistics | DecisionRecord | Reconfiguration | ExecutorEvent
KINDS: dict[str, type[Event]] = {
    "statistics": EpochStatistics,
    "decision": DecisionRecord,
    "reconfiguration": Reconfiguration,
    "executor": ExecutorEvent,
}
_NAMES = {kind: name for name, kind in KINDS.items()}


def kind_of(event: Event) -> str:
    """Return the name of an event's kind."""
    return _NAMES[type(event)]


def encode(event: Event) -> bytes:
    """Return an event as a line of JSON."""
    return msgspec.json.encode({"event": kind_of(event), "value": event})


class _Line(msgspec.Struct):
    event: str
    value: msgspec.Raw


def decode(line: bytes, path: str) -> Event | None:
    """Return the event of a line; None if it is of a kind that is not known here.

    Raises:
        CheckpointError: The line is damaged.
    """
    try:
        found = msgspec.json.decode(line, type=_Line)
        kind = KINDS.get(found.event)
        return None if kind is None else msgspec.json.decode(found.value, type=kind)
    except msgspec.MsgspecError as error:
        raise CheckpointError(path=path, reason=f"damaged: not an event: {error}") from error
