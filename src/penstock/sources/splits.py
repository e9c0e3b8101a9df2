"""Splits: the units of input that scan instances read, as payloads.

A split is a file or an Arrow batch. Every scan instance hears of every split of the epoch, in
order; it reads those that are its own and knows the others' rows and highest time, so that all of
them agree which rows are late. Law: who reads a split changes nothing about its rows.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl
import pyarrow.parquet as pq

from penstock.exchange.payload import Payload
from penstock.plan.compiled import CompiledQuery
from penstock.plan.files import Again
from penstock.query.nodes import Files, Rows, Source
from penstock.sources.admission import event_times
from penstock.sources.files import fits, local_path, read_one, unreadable
from penstock.sources.formats import Schema

POSITION_BITS = 31
"""A partition of a DataFrame has at most 2**31 rows in an epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One unit of input; without path, body or frame it is news of another instance's split.

    A ``frame`` is rows that are already here; it is never sent. A file with a ``problem`` could not
    be read when splits were assigned: it is not tried again in the same epoch, since the others
    know that it has no rows.
    """

    source: int
    ordinal: tuple[int | str, ...]
    path: str | None = None
    body: bytes = b""
    offset: int | None = None
    rows: int | None = None
    highest: int | None = None
    problem: str = ""
    frame: pl.DataFrame | None = None

    @property
    def mine(self) -> bool:
        """Whether this instance has to read it."""
        return self.path is not None or bool(self.body) or self.frame is not None

    def to_payload(self, task: int) -> Payload:
        """Return the split as a payload for a scan task."""
        return Payload(
            kind="split",
            stage=0,
            task=task,
            body=self.body,
            facts={
                "source": self.source,
                "ordinal": self.ordinal,
                "path": self.path,
                "offset": self.offset,
                "rows": self.rows,
                "highest": self.highest,
                "problem": self.problem,
            },
        )

    @classmethod
    def of_payload(cls, payload: Payload) -> Split:
        """Return the split of a payload."""
        facts = payload.facts
        return cls(
            source=facts["source"],
            ordinal=tuple(facts["ordinal"]),
            path=facts["path"],
            offset=facts["offset"],
            body=payload.body,
            rows=facts["rows"],
            highest=facts["highest"],
            problem=facts["problem"],
        )


def file_format(source: Source) -> str:
    """Return the format of a source's files; rows of the program are kept as Arrow files."""
    if isinstance(source.reader, Files):
        return source.reader.format
    assert isinstance(source.reader, Rows)
    return "arrow"


def file_columns(query: CompiledQuery, number: int) -> dict[str, pl.DataType]:
    """Return the columns that are read from a source's files: not those of their folders."""
    source = query.nodes[number]
    assert isinstance(source, Source)
    there = {n for n, _ in source.reader.partitions} if isinstance(source.reader, Files) else set()
    return {n: dtype for n, dtype in query.columns_read(number).items() if n not in there}


def assign(query: CompiledQuery, splits: Iterable[Split], instances: int) -> list[Payload]:
    """Return the payloads that tell each scan instance of all splits and give each to one.

    With several instances a Parquet file is split by row group, and its footer tells every
    instance the rows and highest time of each. Its row groups go to the instances in turn; which
    one begins depends on the file, so that small files spread too. A source whose files do not
    tell is read by one instance: what is late in it depends on what came before.
    """
    if instances == 1:
        return [split.to_payload(0) for split in splits]
    payloads = []
    for whole in splits:
        first = zlib.crc32(json.dumps([whole.source, whole.ordinal]).encode())
        for number, split in enumerate(_row_groups(query, whole)):
            if split.rows is None:
                payloads.append(split.to_payload(split.source % instances))
                continue
            owner = (first + number) % instances
            news = replace(split, path=None, body=b"")
            payloads += [
                (split if task == owner else news).to_payload(task) for task in range(instances)
            ]
    return payloads


