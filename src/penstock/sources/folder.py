"""The files of one folder source: read with the source's options and the values in folder names.

Law: reading a file again gives the same rows in the same order, with more columns if asked.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from penstock.query.nodes import Files
from penstock.sources.files import (
    GONE,
    LINE,
    TEXT,
    ReadFile,
    Rejected,
    count_rows,
    read_one,
)
from penstock.sources.formats import Schema
from penstock.sources.lines import Record, read_records
from penstock.sources.partitions import PartitionError, partition_values


class Folder:
    """Reads files of a folder."""

    def __init__(self, reader: Files, schema: Schema, limit: int) -> None:
        """Read some columns.

        Args:
            reader: The folder and its options.
            schema: The columns to return, those of folder names among them.
            limit: How many bad rows to look for at most.
        """
        self.reader, self.schema, self.limit = reader, dict(schema), limit
        there = {name for name, _ in reader.partitions}
        self._in_files = {n: dtype for n, dtype in self.schema.items() if n not in there}

    def read(
        self,
        path: str,
        part: tuple[int, int] | None = None,
        *,
        problem: str = "",
        every: bool = False,
    ) -> ReadFile:
        """Return the rows of a file, and what cannot be read.

        Args:
            path: The file.
            part: The first row and the number of rows to read; the whole file unless given.
            problem: Why it could not be read a moment ago; it is not tried then.
            every: Whether to return all columns of the file.
        """
        if problem:
            return self._refused(path, problem, incomplete=problem != GONE)
        try:
            row = partition_values(self.reader, path)
        except PartitionError as error:
            return self._refused(path, str(error), incomplete=False)
        found = read_one(
            self.reader.format,
            path,
            self._in_files,
            self.limit,
            part,
            csv=self.reader.csv,
            every=every,
        )
        if not row.width:
            return found
        values = [pl.lit(row[name][0], dtype=row.schema[name]).alias(name) for name in row.columns]
        rows = found.rows.with_columns(values)
        others = [n for n in rows.columns if n not in self.schema] if every else []
        return ReadFile(rows=rows.select([*self.schema, *others]), rejected=found.rejected)

    def _refused(self, path: str, reason: str, *, incomplete: bool) -> ReadFile:
        bad = Rejected(path=path, reason=reason, rows=0, whole=True, incomplete=incomplete)
        return ReadFile(rows=pl.DataFrame(schema=self.schema), rejected=(bad,))

    def lines(self, path: str, at: Sequence[int]) -> list[Record]:
        """Return the lines of some rows of a text file; nothing if they cannot be told."""
        form, csv = self.reader.format, self.reader.csv
        if form not in TEXT:
            return []
        rows = read_one(
            form, path, self._in_files, self.limit, csv=csv, every=True, numbered=True
        ).rows
        if LINE not in rows.columns or max(at) >= rows.height:
            return []
        texts = {record.line: record for record in read_records(form, path, csv).body}
        return [texts[line] for line in rows[LINE][list(at)]]

    def late_rows(
        self, paths: Sequence[str], at: Sequence[int], part: tuple[int, int] | None = None
    ) -> list[pl.DataFrame]:
        """Return some rows of files with all their columns; files without any are not read.

        Args:
            paths: The files that were read, in order.
            at: The places of the rows among all rows that were read.
            part: The part of the file that was read, if there is one file.
        """
        found, offset = [], 0
        for path in paths:
            if len(paths) == 1:
                mine = list(at)
            else:
                rows = count_rows(self.reader.format, path)
                mine = [place - offset for place in at if offset <= place < offset + rows]
                offset += rows
            whole = self.read(path, part, every=True).rows if mine else None
            if whole is not None and mine[-1] < whole.height:  # else it has changed since
                found.append(whole[mine])
        return found
