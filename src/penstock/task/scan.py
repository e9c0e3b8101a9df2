"""The scan: from the splits of an epoch to admitted rows, with late and refused rows set apart.

Laws: rows read = rows admitted + rows late + rows refused, per source; files seen = files read +
files refused + files that wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from penstock.base.columns import POSITION, SOURCE, TIME
from penstock.base.times import NOT_STARTED
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, SourceCount
from penstock.plan.files import BadFile, FileCount
from penstock.plan.splits import Split
from penstock.query.nodes import Source
from penstock.sources.admission import Admitted, Carry, admit
from penstock.sources.files import Rejected
from penstock.sources.reader import Found
from penstock.sources.registry import reader_of
from penstock.sources.splits import find_ages
from penstock.sources.whole import read_whole_rows
from penstock.task.dead_letters import DeadLetters


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """What the sources gave to one task in one epoch."""

    rows: Mapping[int, pl.DataFrame]
    late: Mapping[int, pl.DataFrame] = field(default_factory=dict)
    counts: Mapping[int, SourceCount] = field(default_factory=dict)
    seen: Mapping[int, int] = field(default_factory=dict)
    arrived: Mapping[int, int] = field(default_factory=dict)
    files: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    file_counts: Mapping[int, FileCount] = field(default_factory=dict)
    bad_files: tuple[BadFile, ...] = ()


def scan(
    query: CompiledQuery,
    plan: EpochPlan,
    splits: Mapping[int, Sequence[Split]],
    letters: DeadLetters,
    *,
    ordered: bool = False,
) -> Scanned:
    """Read and admit the rows of all sources.

    Args:
        query: The compiled query.
        plan: The plan of the epoch.
        splits: The splits of each source, in order, this task's own and the others'.
        letters: Where refused rows go.
        ordered: Whether all rows need their place in stream order, whatever the query says.
    """
    rows, late, counts, file_counts = {}, {}, {}, {}
    seen, arrived = dict(plan.seen), {}
    bad: list[BadFile] = []
    for number, source in query.sources:
        part = _SourceScan(query, plan, number, source, letters, ordered)
        admitted = part.read(splits.get(number, ()))
        rows[number] = pl.concat([part.empty, *[one.rows for one in admitted]])
        late[number] = pl.concat([part.no_late, *[one.late for one in admitted]])
        counts[number] = part.count(admitted)
        if part.patience_us is not None:
            file_counts[number] = FileCount(seen=part.files, read=part.files - len(part.bad))
            bad += part.bad
        arrived[number] = part.carry.rows - plan.rows_before.get(number, 0)
        if part.carry.seen > NOT_STARTED:
            seen[number] = part.carry.seen
    return Scanned(
        rows=rows,
        late=late,
        counts=counts,
        seen=seen,
        arrived=arrived,
        files=find_ages(splits),
        file_counts=file_counts,
        bad_files=tuple(bad),
    )


class _SourceScan:
    """Reads one source's splits of one epoch, in order."""

    def __init__(
        self,
        query: CompiledQuery,
        plan: EpochPlan,
        number: int,
        source: Source,
        letters: DeadLetters,
        ordered: bool,
    ) -> None:
        self.schema = query.columns_read(number)
        self.number, self.source, self.letters = number, source, letters
        self.ordered = ordered or number in query.ordered
        self.floor = plan.floors.get(number, NOT_STARTED)
        self.carry = Carry(
            seen=plan.seen.get(number, NOT_STARTED), rows=plan.rows_before.get(number, 0)
        )
        self.at_once = None if source.reader.native else self.carry.seen
        reader = reader_of(source)
        self.patience_us = reader.patience_us
        self.opened = reader.open(self.schema, limit=letters.limit, every=self._whole)
        self.final = plan.final
        self.last_tries = {f.path for f in plan.again if f.source == number and f.last}
        self.refused_reading = 0
        self.files = 0
        self.bad: list[BadFile] = []

    @property
    def empty(self) -> pl.DataFrame:
        hidden: dict[str, pl.DataType] = {TIME: pl.Int64()}
        if self.ordered:
            hidden |= {SOURCE: pl.Int32(), POSITION: pl.Int64()}
        return pl.DataFrame(schema=self.schema | hidden)

    @property
    def no_late(self) -> pl.DataFrame:
        return pl.DataFrame(schema=dict(self.source.schema) if self._whole else self.schema)

    @property
    def _whole(self) -> bool:
        return self.source.late_whole and len(self.schema) < len(self.source.schema)

    def read(self, splits: Sequence[Split]) -> list[Admitted]:
        together = self.opened.read_together(splits)
        if together is not None:
            return [self._take(together)]
        return [part for split in splits if (part := self._one(split)) is not None]

    def _one(self, split: Split) -> Admitted | None:
        before = self.carry
        part = self._take(self.opened.read(split), split.path) if split.mine else None
        if split.rows is not None:  # what every instance was told counts, read or not
            highest = NOT_STARTED if split.highest is None else split.highest
            self.carry = Carry(seen=max(before.seen, highest), rows=before.rows + split.rows)
        return part

    def _take(self, found: Found, path: str | None = None) -> Admitted:
        """Sort out what reading gave; a file that waits is no more than noted."""
        self.files += found.files
        bad = next((one for one in found.rejected if one.whole), None)
        if bad is not None and found.files and path is not None:
            waits = self._waits(path, bad)
            note = BadFile(source=self.number, path=path, reason=bad.reason, waits=waits)
            self.bad.append(note)
            if waits:
                return self._admit(Found(rows=found.rows))
        self._reject(found.rejected)
        return self._admit(found)

    def _waits(self, path: str, bad: Rejected) -> bool:
        """Return whether a file is tried again, since it may be half-written."""
        patient = bool(self.patience_us) and not self.final
        return patient and bad.incomplete and path not in self.last_tries

    def _reject(self, rejected: Sequence[Rejected]) -> None:
        for one in rejected:
            self.refused_reading += one.rows
            self.letters.add_unreadable(self.number, one)

    def _admit(self, found: Found) -> Admitted:
        part = admit(
            self.source,
            self.number,
            found.rows,
            self.carry,
            floor=self.floor,
            ordered=self.ordered,
            at_once=self.at_once,
            limit=self.letters.limit,
        )
        if part.timeless_at:
            lines = found.lines(part.timeless_at)
            self.letters.add_timeless(self.number, part.timeless, part.reasons, found.path, lines)
        self.carry = part.carry
        if self._whole:
            some = found.whole(part.late_at) if part.late_at else ()
            late = read_whole_rows(some, part.late, self.source.schema)
            return replace(part, late=late)
        return part

    def count(self, parts: Sequence[Admitted]) -> SourceCount:
        admitted = sum(part.rows.height for part in parts)
        late = sum(part.late.height for part in parts)
        refused = sum(part.timeless.height for part in parts) + self.refused_reading
        return SourceCount(read=admitted + late + refused, late=late, refused=refused)