def _row_groups(query: CompiledQuery, split: Split) -> list[Split]:
    """Return a Parquet file as one split per row group; anything else as it is."""
    source = query.nodes[split.source]
    assert isinstance(source, Source)
    if split.path is None or file_format(source) != "parquet":
        return [split]
    path = local_path(split.path)
    try:
        groups = _footer(path, source, file_columns(query, split.source))
    except Exception as error:  # no rows for anyone; its reader reports the file
        return [replace(split, rows=0, problem=unreadable("parquet", path, error).reason)]
    if not groups:
        return [replace(split, rows=0, offset=0)]
    parts, offset = [], 0
    for number, (rows, highest) in enumerate(groups):
        place = (*split.ordinal, number)
        part = replace(split, ordinal=place, offset=offset, rows=rows, highest=highest)
        parts.append(part)
        offset += rows
    return parts


def _footer(path: str, source: Source, schema: Schema) -> list[tuple[int, int | None]]:
    """Return the rows and highest time of each row group, from its statistics or its columns.

    Where types are not as declared, rows may be refused, and what they hold says nothing: then the
    rows that are read tell the highest time.
    """
    metadata = pq.read_metadata(path)
    as_declared = fits(pl.read_parquet_schema(path), schema)
    groups: list[tuple[int, int | None]] = []
    offset = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        highest = _highest(group, source) if as_declared else None
        if highest is None:
            part = (offset, group.num_rows)
            rows = read_one("parquet", path, schema, limit=0, part=part).rows
            highest = event_times(source, rows).highest
        groups.append((group.num_rows, highest))
        offset += group.num_rows
    return groups


def _highest(group: pq.RowGroupMetaData, source: Source) -> int | None:
    """Return the highest time that the statistics of a row group tell; None if they do not."""
    if source.moment is not None:
        return None
    columns = [group.column(i) for i in range(group.num_columns)]
    time = next(column for column in columns if column.path_in_schema == source.time)
    if time.statistics is None or not time.statistics.has_min_max:
        return None
    dtype = source.schema[source.time]
    highest = pl.Series([time.statistics.max], dtype=dtype, strict=False)
    return event_times(source, highest.to_frame(source.time)).highest


def again_splits(again: Iterable[Again]) -> list[Split]:
    """Return the files that an epoch tries again; their place is when they were first seen."""
    return [
        Split(source=file.source, ordinal=(file.since_us, file.path), path=file.path)
        for file in again
    ]


def scattered_splits(source: int, part: int, frame: pl.DataFrame) -> list[Split]:
    """Return the rows of one partition of a DataFrame, and news of as many rows before them.

    No partition knows how many rows the others have, so each gets a range of positions of its own.
    """
    before = Split(source=source, ordinal=(0,), rows=part << POSITION_BITS)
    return [before, Split(source=source, ordinal=(1,), frame=frame)]


def file_times(splits: Mapping[int, Sequence[Split]]) -> dict[int, tuple[int, int]]:
    """Return when the oldest and newest file of each source were modified, where splits tell.

    >>> file_times({0: [Split(source=0, ordinal=(5, "/a")), Split(source=0, ordinal=(9, "/b"))],
    ...             1: [Split(source=1, ordinal=(0,))]})
    {0: (5, 9)}
    """
    found: dict[int, tuple[int, int]] = {}
    for source, some in splits.items():
        # On Spark a file's place in the order is its time and its path.
        times = [s.ordinal[0] for s in some if len(s.ordinal) > 1 and isinstance(s.ordinal[1], str)]
        whole = [time for time in times if isinstance(time, int)]
        if whole:
            found[source] = min(whole), max(whole)
    return found


def splits_in(payloads: Sequence[Payload], at_hand: Sequence[Split]) -> dict[int, list[Split]]:
    """Return the splits of each source, in order."""
    found: dict[int, list[Split]] = {}
    sent = [Split.of_payload(payload) for payload in payloads if payload.kind == "split"]
    for split in [*sent, *at_hand]:
        found.setdefault(split.source, []).append(split)
    return {source: sorted(splits, key=lambda s: s.ordinal) for source, splits in found.items()}
