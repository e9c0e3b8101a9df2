"""Count windows, row by row, for the reference evaluator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.query.windows import CountWindow
from penstock.testing.reference.folds import rank
from penstock.testing.reference.rows import Row


def counts_of(
    members: Sequence[tuple[Row, list[Any]]],
    window: CountWindow,
    mark: float,
    columns: Sequence[str],
) -> Iterator[tuple[int, int, list[tuple[Row, list[Any]]]]]:
    """Yield the times of first and last row, and the members, of one group's full windows.

    Only rows below the watermark count, since an earlier row may still come before the others. Rows
    at the same place are told apart by columns; from then on a row's place is its number.

    >>> def row(t): return Row(time=t, source=0, position=0, values={}), []
    >>> found = counts_of([row(t) for t in (9, 1, 5, 7)], CountWindow(size=2, every=1), 9, [])
    >>> [(start, end, len(rows)) for start, end, rows in found]
    [(1, 5, 2), (5, 7, 2)]
    """
    final = sorted(
        (member for member in members if member[0].time < mark),
        key=lambda member: (member[0].place, [rank(member[0].values[c]) for c in columns]),
    )
    for first in range(0, len(final) - window.size + 1, window.every):
        rows = final[first : first + window.size]
        yield rows[0][0].time, rows[-1][0].time, [_numbered(i, *m) for i, m in enumerate(rows)]


def _numbered(number: int, row: Row, arguments: list[Any]) -> tuple[Row, list[Any]]:
    return Row(time=number, source=0, position=0, values=row.values), arguments
