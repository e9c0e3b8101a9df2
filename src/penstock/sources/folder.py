"""A folder as a source: its new files are splits, read with the source's options.

Laws: reading a file again gives the same rows in the same order, with more columns if asked; files
seen = files read + files refused + files that wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from penstock.plan.splits import Reached, Split
from penstock.query.nodes import CsvFormat, Files
from penstock.sources.files import (
    GONE,
    LINE,
    TEXT,
    ReadFile,
    Rejected,
    count_rows,
    local_path,
    read_one,
    read_together,
    reject_unreadable,
)
from penstock.sources.formats import BY_COLUMN, EXTENSIONS, count_newer, data_files
from penstock.sources.lines import Record, read_records
from penstock.sources.partitions import PartitionError, below, partition_values
from penstock.sources.reader import (
    Found,
    Listing,
    OpenSource,
    SampleError,
    Schema,
    SourceReader,
)
from penstock.sources.row_groups import announce_groups

_WRITERS: dict[str, Callable[[pl.DataFrame, Path], Any]] = {
    "parquet": lambda frame, path: frame.write_parquet(path),
    "csv": lambda frame, path: frame.write_csv(path),
    "ndjson": lambda frame, path: frame.write_ndjson(path),
    "arrow": lambda frame, path: frame.write_ipc(path),
}


class FolderReader(SourceReader[Files]):
    """What can be done with the files of a folder."""

    unit = "files"

    @property
    def patience_us(self) -> int:
        """For how long a file that is not complete is tried again."""
        return self.value.patience_us

    def find_problems(self) -> list[str]:
        """Return that the folder is not there; those of object stores always are."""
        path = self.value.path
        if "://" in path or Path(path).is_dir():
            return []
        return [f"source {self.source.name}: the folder {path!r} does not exist"]

    def pin(self) -> str:
        """Return the folder, the format and its options."""
        options = [
            f"{name}={value!r}"
            for name, value in asdict(self.value.csv).items()
            if value != getattr(CsvFormat(), name)
        ]
        if self.value.partitions:
            options.append(f"partitions={ {n: str(t) for n, t in self.value.partitions}!r}")
        with_options = f" with {', '.join(options)}" if options else ""
        return f"{self.value.format} files in {self.value.path}{with_options}"

    def list_in(self, home: str) -> Listing:
        """Return the folder itself; nothing of it is in the checkpoint."""
        endings = EXTENSIONS[self.value.format]
        return Listing(
            folder=self.value.path, endings=endings, limit=self.value.max_files_per_epoch
        )

    def owns(self, split: Split) -> bool:
        """Return whether a file is in the folder, and not only below it, unless that counts."""
        if split.path is None or self.value.partitions:
            return True
        relative = below(self.value.path, split.path)
        return relative is None or "/" not in relative

    def cut(self, split: Split, columns: Schema) -> list[Split]:
        """Return a Parquet file as one split per row group; anything else as it is."""
        if split.path is None or self.value.format != "parquet":
            return [split]
        path, there = local_path(split.path), {name for name, _ in self.value.partitions}
        in_files = {name: dtype for name, dtype in columns.items() if name not in there}
        try:
            groups = announce_groups(path, self.source, in_files)
        except Exception as error:  # no rows for anyone; who reads the file reports it
            problem = reject_unreadable("parquet", path, error).reason
            return [msgspec.structs.replace(split, rows=0, problem=problem)]
        parts, offset = [], 0
        for number, (rows, highest) in enumerate(groups):
            place = (*split.ordinal, number)
            parts.append(
                msgspec.structs.replace(
                    split, ordinal=place, offset=offset, rows=rows, highest=highest
                )
            )
            offset += rows
        return parts or [msgspec.structs.replace(split, rows=0, offset=0)]

    def open(self, columns: Schema, *, limit: int, every: bool) -> OpenSource:
        """Return what reads files."""
        return _OpenFolder(self.value, columns, limit=limit, every=every)

    def sample(self, rows: int) -> pl.DataFrame:
        """Return the first rows of the files that are there; a bad file gives none."""
        if "://" in local_path(self.value.path):
            raise SampleError(reason=f"source {self.source.name} is not on this machine's disk")
        form, folder = self.value.format, Folder(self.value, self.source.schema, limit=0)
        frames: list[pl.DataFrame] = []
        missing = rows
        for path in data_files(form, local_path(self.value.path), deep=self._deep):
            if missing <= 0:
                break
            part = (0, missing) if form in BY_COLUMN else None
            frame = folder.read(path, part).rows.head(missing)
            missing -= frame.height
            frames += [frame] if frame.height else []
        if not frames:
            reason = f"source {self.source.name} has no file that can be read yet"
            raise SampleError(reason=reason)
        return pl.concat(frames, how="vertical_relaxed")

    def split_of(self, number: int, rows: pl.DataFrame, place: Path) -> Split:
        """Return rows of a sample as a file, so that reading it counts."""
        _WRITERS[self.value.format](rows, place)
        return Split(source=number, ordinal=(0,), path=str(place))

    def count_waiting(self, reached: Reached) -> int | None:
        """Return how many files are newer than the newest that was read."""
        folder = local_path(self.value.path)
        if reached.newest_us is None or "://" in folder:
            return None
        return count_newer(self.value.format, folder, reached.newest_us, deep=self._deep)

    @property
    def _deep(self) -> bool:
        return bool(self.value.partitions)


class _OpenFolder(OpenSource):
    """Reads the files of an epoch: at once if nothing is wrong with them, else one by one."""

    def __init__(self, value: Files, columns: Schema, *, limit: int, every: bool) -> None:
        super().__init__(columns, limit=limit, every=every)
        self.folder = Folder(value, columns, limit)

    def read_together(self, splits: Sequence[Split]) -> Found | None:
        """Return the rows of whole files that are as declared; None if one needs a closer look."""
        form, folder = self.folder.reader.format, self.folder
        paths = [local_path(s.path) for s in splits if s.path is not None and s.offset is None]
        alike = len(paths) == len(splits) and not any(split.problem for split in splits)
        if folder.reader.partitions or not paths or not alike:
            return None
        rows = read_together(form, paths, self.columns)
        if rows is None:
            return None
        return Found(rows=rows, files=len(paths), whole=lambda at: folder.late_rows(paths, at))

    def read(self, split: Split) -> Found:
        """Return the rows of a file or of one of its row groups."""
        if split.path is None:
            return super().read(split)
        path, folder = local_path(split.path), self.folder
        part = None if split.offset is None else (split.offset, split.rows or 0)
        found = folder.read(path, part, problem=split.problem)
        return Found(
            rows=found.rows,
            rejected=found.rejected,
            whole=lambda at: folder.late_rows([path], at, part),
            lines=lambda at: folder.lines(path, at),
            path=path,
            files=int(not split.offset),
        )


class Folder:
    """Reads files of a folder by their paths, with the values in the names of folders."""

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
            return self._refuse(path, problem, incomplete=problem != GONE)
        try:
            row = partition_values(self.reader, path)
        except PartitionError as error:
            return self._refuse(path, str(error), incomplete=False)
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

    def _refuse(self, path: str, reason: str, *, incomplete: bool) -> ReadFile:
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
