"""The rows of the reference evaluator: plain dictionaries with a place in stream order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl

from penstock.query.nodes import Node
from penstock.testing.reference.folds import rank

Values = dict[str, Any]
Attempt = Callable[..., Any]
"""``attempt(row, step, *arguments)``: what a step gives, or None after the row was refused."""
EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A tuple with its place in stream order; a result has its operator's number as source."""

    time: int
    source: int
    position: int
    values: Values

    @property
    def place(self) -> tuple[int, int, int]:
        """The place in stream order."""
        return self.time, self.source, self.position

    def having(self, values: Values) -> Row:
        """Return a row at the same place with other values."""
        return Row(time=self.time, source=self.source, position=self.position, values=values)

    def picked(self, node: Node) -> Values:
        """Return the values of the columns that an operator gives."""
        return {name: self.values[name] for name in node.schema}


@dataclass(frozen=True, slots=True, kw_only=True)
class Arriving:
    """What comes into an operator: its rows by input, and the watermark at the end.

    Attributes:
        number: The operator's number, which is the source of its results.
        ports: The rows of each input.
        mark: The watermark of the inputs at the end; infinity if the input has ended.
        attempt: Runs a step that may fail on a row.
        reached: How far the watermark came before the input ended.
    """

    number: int
    ports: Sequence[list[Row]]
    mark: float
    attempt: Attempt
    reached: float = math.inf

    @property
    def rows(self) -> list[Row]:
        """The rows of all inputs."""
        return [row for port in self.ports for row in port]

    def result(self, time: int, values: Values) -> Row:
        """Return a result of the operator."""
        return Row(time=time, source=self.number, position=0, values=values)


def in_order(rows: Sequence[Row], columns: Sequence[str]) -> list[Row]:
    """Return rows in stream order; rows that tie are told apart by columns from left to right."""
    return sorted(rows, key=lambda row: (row.place, [rank(row.values[name]) for name in columns]))


def flat_columns(node: Node, among: set[str] | None = None) -> list[str]:
    """Return an operator's columns that have an order: those that are neither lists nor structs."""
    return [
        name
        for name, dtype in node.schema.items()
        if (among is None or name in among) and not dtype.is_nested()
    ]


def frame_of(rows: Sequence[Row], node: Node) -> pl.DataFrame:
    """Return rows that an operator gives as a frame."""
    return pl.DataFrame([row.picked(node) for row in rows], schema=dict(node.schema))


def to_micros(time: date) -> int:
    """Return an event time in microseconds since 1970, UTC.

    >>> to_micros(datetime(1969, 12, 31, 23, 59, 59)), to_micros(date(1970, 1, 2))
    (-1000000, 86400000000)
    """
    if not isinstance(time, datetime):
        time = datetime(time.year, time.month, time.day)
    if time.tzinfo is not None:
        time = time.astimezone(UTC).replace(tzinfo=None)
    return (time - EPOCH) // timedelta(microseconds=1)


def to_datetime(micros: int, zone: str | None = None) -> datetime:
    """Return the time of microseconds since 1970, in a time zone or UTC without one.

    >>> to_datetime(1_000_000)
    datetime.datetime(1970, 1, 1, 0, 0, 1)
    >>> to_datetime(0, "Asia/Tokyo").isoformat()
    '1970-01-01T09:00:00+09:00'
    """
    time = EPOCH + timedelta(microseconds=micros)
    return time if zone is None else time.replace(tzinfo=UTC).astimezone(ZoneInfo(zone))
