"""The scan: from the splits of an epoch to admitted rows, with late and refused rows set apart.

Laws: rows read = rows admitted + rows late + rows refused, per source; files seen = files read +
files refused + files that wait.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import polars as pl

from penstock.base.columns import POSITION, SOURCE, TIME
from penstock.base.times import NOT_STARTED
from penstock.exchange.payload import to_frame
from penstock.files.place import place_of
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, SourceCount
from penstock.plan.files import BadFile, FileCount
from penstock.query.nodes import Files, Frame, Rows, Source
from penstock.sources.admission import Admitted, Carry, admit
from penstock.sources.files import Rejected, conform, local_path, read_together
from penstock.sources.folder import Folder
from penstock.sources.splits import Split, file_times
from penstock.sources.whole import whole_rows
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
        reader = _SourceScan(query, plan, number, source, letters, ordered)
        parts = reader.read(splits.get(number, ()))
        rows[number] = pl.concat([reader.empty, *[part.rows for part in parts]])
        late[number] = pl.concat([reader.no_late, *[p.late for p in parts]])
        counts[number] = reader.count(parts)
        if isinstance(source.reader, Files):
            file_counts[number] = FileCount(seen=reader.files, read=reader.files - len(reader.bad))
            bad += reader.bad
        arrived[number] = reader.carry.rows - plan.rows_before.get(number, 0)
        if reader.carry.seen > NOT_STARTED:
            seen[number] = reader.carry.seen
    return Scanned(
        rows=rows,
        late=late,
        counts=counts,
        seen=seen,
        arrived=arrived,
        files=file_times(_new(splits, plan)),
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
        self.at_once = self.carry.seen if isinstance(source.reader, Frame) else None
        self.folder = (
            Folder(source.reader, self.schema, letters.limit)
            if isinstance(source.reader, Files)
            else None
        )
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
        together = self._together(splits)
        if together is not None:
            return [together]
        return [part for split in splits if (part := self._one(split)) is not None]

    def _together(self, splits: Sequence[Split]) -> Admitted | None:
        if self.folder is None or not splits or self.folder.reader.partitions:
            return None
        paths = [local_path(s.path) for s in splits if s.path is not None and s.offset is None]
        if len(paths) != len(splits) or any(split.problem for split in splits):
            return None
        frame = read_together(self.folder.reader.format, paths, self.schema)
        if frame is None:
            return None
        self.files += len(paths)
        folder = self.folder
        return self._admit(frame, lambda at: folder.late_rows(paths, at))

    def _one(self, split: Split) -> Admitted | None:
        before = self.carry
        part = self._read(split) if split.mine else None
        if split.rows is not None:  # what every instance was told counts, read or not
            highest = NOT_STARTED if split.highest is None else split.highest
            self.carry = Carry(seen=max(before.seen, highest), rows=before.rows + split.rows)
        return part

    def _read(self, split: Split) -> Admitted:
        path = None if split.path is None else local_path(split.path)
        if path is None or isinstance(self.source.reader, Rows):
            frame = _frame_of(split, path)
            rows, rejected = conform(frame, self.schema, "", self.letters.limit, every=self._whole)
            self._reject(rejected)
            return self._admit(rows.select(list(self.schema)), lambda at: [rows[list(at)]])
        return self._file(split, path)

    def _file(self, split: Split, path: str) -> Admitted:
        assert self.folder is not None
        folder, first = self.folder, not split.offset
        part = None if split.offset is None else (split.offset, split.rows or 0)
        found = folder.read(path, part, problem=split.problem)
        self.files += first
        bad = next((one for one in found.rejected if one.whole), None)
        if bad is not None and first and split.path is not None:
            waits = self._waits(split.path, bad)
            note = BadFile(source=self.number, path=split.path, reason=bad.reason, waits=waits)
            self.bad.append(note)
            if waits:
                return self._admit(found.rows, lambda at: [])
        self._reject(found.rejected)
        return self._admit(found.rows, lambda at: folder.late_rows([path], at, part), path)

    def _waits(self, path: str, bad: Rejected) -> bool:
        """Return whether a file is tried again, since it may be half-written."""
        assert self.folder is not None
        patient = self.folder.reader.patience_us > 0 and not self.final
        return patient and bad.incomplete and path not in self.last_tries

    def _reject(self, rejected: Sequence[Rejected]) -> None:
        for one in rejected:
            self.refused_reading += one.rows
            self.letters.add_unreadable(self.number, one)

    def _admit(
        self,
        frame: pl.DataFrame,
        late_rows: Callable[[Sequence[int]], Sequence[pl.DataFrame]],
        path: str = "",
    ) -> Admitted:
        part = admit(
            self.source,
            self.number,
            frame,
            self.carry,
            floor=self.floor,
            ordered=self.ordered,
            at_once=self.at_once,
            limit=self.letters.limit,
        )
        if part.timeless_at:
            lines = self.folder.lines(path, part.timeless_at) if self.folder and path else ()
            self.letters.add_timeless(self.number, part.timeless, part.reasons, path, lines)
        self.carry = part.carry
        if self._whole:
            some = late_rows(part.late_at) if part.late_at else ()
            late = whole_rows(some, part.late, self.source.schema)
            return replace(part, late=late)
        return part

    def count(self, parts: Sequence[Admitted]) -> SourceCount:
        admitted = sum(part.rows.height for part in parts)
        late = sum(part.late.height for part in parts)
        refused = sum(part.timeless.height for part in parts) + self.refused_reading
        return SourceCount(read=admitted + late + refused, late=late, refused=refused)


def _new(splits: Mapping[int, Sequence[Split]], plan: EpochPlan) -> Mapping[int, Sequence[Split]]:
    """Return the splits without files that are tried again."""
    if not plan.again:
        return splits
    tried = {(file.source, file.path) for file in plan.again}
    return {n: [s for s in some if (n, s.path) not in tried] for n, some in splits.items()}


def _frame_of(split: Split, path: str | None) -> pl.DataFrame:
    """Return the rows of a split that are not a file of the user's."""
    if path is not None:  # ours: its name carries its hash
        return pl.read_ipc(io.BytesIO(place_of(path).read_named()))
    return to_frame(split.body) if split.frame is None else split.frame
