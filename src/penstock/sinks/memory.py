"""Tables in the driver's memory.

Law: a table keeps its rows by epoch, so an epoch that is published again adds nothing. It lives as
long as its run: after a restart it has the epochs from then on.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

import polars as pl

from penstock.plan.epoch import SinkPlan
from penstock.query.nodes import Sink
from penstock.sinks.sink import Committed, Opening, OpenSink, SinkKind
from penstock.sinks.staged import read_staged


class Memory(SinkKind):
    """Keeps results in the driver, to be read by name."""

    def place(self, sink: Sink) -> str:
        """Return the table's name: no two tables of a query have the same."""
        return self.name(sink)

    def open(self, sink: Sink, opening: Opening) -> Table:
        """Make an empty table."""
        return Table(opening.plan(sink), sink.target, sink.schema)


class Table(OpenSink):
    """The rows of one memory sink."""

    def __init__(self, plan: SinkPlan, name: str, schema: Mapping[str, pl.DataType]) -> None:
        """Make a table without rows."""
        super().__init__(plan)
        self.name, self._schema = name, dict(schema)
        self._epochs: dict[int, pl.DataFrame] = {}
        self._lock = threading.Lock()

    def publish(self, committed: Committed) -> None:
        """Take the rows of an epoch."""
        frames = [read_staged(file) for file in committed.files]
        if frames:
            with self._lock:
                self._epochs[committed.epoch] = pl.concat(frames)

    def read(self) -> pl.DataFrame:
        """Return the rows, epoch by epoch."""
        with self._lock:
            frames = [frame for _, frame in sorted(self._epochs.items())]
        return pl.concat([pl.DataFrame(schema=self._schema), *frames])


def read_table(sinks: Iterable[OpenSink], name: str) -> pl.DataFrame:
    """Return the rows of the memory sink of a name.

    Raises:
        KeyError: No memory sink has the name.
    """
    tables = {sink.name: sink for sink in sinks if isinstance(sink, Table)}
    if name not in tables:
        raise KeyError(f"no memory sink {name!r}; memory sinks: {sorted(tables)}")
    return tables[name].read()
