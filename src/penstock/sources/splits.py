"""Splits on their way: who reads which, and how they get there.

Every scan instance hears of every split of the epoch, in order; it reads those that are its own and
knows the others' rows and highest time, so that all of them agree which rows are late. Law: who
reads a split changes nothing about its rows.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from penstock.exchange.payload import Payload
from penstock.plan.compiled import CompiledQuery
from penstock.plan.files import Again
from penstock.plan.splits import Split, SplitAtHand
from penstock.query.nodes import Source
from penstock.sources.registry import reader_of

POSITION_BITS = 31
"""A partition of a DataFrame has at most 2**31 rows in an epoch."""


def assign(query: CompiledQuery, splits: Iterable[Split], instances: int) -> list[Payload]:
    """Return the payloads that tell each scan instance of all splits and give each to one.

    With several instances readers cut their splits, and announce the rows and highest time of each
    part. The parts go to the instances in turn; which one begins depends on the split, so that
    small ones spread too. A source whose splits announce nothing is read by one instance: what is
    late in it depends on what came before.
    """
    if instances == 1:
        return [to_payload(split, 0) for split in splits]
    payloads = []
    for whole in splits:
        first = zlib.crc32(json.dumps([whole.source, whole.ordinal]).encode())
        for number, split in enumerate(_cut(query, whole)):
            if split.rows is None:
                payloads.append(to_payload(split, split.source % instances))
                continue
            owner = (first + number) % instances
            payloads += [
                to_payload(split if task == owner else split.news, task)
                for task in range(instances)
            ]
    return payloads


def _cut(query: CompiledQuery, split: Split) -> list[Split]:
    source = query.nodes[split.source]
    assert isinstance(source, Source)
    return reader_of(source).cut(split, query.columns_read(split.source))


def to_payload(split: Split, task: int) -> Payload:
    """Return a split as a payload for a scan task."""
    return Payload(kind="split", stage=0, task=task, body=split.encode())


def again_splits(again: Iterable[Again]) -> list[Split]:
    """Return the files that an epoch tries again; their place is when they were first seen."""
    return [
        Split(source=file.source, ordinal=(file.since_us, file.path), path=file.path)
        for file in again
    ]


def make_scattered_splits(source: int, part: int, frame: pl.DataFrame) -> list[Split]:
    """Return the rows of one partition of a DataFrame, and news of as many rows before them.

    No partition knows how many rows the others have, so each gets a range of positions of its own.
    """
    before = Split(source=source, ordinal=(0,), rows=part << POSITION_BITS)
    return [before, SplitAtHand(source=source, ordinal=(1,), frame=frame)]


def find_ages(splits: Mapping[int, Sequence[Split]]) -> dict[int, tuple[int, int]]:
    """Return when the oldest and newest input of each source came to be, where splits tell.

    >>> first, second = (Split(source=0, ordinal=(i,), came_us=i) for i in (5, 9))
    >>> find_ages({0: [first, second], 1: [Split(source=1, ordinal=(0,))]})
    {0: (5, 9)}
    """
    times = {n: [s.came_us for s in some if s.came_us is not None] for n, some in splits.items()}
    return {source: (min(found), max(found)) for source, found in times.items() if found}


def splits_in(payloads: Sequence[Payload], at_hand: Sequence[Split]) -> dict[int, list[Split]]:
    """Return the splits of each source, in order."""
    found: dict[int, list[Split]] = {}
    sent = [Split.decode(payload.body) for payload in payloads if payload.kind == "split"]
    for split in [*sent, *at_hand]:
        found.setdefault(split.source, []).append(split)
    return {source: sorted(splits, key=lambda s: s.ordinal) for source, splits in found.items()}
