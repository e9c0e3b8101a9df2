"""The backlog of a query: what waits at its sources, counted cheaply.

A folder's backlog is its files that are newer than the newest file that was read; that of a
streaming DataFrame is how far its offsets are behind, where Spark's progress tells. Law: looking
takes a bounded share of the time, however many files a folder has.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from penstock.plan.compiled import CompiledQuery
from penstock.query.nodes import Files, Frame
from penstock.sources.files import local_path
from penstock.sources.formats import EXTENSIONS

Progress = Callable[[], Mapping[str, Any] | None]
_SECONDS = 1.0
_SHARE = 0.02


class Backlog:
    """Tells how much input waits: files if the query reads any, else rows; None if unknown."""

    def __init__(
        self,
        query: CompiledQuery,
        progress: Progress = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look at the sources of a query.

        Args:
            query: The compiled query.
            progress: Returns Spark's newest progress report.
            clock: Tells the time.
        """
        readers = [(number, source.reader) for number, source in query.sources]
        self._folders = [(n, r) for n, r in readers if isinstance(r, Files)]
        self._framed = any(isinstance(reader, Frame) for _, reader in readers)
        self._progress, self._clock = progress, clock
        self._next = 0.0
        self._last: int | None = None

    def __call__(self, newest: Mapping[int, int]) -> int | None:
        """Return what waits; now and then it is looked at anew.

        Args:
            newest: When the newest file that was read of each source was modified, in
                microseconds since 1970.
        """
        since = self._clock()
        if since >= self._next:
            self._last = self._count(newest)
            now = self._clock()
            self._next = now + max(_SECONDS, (now - since) / _SHARE)
        return self._last

    def _count(self, newest: Mapping[int, int]) -> int | None:
        if self._folders:
            counts = [
                newer_files(reader, newest[number]) if number in newest else None
                for number, reader in self._folders
            ]
            return None if None in counts else sum(count or 0 for count in counts)
        report = self._progress() if self._framed else None
        return None if report is None else behind(report.get("sources", ()))


def newer_files(reader: Files, newest: int) -> int | None:
    """Return how many data files of a folder are newer than a time; None if it cannot be listed.

    Spark knows the times of files in milliseconds, so those of the same millisecond count as read.
    """
    folder = local_path(reader.path)
    if "://" in folder:
        return None
    count = 0
    try:
        for entry in _entries(folder, deep=bool(reader.partitions)):
            if _is_data(entry.name, reader.format):
                count += entry.stat().st_mtime_ns // 1_000_000 > newest // 1000
    except OSError:
        return None
    return count


def _entries(folder: str, *, deep: bool) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if deep and entry.is_dir() and entry.name[0] not in "._":
                yield from _entries(entry.path, deep=True)
            else:
                yield entry


def _is_data(name: str, form: str) -> bool:
    return name[0] not in "._" and name.lower().endswith(EXTENSIONS[form])


def behind(sources: Sequence[Mapping[str, Any]]) -> int | None:
    """Return how many rows the sources of a progress report are behind, if all of them tell.

    >>> behind([{"latestOffset": {"calls": {"0": 120, "1": 80}},
    ...          "endOffset": {"calls": {"0": 100, "1": 80}}}])
    20
    >>> behind([{"latestOffset": None, "endOffset": 5}]) is None
    True
    """
    total = 0
    for source in sources:
        latest, end = _number(source.get("latestOffset")), _number(source.get("endOffset"))
        if latest is None or end is None:
            return None
        total += max(0, latest - end)
    return total if sources else None


def _number(offset: Any) -> int | None:
    """Return an offset as one number: itself, or the sum of those of its partitions."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    if isinstance(offset, bool) or offset is None:
        return None
    if isinstance(offset, int | float):
        return int(offset)
    if isinstance(offset, Mapping):
        parts = [_number(part) for part in offset.values()]
        return None if None in parts or not parts else sum(part or 0 for part in parts)
    return None
