"""Catch what sinks would show and then forget, so that a test can look at it.

Law: sinks whose epochs last do what they always do; what others would get is given to a function,
with the number of the sink and the epoch, as often as it is published.
"""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

from penstock.query.nodes import Sink
from penstock.sinks.registry import find_kind
from penstock.sinks.sink import Committed, Kinds, LastingKind, Opening, OpenSink, SinkKind
from penstock.sinks.staged import read_staged

Take = Callable[[int, int, pl.DataFrame], None]
"""Gets the number of a sink, an epoch and its rows."""


def catching(take: Take) -> Kinds:
    """Return the kinds of sinks, with one that catches instead of each that does not last."""

    def find(key: str) -> SinkKind:
        kind = find_kind(key)
        return kind if isinstance(kind, LastingKind) else Caught(take)

    return find


class Caught(SinkKind):
    """Gives the rows of epochs to a function of the test."""

    def __init__(self, take: Take) -> None:
        """Keep the function."""
        self.take = take

    def open(self, sink: Sink, opening: Opening) -> CaughtSink:
        """Remember which sink it is."""
        return CaughtSink(sink, opening, self.take)


class CaughtSink(OpenSink):
    """One sink whose rows are caught."""

    def __init__(self, sink: Sink, opening: Opening, take: Take) -> None:
        """Keep what the function is told."""
        super().__init__(opening.plan(sink))
        self.number, self.schema, self.take = opening.number, dict(sink.schema), take

    def publish(self, committed: Committed) -> None:
        """Give an epoch to the function, with or without rows."""
        frames = [read_staged(file) for file in committed.files]
        rows = pl.concat([pl.DataFrame(schema=self.schema), *frames])
        self.take(self.number, committed.epoch, rows)
