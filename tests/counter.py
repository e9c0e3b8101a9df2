"""A source that exists only in tests: it counts. One file, and one line that registers it.

Number n is a row with the time of n seconds; every tenth one is a minute behind, and so is late.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec
import polars as pl

from penstock.base.durations import Duration
from penstock.files.place import Place
from penstock.plan.splits import Reached, Split
from penstock.query.nodes import Reader
from penstock.query.stream import Stream
from penstock.sources.admission import event_times
from penstock.sources.declare import make_source
from penstock.sources.reader import OpenSource, Schema, SourceReader
from penstock.sources.registry import add_kind

SCHEMA: dict[str, pl.DataType] = {
    "n": pl.Int64(),
    "even": pl.Boolean(),
    "ts": pl.Datetime("us"),
}
PARTS = 4
"""A split is cut into so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter(Reader):
    """The numbers below an end, some in each split."""

    end: int
    each: int


def count_to(end: int, *, each: int, delay: Duration = "0 seconds") -> Stream:
    return make_source(Counter(end=end, each=each), SCHEMA, "ts", delay, None, "numbers")


def rows_between(first: int, last: int) -> pl.DataFrame:
    number = pl.int_range(first, last, dtype=pl.Int64, eager=True).alias("n").to_frame()
    behind = pl.when(pl.col("n") % 10 == 9).then(60).otherwise(0)
    return number.with_columns(
        even=pl.col("n") % 2 == 0, ts=pl.from_epoch(pl.col("n") - behind).cast(pl.Datetime("us"))
    )


class CounterReader(SourceReader[Counter]):
    unit = "rows"

    def find_problems(self) -> list[str]:
        return [] if self.value.end > 0 else [f"source {self.source.name}: there is no number"]

    def pin(self) -> str:
        return f"numbers to {self.value.end}"

    def find(self, reached: Reached, limit: int) -> list[Split]:
        """Return the next splits, as a loop of our own would ask for them."""
        firsts = range(reached.rows, self.value.end, self.value.each)[:limit]
        return [Split(source=0, ordinal=(n,), path=self._name(n)) for n in firsts]

    def prepare(self, home: Place) -> None:
        (home / "read me").write_new(b"not a number")
        for first in range(0, self.value.end, self.value.each):
            (home / self._name(first)).write_new(b"here")  # Spark passes over empty files

    def owns(self, split: Split) -> bool:
        return "-" in str(split.path).rpartition("/")[2]

    def cut(self, split: Split, columns: Schema) -> list[Split]:
        if split.path is None:
            return [split]
        first, last = _bounds(split)
        edges = [first + (last - first) * part // PARTS for part in range(PARTS + 1)]
        return [
            msgspec.structs.replace(
                split,
                ordinal=(*split.ordinal, low),
                offset=low - first,
                rows=high - low,
                highest=event_times(self.source, rows_between(low, high)).highest,
            )
            for low, high in pairwise(edges)
        ]

    def open(self, columns: Schema, *, limit: int, every: bool) -> OpenSource:
        return _OpenCounter(columns, limit=limit, every=every)

    def sample(self, rows: int) -> pl.DataFrame:
        return rows_between(0, min(rows, self.value.end))

    def count_waiting(self, reached: Reached) -> int:
        return self.value.end - reached.rows

    def _name(self, first: int) -> str:
        return f"{first:09d}-{min(first + self.value.each, self.value.end):09d}"


class _OpenCounter(OpenSource):
    def frame(self, split: Split) -> pl.DataFrame:
        return super().frame(split) if split.path is None else rows_between(*_bounds(split))


def _bounds(split: Split) -> tuple[int, int]:
    first, _, last = Path(str(split.path)).name.partition("-")
    if split.offset is None:
        return int(first), int(last)
    return int(first) + split.offset, int(first) + split.offset + (split.rows or 0)


add_kind(Counter, CounterReader)
