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
from penstock.query.nodes import Files, Rows, Source
from penstock.sources.admission import event_time
from penstock.sources.files import local_path

POSITION_BITS = 31
"""A partition of a DataFrame has at most 2**31 rows in an epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One unit of input; without path, body or frame it is news of another instance's split.

    A ``frame`` is rows that are already here; it is never sent.
    """

    source: int
    ordinal: tuple[int | str, ...]
    path: str | None = None
    body: bytes = b""
    offset: int | None = None
    rows: int | None = None
    highest: int | None = None
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
        )


def file_format(source: Source) -> str:
    """Return the format of a source's files; rows of the program are kept as Arrow files."""
    if isinstance(source.reader, Files):
        return source.reader.format
    assert isinstance(source.reader, Rows)
    return "arrow"


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
    try:
        groups = _footer(local_path(split.path), source)
    except Exception:  # unreadable: no rows for anyone; its reader reports the file
        return [replace(split, rows=0)]
    parts, offset = [], 0
    for number, (rows, highest) in enumerate(groups):
        place = (*split.ordinal, number)
        part = replace(split, ordinal=place, offset=offset, rows=rows, highest=highest)
        parts.append(part)
        offset += rows
    return parts


def _footer(path: str, source: Source) -> list[tuple[int, int | None]]:
    """Return the rows and highest time of each row group, from its statistics or its column."""
    metadata = pq.read_metadata(path)
    groups: list[tuple[int, int | None]] = []
    offset = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = [group.column(i) for i in range(group.num_columns)]
        time = next(column for column in columns if column.path_in_schema == source.time)
        if time.statistics is not None and time.statistics.has_min_max:
            highest = pl.Series([time.statistics.max]).cast(pl.Datetime("us")).to_physical()[0]
        else:
            rows = pl.scan_parquet(path).slice(offset, group.num_rows)
            highest = rows.select(event_time(source).max()).collect().item()
        groups.append((group.num_rows, highest))
        offset += group.num_rows
    return groups


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
