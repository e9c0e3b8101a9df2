"""Sessions, row by row, for the reference evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.query.windows import SessionWindow
from penstock.testing.reference.rows import Row

Member = tuple[Row, list[Any]]


def sessions_of(
    members: Sequence[Member], window: SessionWindow, mark: float
) -> Iterator[tuple[int, int, list[Member]]]:
    """Yield start, end and members of the sessions of one group that have ended.

    >>> def row(t): return Row(time=t, source=0, position=0, values={}), []
    >>> members = [row(t) for t in (15, 1, 5, 10, 30)]
    >>> found = sessions_of(members, SessionWindow(gap_us=5), 21)
    >>> [(start, end, len(rows)) for start, end, rows in found]
    [(1, 20, 4)]
    """
    session: list[Member] = []
    for member in sorted(members, key=lambda member: member[0].time):
        if session and member[0].time - session[-1][0].time > window.gap_us:
            yield from _ended(session, window, mark)
            session = []
        session.append(member)
    if session:
        yield from _ended(session, window, mark)


def _ended(
    session: list[Member], window: SessionWindow, mark: float
) -> Iterator[tuple[int, int, list[Member]]]:
    end = session[-1][0].time + window.gap_us
    if end < mark:
        yield session[0][0].time, end, session
