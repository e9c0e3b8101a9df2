"""Splits: the units of input that scan instances read, as payloads.

A split is a file or an Arrow batch. Every scan instance hears of every split of the epoch, in
order; it reads those that are its own and knows the others' rows and highest time, so that all of
them agree which rows are late. Law: who reads a split changes nothing about its rows.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import polars as pl
import pyarrow.parquet as pq

from penstock.exchange.payload import Payload
from penstock.plan.compiled import CompiledQuery
from penstock.query.nodes import Files, Rows, Source
from penstock.sources.admission import event_time
from penstock.sources.files import local_path


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One unit of input; without path and body it is only news of another instance's split."""

    source: int
    ordinal: tuple[int | str, ...]
    path: str | None = None
    body: bytes = b""
    rows: int | None = None
    highest: int | None = None

    @property
    def mine(self) -> bool:
        """Whether this instance has to read it."""
        return self.path is not None or bool(self.body)

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

    A source whose files do not tell their rows and highest time cheaply is read by one instance:
    what is late in it depends on what came before.
    """
    payloads = []
    for split in splits:
        told = split if instances == 1 else _with_statistics(query, split)
        alone = told.rows is None
        owner = _owner(told, alone, instances)
        payloads.append(told.to_payload(owner))
        if not alone:
            news = replace(told, path=None, body=b"")
            payloads += [news.to_payload(task) for task in range(instances) if task != owner]
    return payloads


def _owner(split: Split, alone: bool, instances: int) -> int:
    if alone:
        return split.source % instances
    return zlib.crc32(json.dumps([split.source, split.ordinal]).encode()) % instances


def _with_statistics(query: CompiledQuery, split: Split) -> Split:
    """Return a Parquet split with the rows and highest time that its footer or column tells."""
    source = query.nodes[split.source]
    assert isinstance(source, Source)
    if split.rows is not None or split.path is None or file_format(source) != "parquet":
        return split
    path = local_path(split.path)
    try:
        rows, highest = _footer(path, source.time)
        if highest is None and rows:
            highest = pl.scan_parquet(path).select(event_time(source).max()).collect().item()
    except Exception:  # unreadable: no rows for anyone; its reader reports the file
        return replace(split, rows=0)
    return replace(split, rows=rows, highest=highest)


def _footer(path: str, time: str) -> tuple[int, int | None]:
    metadata = pq.read_metadata(path)
    column = metadata.schema.to_arrow_schema().names.index(time)
    tops = []
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(column).statistics
        if statistics is None or not statistics.has_min_max:
            return metadata.num_rows, None
        tops.append(statistics.max)
    micros = pl.Series(tops).cast(pl.Datetime("us")).to_physical().max() if tops else None
    assert micros is None or isinstance(micros, int)
    return metadata.num_rows, micros


def splits_in(payloads: Sequence[Payload]) -> dict[int, list[Split]]:
    """Return the splits of each source, in order."""
    found: dict[int, list[Split]] = {}
    for payload in payloads:
        if payload.kind == "split":
            split = Split.of_payload(payload)
            found.setdefault(split.source, []).append(split)
    return {source: sorted(splits, key=lambda s: s.ordinal) for source, splits in found.items()}
