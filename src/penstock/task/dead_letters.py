"""Dead letters: rows that could not be read or computed, with the reason.

Law: every refused row of a source is one letter (or counts in the letter of its file), and the
number of letters kept in memory is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from penstock.base.columns import ORDER, POSITION, SOURCE
from penstock.base.errors import RefusedLimitError
from penstock.operators.rowwise.blame import Refusal
from penstock.plan.epoch import EpochPlan
from penstock.sources.files import Rejected
from penstock.sources.lines import Record
from penstock.sources.texts import row_texts

SCHEMA: dict[str, pl.DataType] = {
    "source": pl.Int32(),
    "path": pl.String(),
    "line": pl.Int64(),
    "position": pl.Int64(),
    "operator": pl.String(),
    "reason": pl.String(),
    "rows": pl.Int64(),
    "row": pl.String(),
}


class DeadLetters:
    """The refused rows of one task in one epoch."""

    def __init__(self, epoch: int, limit: int, before: int = 0) -> None:
        """Keep at most ``limit`` rows; one more ends the epoch with an error.

        Args:
            epoch: The epoch.
            limit: How many rows may be refused in this epoch.
            before: How many were refused in earlier epochs; the error tells of all.
        """
        self.epoch = epoch
        self.limit, self.before = limit, before
        self.results = 0
        self._letters: list[dict[str, Any]] = []
        self._rows = 0
        self._positions: set[tuple[int, int]] = set()

    @classmethod
    def of(cls, plan: EpochPlan) -> DeadLetters:
        """Return an empty book for a task of an epoch."""
        return cls(plan.epoch, plan.refused_limit, plan.refused_before)

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
            path=rejected.path or None,
            line=rejected.line,
            operator="read",
            reason=rejected.reason,
            rows=rejected.rows,
            row=rejected.row,
        )

    def add_timeless(
        self,
        number: int,
        rows: pl.DataFrame,
        reasons: Sequence[str],
        path: str = "",
        lines: Sequence[Record] = (),
    ) -> None:
        """Add rows without an event time, each with the reason.

        Args:
            number: Their source.
            rows: The rows.
            reasons: Why each of them has no time.
            path: Their file.
            lines: Their lines in a text file, if they are known.
        """
        found = lines or [Record(line=0, text=text) for text in _texts(rows)]
        for one, reason in zip(found, reasons, strict=True):
            self._add(
                source=number,
                path=path or None,
                line=one.line or None,
                operator="read",
                reason=reason,
                rows=1,
                row=one.text,
            )

    def add_refusals(self, refusals: Sequence[Refusal], *, sources: int) -> None:
        """Add rows that an operator could not compute.

        Args:
            refusals: The rows and the reasons.
            sources: How many sources there are; a higher number marks a result of an operator.
        """
        for refusal in refusals:
            (text,) = _texts(refusal.row)
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
                refused=self.before + self._rows,
                limit=self.before + self.limit,
                epoch=self.epoch,
                reason=self.first_reason,
            )

    def frame(self) -> pl.DataFrame:
        """Return the letters as rows."""
        return pl.DataFrame(self._letters, schema=SCHEMA)


def _place(row: pl.DataFrame) -> tuple[int, int] | None:
    return (row[SOURCE][0], row[POSITION][0]) if SOURCE in row.columns else None


def _texts(rows: pl.DataFrame) -> list[str]:
    return row_texts(rows.select([name for name in rows.columns if name not in ORDER]))
