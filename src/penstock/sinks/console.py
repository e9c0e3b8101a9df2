"""Results on the terminal, epoch by epoch.

Law: an epoch is printed at least once; after a crash it may be printed again under the same number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from penstock.query.nodes import Sink
from penstock.sinks.sink import Committed, Opening, OpenSink, SinkKind, TableOptions
from penstock.sinks.staged import read_staged

if TYPE_CHECKING:
    import rich.console


class Console(SinkKind):
    """Prints the first rows of every epoch."""

    table_options = TableOptions(target="rows", default=20)

    def open(self, sink: Sink, opening: Opening) -> Printer:
        """Find the terminal."""
        return Printer(sink, opening)


class Printer(OpenSink):
    """Prints one sink's rows."""

    def __init__(self, sink: Sink, opening: Opening) -> None:
        """Prepare the terminal for the columns of a sink."""
        from rich.console import Console as Terminal  # loaded by those who print

        super().__init__(opening.plan(sink))
        self.terminal: rich.console.Console = Terminal()
        self.most, self.schema = int(sink.target), dict(sink.schema)

    def publish(self, committed: Committed) -> None:
        """Print how many rows an epoch has, and the first of them."""
        frames = [read_staged(file) for file in committed.files]
        rows = pl.concat([pl.DataFrame(schema=self.schema), *frames])
        count = f"{rows.height} row{'s' if rows.height != 1 else ''}"
        self.terminal.print(f"epoch {committed.epoch}: {count}")
        if rows.height:
            with pl.Config(tbl_rows=self.most, tbl_hide_dataframe_shape=True):
                self.terminal.print(str(rows.head(self.most)), markup=False, highlight=False)
