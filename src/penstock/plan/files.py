"""Files of sources that are not read: those that wait to be tried again, and those refused.

Law: files seen = files read + files refused + files waiting, per source, after every epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

FILE_COUNTERS = ("seen", "read", "refused", "waiting")
_FIRST_SECONDS, _MOST_SECONDS = 1.0, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadFile:
    """A file that was seen and of which no row was taken.

    Attributes:
        source: The number of its source.
        path: The file, as the source names it.
        reason: Why it could not be read.
        since: When it was first seen, in seconds since 1970.
        tried: When it was last tried.
        tries: How often it was tried.
    """

    source: int
    path: str
    reason: str = ""
    since: float = 0.0
    tried: float = 0.0
    tries: int = 1

    @property
    def due(self) -> float:
        """When it is to be tried again: after twice as long as the last time, up to a bound."""
        doubled: float = _FIRST_SECONDS * 2 ** min(self.tries - 1, 10)
        return self.tried + min(_MOST_SECONDS, doubled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A file that an epoch tries again; the ``last`` time it is read or refused."""

    source: int
    path: str
    since_us: int = 0
    last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BadFile:
    """What a task reports of a file that it could not read: it ``waits``, or it is refused."""

    source: int
    path: str
    reason: str
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCount:
    """How many files of a source a task was given, and how many of them it has read."""

    seen: int = 0
    read: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAccounts:
    """What is known of the files of all sources after an epoch.

    Attributes:
        seen: How many files each source has handed out.
        read: How many of them were read.
        waiting: Those that will be tried again.
        refused: Those that were given up.
    """

    seen: Mapping[int, int]
    read: Mapping[int, int]
    waiting: tuple[UnreadFile, ...] = ()
    refused: tuple[UnreadFile, ...] = ()

    def by_source(self) -> dict[int, dict[str, int]]:
        """Return the counts of each source."""
        return {
            number: {
                "seen": self.seen[number],
                "read": self.read.get(number, 0),
                "refused": sum(file.source == number for file in self.refused),
                "waiting": sum(file.source == number for file in self.waiting),
            }
            for number in sorted(self.seen)
        }

    def check(self) -> None:
        """Check that no file was lost.

        Raises:
            AssertionError: One was, or one was counted twice.
        """
        for number, counts in self.by_source().items():
            if counts["seen"] != counts["read"] + counts["refused"] + counts["waiting"]:
                raise AssertionError(f"files of source {number} were lost: {counts}")


def choose_again(
    waiting: Iterable[UnreadFile],
    returned: Iterable[UnreadFile],
    patience: Mapping[int, float],
    *,
    now: float,
    every: bool = False,
    final: bool = False,
) -> tuple[Again, ...]:
    """Return the files that an epoch tries again.

    Args:
        waiting: The files that wait.
        returned: Refused files that the user has given back; they get no second patience.
        patience: For how many seconds files of each source may wait.
        now: The time.
        every: Whether to try all files, due or not.
        final: Whether this is the last epoch.

    >>> half = UnreadFile(source=0, path="/a.parquet", since=100.0, tried=100.0)
    >>> [choose_again([half], [], {0: 60.0}, now=now) for now in (100.5, 160.0)]
    [(), (Again(source=0, path='/a.parquet', since_us=100000000, last=True),)]
    """
    ends = {file: file.since + patience.get(file.source, 0.0) for file in waiting}
    found = [
        _again(file, last=final or now >= end)
        for file, end in ends.items()
        if every or final or now >= min(file.due, end)
    ]
    return (*found, *(_again(file, last=True) for file in returned))


def _again(file: UnreadFile, *, last: bool) -> Again:
    return Again(
        source=file.source, path=file.path, since_us=int(file.since * 1_000_000), last=last
    )


def account(
    before: FileAccounts,
    again: Sequence[Again],
    counts: Iterable[Mapping[int, FileCount]],
    bad: Iterable[BadFile],
    *,
    now: float,
) -> FileAccounts:
    """Return what is known of files after an epoch.

    Args:
        before: What was known.
        again: The files that the epoch has tried again.
        counts: What each task counted, by source.
        bad: The files that could not be read.
        now: The time.
    """
    seen, read = dict(before.seen), dict(before.read)
    for part in counts:
        for number, count in part.items():
            seen[number] = seen.get(number, 0) + count.seen
            read[number] = read.get(number, 0) + count.read
    tried = {(file.source, file.path) for file in again}
    for number, _ in tried:
        seen[number] -= 1
    known = {(file.source, file.path): file for file in (*before.waiting, *before.refused)}
    outcome = [(_note(known.get((f.source, f.path)), f, now), f.waits) for f in bad]
    return FileAccounts(
        seen=seen,
        read=read,
        waiting=(*_others(before.waiting, tried), *(file for file, waits in outcome if waits)),
        refused=(*_others(before.refused, tried), *(f for f, waits in outcome if not waits)),
    )


def _note(known: UnreadFile | None, bad: BadFile, now: float) -> UnreadFile:
    if known is None:
        known = UnreadFile(source=bad.source, path=bad.path, since=now, tries=0)
    return replace(known, reason=bad.reason, tried=now, tries=known.tries + 1)


def _others(files: Sequence[UnreadFile], tried: set[tuple[int, str]]) -> list[UnreadFile]:
    return [file for file in files if (file.source, file.path) not in tried]
