"""The backlog of a query: what waits at its sources, counted cheaply.

Each reader counts what waits at its source; how far the offsets of those that Spark reads are
behind, Spark's progress tells. Law: looking takes a bounded share of the time, however many files a
folder has.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.plan.compiled import CompiledQuery
from penstock.plan.splits import Reached
from penstock.sources.registry import reader_of

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
        readers = [(number, reader_of(source)) for number, source in query.sources]
        self._of_files = [(n, reader) for n, reader in readers if reader.unit == "files"]
        self._of_rows = [(n, reader) for n, reader in readers if reader.unit == "rows"]
        self._engine_reads = any(not source.reader.native for _, source in query.sources)
        self._progress, self._clock = progress, clock
        self._next = 0.0
        self._last: int | None = None

    def __call__(self, reached: Mapping[int, Reached]) -> int | None:
        """Return what waits; now and then it is looked at anew.

        Args:
            reached: How far each source was read.
        """
        since = self._clock()
        if since >= self._next:
            self._last = self._count(reached)
            now = self._clock()
            self._next = now + max(_SECONDS, (now - since) / _SHARE)
        return self._last

    def _count(self, reached: Mapping[int, Reached]) -> int | None:
        counted = self._of_files or self._of_rows
        counts = [reader.count_waiting(reached.get(n, Reached())) for n, reader in counted]
        if self._engine_reads and not self._of_files:
            report = self._progress()
            counts.append(None if report is None else behind(report.get("sources", ())))
        return None if not counts or None in counts else sum(count or 0 for count in counts)


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
