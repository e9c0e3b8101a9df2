"""Rows of the program as a source: they are written to the checkpoint once, as a file.

Law: a restart reads the rows that the first start wrote, whatever the program says by then.
"""

from __future__ import annotations

import io
from contextlib import suppress

import polars as pl

from penstock.files.place import Place, name_by_hash, place_of, sha256
from penstock.plan.splits import Split
from penstock.query.nodes import Rows
from penstock.sources.files import local_path
from penstock.sources.formats import EXTENSIONS
from penstock.sources.reader import Listing, OpenSource, Schema, SourceReader


class RowsReader(SourceReader[Rows]):
    """What can be done with rows of the program."""

    def prepare(self, home: Place) -> None:
        """Write the rows to a file, if none is there."""
        if any(entry.name.startswith("rows-") for entry in home.list()):
            return
        buffer = io.BytesIO()
        self.value.rows.write_ipc(buffer, compression="uncompressed")
        data = buffer.getvalue()
        with suppress(FileExistsError):  # another driver wrote the same
            (home / name_by_hash("rows", sha256(data), ".arrow")).write_new(data)

    def list_in(self, home: str) -> Listing:
        """Return the folder that they are written to."""
        return Listing(folder=home, endings=EXTENSIONS["arrow"])

    def open(self, columns: Schema, *, limit: int, every: bool) -> OpenSource:
        """Return what reads the file."""
        return _OpenRows(columns, limit=limit, every=every)

    def sample(self, rows: int) -> pl.DataFrame:
        """Return the first rows."""
        return self.value.rows.head(rows)


class _OpenRows(OpenSource):
    def frame(self, split: Split) -> pl.DataFrame:
        """Return the rows of the file; its name carries its hash."""
        if split.path is None:
            return super().frame(split)
        return pl.read_ipc(io.BytesIO(place_of(local_path(split.path)).read_named()))
