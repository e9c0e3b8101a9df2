"""The event log: a folder of small files of events, in a query's checkpoint.

Statistics are collected for a second and bounded in number; what was decided and changed is written
at once and kept. Laws: events change no result; a crash loses at most the statistics of the last
second; the number of files does not grow with the age of the query's statistics.
"""

from __future__ import annotations

import gzip
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator

from penstock.base.errors import CheckpointError
from penstock.files.place import Place
from penstock.observe.events import Event, decode, encode, kind_of
from penstock.plan.statistics import EpochStatistics

FOLDER = "events"
_NAME = re.compile(r"(\d{12})-.*\.jsonl\.gz")
_SMALL = 64
_FILES = 192
"""More files of statistics than this are not kept; the oldest go."""


class EventLog:
    """Writes the events of a query to its checkpoint."""

    def __init__(
        self,
        root: Place,
        *,
        clock: Callable[[], float] = time.time,
        flush_seconds: float = 1.0,
    ) -> None:
        """Write under a checkpoint's own folder.

        Args:
            root: Penstock's folder in the checkpoint.
            clock: Tells the time.
            flush_seconds: How long statistics may wait for others.
        """
        self.folder = root / FOLDER
        self.clock, self.flush_seconds = clock, flush_seconds
        self._waiting: list[Event] = []
        self._flushed_at = clock()
        self._lock = threading.Lock()

    def add(self, event: Event) -> None:
        """Take an event; statistics may wait a little."""
        with self._lock:
            self._waiting.append(event)
        due = self.clock() - self._flushed_at >= self.flush_seconds
        if due or not isinstance(event, EpochStatistics):
            self.flush()

    def flush(self) -> None:
        """Write what waits; may be called from any thread."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        self._flushed_at = self.clock()
        for kind in dict.fromkeys(kind_of(event) for event in waiting):
            events = [event for event in waiting if kind_of(event) == kind]
            self._write(self.folder / kind, events)
        if any(isinstance(event, EpochStatistics) for event in waiting):
            self._tidy(self.folder / "statistics")

    def _write(self, folder: Place, events: Iterable[Event]) -> None:
        lines = [encode(event) for event in events]
        first = min(event.epoch for event in events)
        name = f"{max(first, 0):012d}-{folder.files.unique()}.jsonl.gz"
        (folder / name).write_new(gzip.compress(b"\n".join(lines), compresslevel=1))

    def _tidy(self, folder: Place) -> None:
        """Merge many small files into one, and let the oldest go."""
        names = sorted(e.name for e in folder.list() if _NAME.fullmatch(e.name))
        small = [name for name in names if "-merged-" not in name]
        if len(small) >= 2 * _SMALL:
            merged = [e for name in small[:_SMALL] for e in _read_events(folder / name)]
            lines = b"\n".join(encode(event) for event in merged)
            first = small[0].partition("-")[0]
            place = folder / f"{first}-merged-{folder.files.unique()}.jsonl.gz"
            place.write_new(gzip.compress(lines, compresslevel=6))
            for name in small[:_SMALL]:
                (folder / name).delete()
        for name in names[: max(0, len(names) - _FILES)]:
            (folder / name).delete()


def read_events(root: Place, kind: str, *, last: int | None = None) -> list[Event]:
    """Return the events of a kind, oldest first.

    Args:
        root: Penstock's folder in the checkpoint.
        kind: One of `penstock.observe.events.KINDS`.
        last: How many of the newest are wanted; all unless given.

    Raises:
        CheckpointError: A file is damaged.
    """
    folder = root / FOLDER / kind
    names = sorted((e.name for e in folder.list() if _NAME.fullmatch(e.name)), reverse=True)
    found: list[Event] = []
    for name in names:
        try:
            found += _events_in(folder / name)
        except FileNotFoundError:  # merged with others since
            continue
        if last is not None and len(found) >= 2 * last:
            break
    ordered = sorted(
        {encode(event): event for event in found}.values(), key=lambda e: (e.epoch, e.at)
    )
    return ordered if last is None else ordered[-last:]


def _read_events(place: Place) -> list[Event]:
    """Return the events of a file; none if it is damaged, or every reader would stop there."""
    try:
        return list(_events_in(place))
    except CheckpointError:
        return []


def _events_in(place: Place) -> Iterator[Event]:
    data = place.read()
    try:
        lines = gzip.decompress(data).splitlines()
    except (OSError, EOFError, zlib.error) as error:
        raise CheckpointError(path=str(place), reason=f"damaged: {error}") from error
    for line in lines:
        event = decode(line, str(place))
        if event is not None:
            yield event
