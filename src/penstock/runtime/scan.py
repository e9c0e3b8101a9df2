"""The scan: from the splits of an epoch to admitted rows, with late and refused rows set apart.

Law: rows read = rows admitted + rows late + rows refused, per source.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from penstock.exchange.payload import to_frame
from penstock.operators.panes import NOT_STARTED
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, SourceCount
from penstock.query.nodes import POSITION, SOURCE, TIME, Frame, Rows, Source
from penstock.runtime.dead_letters import DeadLetters
from penstock.sources.admission import Admitted, Carry, admit
from penstock.sources.files import local_path, read_one, read_together
from penstock.sources.splits import Split, file_format, file_times
from penstock.state.files import place_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """What the sources gave to one task in one epoch."""

    rows: Mapping[int, pl.DataFrame]
    late: Mapping[int, pl.DataFrame] = field(default_factory=dict)
    counts: Mapping[int, SourceCount] = field(default_factory=dict)
    seen: Mapping[int, int] = field(default_factory=dict)
    arrived: Mapping[int, int] = field(default_factory=dict)
    files: Mapping[int, tuple[int, int]] = field(default_factory=dict)


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
    rows, late, counts = {}, {}, {}
    seen, arrived = dict(plan.seen), {}
    for number, source in query.sources:
        reader = _SourceScan(query, plan, number, source, letters, ordered)
        parts = reader.read(splits.get(number, ()))
        rows[number] = pl.concat([reader.empty, *[part.rows for part in parts]])
        late[number] = pl.concat([pl.DataFrame(schema=reader.schema), *[p.late for p in parts]])
        counts[number] = reader.count(parts)
        arrived[number] = reader.carry.rows - plan.rows_before.get(number, 0)
        if reader.carry.seen > NOT_STARTED:
            seen[number] = reader.carry.seen
    return Scanned(
        rows=rows, late=late, counts=counts, seen=seen, arrived=arrived, files=file_times(splits)
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
        needed = query.required[number] | {source.time}
        self.schema = {name: dtype for name, dtype in source.schema.items() if name in needed}
        self.number, self.source, self.letters = number, source, letters
        self.ordered = ordered or number in query.ordered
        self.floor = plan.floors.get(number, NOT_STARTED)
        self.carry = Carry(
            seen=plan.seen.get(number, NOT_STARTED), rows=plan.rows_before.get(number, 0)
        )
        self.at_once = self.carry.seen if isinstance(source.reader, Frame) else None
        self.refused_reading = 0

    @property
    def empty(self) -> pl.DataFrame:
        hidden: dict[str, pl.DataType] = {TIME: pl.Int64()}
        if self.ordered:
            hidden |= {SOURCE: pl.Int32(), POSITION: pl.Int64()}
        return pl.DataFrame(schema=self.schema | hidden)

    def read(self, splits: Sequence[Split]) -> list[Admitted]:
        together = self._together(splits)
        if together is not None:
            return [self._admit(together)]
        return [part for split in splits if (part := self._one(split)) is not None]

    def _together(self, splits: Sequence[Split]) -> pl.DataFrame | None:
        if isinstance(self.source.reader, Frame) or not splits:
            return None
        paths = [local_path(s.path) for s in splits if s.path is not None and s.offset is None]
        if len(paths) != len(splits) or isinstance(self.source.reader, Rows):
            return None
        return read_together(file_format(self.source), paths, self.schema)

    def _one(self, split: Split) -> Admitted | None:
        before = self.carry
        part = self._admit(self._rows(split)) if split.mine else None
        if split.rows is not None:  # what every instance was told counts, read or not
            highest = NOT_STARTED if split.highest is None else split.highest
            self.carry = Carry(seen=max(before.seen, highest), rows=before.rows + split.rows)
        return part

    def _rows(self, split: Split) -> pl.DataFrame:
        if split.path is None:
            rows = to_frame(split.body) if split.frame is None else split.frame
            return rows.select(pl.col(name).cast(dtype) for name, dtype in self.schema.items())
        path = local_path(split.path)
        if isinstance(self.source.reader, Rows):  # ours: its name carries its hash
            rows = pl.read_ipc(io.BytesIO(place_of(path).read_named()))
            return rows.select(pl.col(name).cast(dtype) for name, dtype in self.schema.items())
        part = None if split.offset is None else (split.offset, split.rows or 0)
        found = read_one(file_format(self.source), path, self.schema, self.letters.limit, part)
        for rejected in found.rejected:
            self.refused_reading += rejected.rows
            self.letters.add_unreadable(self.number, rejected)
        return found.rows

    def _admit(self, frame: pl.DataFrame) -> Admitted:
        part = admit(
            self.source,
            self.number,
            frame,
            self.carry,
            floor=self.floor,
            ordered=self.ordered,
            at_once=self.at_once,
        )
        self.letters.add_timeless(self.number, self.source, part.timeless)
        self.carry = part.carry
        return part

    def count(self, parts: Sequence[Admitted]) -> SourceCount:
        admitted = sum(part.rows.height for part in parts)
        late = sum(part.late.height for part in parts)
        refused = sum(part.timeless.height for part in parts) + self.refused_reading
        return SourceCount(read=admitted + late + refused, late=late, refused=refused)
