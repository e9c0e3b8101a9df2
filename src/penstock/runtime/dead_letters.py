"""Dead letters: rows that could not be read or computed, with the reason.

Law: every refused row of a source is one letter (or counts in the letter of its file), and the
number of letters kept in memory is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from penstock.errors import RefusedLimitError
from penstock.operators.stateless import Refusal
from penstock.query.nodes import ORDER, POSITION, SOURCE, Source
from penstock.sources.files import Rejected

SCHEMA: dict[str, pl.DataType] = {
    "source": pl.Int32(),
    "path": pl.String(),
    "position": pl.Int64(),
    "operator": pl.String(),
    "reason": pl.String(),
    "rows": pl.Int64(),
    "row": pl.String(),
}


class DeadLetters:
    """The refused rows of one task in one epoch."""

    def __init__(self, epoch: int, limit: int) -> None:
        """Keep at most ``limit`` rows; one more ends the epoch with an error."""
        self.epoch = epoch
        self.limit = limit
        self.results = 0
        self._letters: list[dict[str, Any]] = []
        self._rows = 0
        self._positions: set[tuple[int, int]] = set()

    @property
    def first_reason(self) -> str:
        """The first reason, or an empty text."""
        if not self._letters:
            return ""
        letter = self._letters[0]
        return f"{letter['operator']}: {letter['reason']}"

    def add_unreadable(self, source: int, rejected: Rejected) -> None:
        """Add a row or a file that could not be read."""
        self._add(
            source=source,
            path=rejected.path,
            operator="read",
            reason=rejected.reason,
            rows=rejected.rows,
            row=rejected.row,
        )

    def add_timeless(self, number: int, source: Source, rows: pl.DataFrame) -> None:
        """Add rows without an event time."""
        reason = f"the time column {source.time!r} is null"
        for text in _as_json(rows):
            self._add(source=number, operator="read", reason=reason, rows=1, row=text)

    def add_refusals(self, refusals: Sequence[Refusal], *, sources: int) -> None:
        """Add rows that an operator could not compute.

        Args:
            refusals: The rows and the reasons.
            sources: How many sources there are; a higher number marks a result of an operator.
        """
        for refusal in refusals:
            (text,) = _as_json(refusal.row)
            place = _place(refusal.row)
            if place is None or place[0] >= sources:
                self.results += 1
                self._add(operator=refusal.operator, reason=refusal.reason, rows=0, row=text)
                continue
            new = place not in self._positions
            self._positions.add(place)
            self._add(
                source=place[0],
                position=place[1],
                operator=refusal.operator,
                reason=refusal.reason,
                rows=int(new),
                row=text,
            )

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """The places of the source rows that operators refused."""
        return tuple(sorted(self._positions))

    def _add(self, **letter: Any) -> None:
        self._letters.append(letter)
        self._rows += max(1, letter["rows"])
        if self._rows > self.limit:
            raise RefusedLimitError(
                refused=self._rows, limit=self.limit, epoch=self.epoch, reason=self.first_reason
            )

    def frame(self) -> pl.DataFrame:
        """Return the letters as rows."""
        return pl.DataFrame(self._letters, schema=SCHEMA)


def _place(row: pl.DataFrame) -> tuple[int, int] | None:
    return (row[SOURCE][0], row[POSITION][0]) if SOURCE in row.columns else None


def _as_json(rows: pl.DataFrame) -> list[str]:
    if not rows.height:
        return []
    visible = rows.select([name for name in rows.columns if name not in ORDER])
    texts: list[str] = (
        visible.select(pl.struct(pl.all()).struct.json_encode()).to_series().to_list()
    )
    return texts
