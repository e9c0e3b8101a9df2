"""Call description records: the workload of StreamCloud, section X, Table II.

The law this module keeps: **a row depends on its number and on the fields of `CallRecords`,
and on nothing else.** So any cut of the rows into frames or files holds the same rows, and
two machines make the same data. Every random draw is a hash of (seed, column, row number).
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

if TYPE_CHECKING:
    from penstock.query.stream import Stream

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]

CALL_SCHEMA: dict[str, pl.DataType] = {
    "src": pl.String(),
    "dst": pl.String(),
    "start": pl.Datetime("us"),
    "end": pl.Datetime("us"),
    "ts": pl.Datetime("us"),
    "district": pl.Int32(),
    "lat": pl.Float64(),
    "lon": pl.Float64(),
}
"""Columns of a call record: caller, callee, start, end, emission time, place of the caller."""

SECOND = 1_000_000
_MARKER = "_calls.json"
_ROW_GROUPS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecords:
    """A made-up stream of call records, a pure function of its fields.

    Event time `ts` ascends evenly from `first` over `hours`. A record is emitted when its
    call ends, so `end` is `ts` cut to the second; durations are whole seconds, exponential
    as in the classic model of telephone traffic. With `hot_callers` above 0, that many
    callers at a time make `hot_share` of all calls, `hot_factor` times as long; each of
    them stays hot for `hot_minutes`, then another takes its place.

    >>> calls = CallRecords(rows=1_000, callers=10)
    >>> calls.frame(0, 1_000).equals(pl.concat([calls.frame(0, 7), calls.frame(7, 993)]))
    True
    """

    rows: int
    callers: int = 10_000
    districts: int = 50
    hours: float = 2.0
    seed: int = 0
    first: datetime = datetime(2026, 1, 1)
    mean_seconds: float = 120.0
    hot_callers: int = 0
    hot_share: float = 0.2
    hot_minutes: float = 15.0
    hot_factor: float = 10.0

    def __post_init__(self) -> None:
        """Refuse fields that no stream could have."""
        if self.rows < 1 or self.callers < 2 or self.districts < 1:
            raise ValueError(
                f"too small; rows={self.rows!r} (at least 1), callers={self.callers!r} "
                f"(at least 2), districts={self.districts!r} (at least 1)"
            )
        if not 0 <= self.hot_callers <= self.callers or not 0 <= self.hot_share <= 1:
            raise ValueError(
                f"no such hot set; hot_callers={self.hot_callers!r} (0 to callers), "
                f"hot_share={self.hot_share!r} (0 to 1)"
            )
        if self.first.tzinfo is not None:
            raise ValueError(f"first={self.first!r} has a zone; times are naive UTC")
        if not 0 < self.span_us < 2**63 // self.rows:
            raise ValueError(f"hours={self.hours!r} must be above 0 and fit rows={self.rows!r}")

    @property
    def span_us(self) -> int:
        """Event time from the first row to the end of the stream, in microseconds."""
        return round(self.hours * 3600 * SECOND)

    def frame(self, offset: int, rows: int) -> pl.DataFrame:
        """Return rows `offset` to `offset + rows`, cut at the end of the stream."""
        number = np.arange(offset, min(offset + rows, self.rows), dtype=np.int64)
        since = number * self.span_us // self.rows
        src, hot = self._callers(number, since)
        dst = (src + 1 + _draw(number, self.seed, 3, self.callers - 1)) % self.callers
        ts = since + _micros(self.first)
        end = ts // SECOND * SECOND
        names = _numbers(self.callers)
        columns = {
            "src": names.gather(src),
            "dst": names.gather(dst),
            "start": end - self._seconds(number, hot) * SECOND,
            "end": end,
            "ts": ts,
            **self._places(number, src),
        }
        return pl.DataFrame(columns).cast(CALL_SCHEMA)  # type: ignore[arg-type]  # str keys

    def write(self, folder: Path | str, files: int = 20) -> list[Path]:
        """Write the stream as Parquet files in event-time order; skip those already there.

        Each file appears whole or not at all, and modification times ascend with the event
        time, because Spark's file source reads in that order.

        Raises:
            FileExistsError: the folder holds call records made with other fields.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._claim(folder, files)
        cuts = [self.rows * i // files for i in range(files + 1)]
        paths = [folder / f"calls-{i:05d}.parquet" for i in range(files)]
        oldest = time.time() - files
        for i, path in enumerate(paths):
            if not path.exists():
                frame = self.frame(cuts[i], cuts[i + 1] - cuts[i])
                _write_atomically(frame, path, modified=oldest + i)
        return paths

    def _claim(self, folder: Path, files: int) -> None:
        """Mark the folder as holding this stream in this many files, or refuse it."""
        mine = json.dumps({**asdict(self), "files": files}, default=str, indent=1)
        marker = folder / _MARKER
        if marker.exists():
            if marker.read_text() != mine:
                raise FileExistsError(f"other call records are in folder={str(folder)!r}")
        else:
            hidden = folder / f".{_MARKER}.tmp"
            hidden.write_text(mine)
            hidden.replace(marker)

    def _callers(self, number: I64, since: I64) -> tuple[I64, npt.NDArray[np.bool_]]:
        """Return the caller of each row and whether that caller is hot now."""
        src = _draw(number, self.seed, 1, self.callers)
        if not self.hot_callers:
            return src, np.zeros(len(number), dtype=np.bool_)
        step = max(1, round(self.hot_minutes * 60 * SECOND / self.hot_callers))
        place = since // step + _draw(number, self.seed, 4, self.hot_callers)
        chosen = _draw(place, self.seed, 5, self.callers)
        hot = _uniform(number, self.seed, 6) < self.hot_share
        return np.where(hot, chosen, src), hot

    def _seconds(self, number: I64, hot: npt.NDArray[np.bool_]) -> I64:
        """Return whole-second durations of at least one second."""
        mean = np.where(hot, self.mean_seconds * self.hot_factor, self.mean_seconds)
        drawn = -mean * np.log1p(-_uniform(number, self.seed, 2))
        return 1 + drawn.astype(np.int64)

    def _places(self, number: I64, src: I64) -> dict[str, npt.NDArray[np.generic]]:
        """Return district, latitude and longitude; one call in eight is made away from home."""
        away = _draw(number, self.seed, 7, 8) == 0
        other = _draw(number, self.seed, 8, self.districts)
        district = np.where(away, other, src % self.districts)
        side = int(np.ceil(np.sqrt(self.districts)))
        lat = 36.0 + (district // side + _uniform(number, self.seed, 9)) * (7.0 / side)
        lon = -9.0 + (district % side + _uniform(number, self.seed, 10)) * (12.0 / side)
        return {"district": district, "lat": lat, "lon": lon}


def live(
    folder: Path | str,
    *,
    rows_per_second: int = 1_000,
    speed: float = 60.0,
    seconds: float = 600.0,
    stop: threading.Event,
    tick_seconds: float = 1.0,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Path]:
    """Write one small Parquet file per tick and yield its path, until `seconds` or `stop`.

    Event time starts now and runs `speed` times as fast as the wall clock. Twenty callers
    at a time are hot, and the set moves. Nothing is written before the first `next()`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ticks = max(1, round(seconds / tick_seconds))
    per_tick = max(1, round(rows_per_second * tick_seconds))
    first = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    calls = CallRecords(
        rows=ticks * per_tick,
        hours=ticks * tick_seconds * speed / 3600,
        first=first,
        hot_callers=20,
    )
    begun = clock()
    for tick in range(ticks):
        if stop.wait(max(0.0, begun + tick * tick_seconds - clock())):
            return
        path = folder / f"calls-{_micros(first) // SECOND}-{tick:06d}.parquet"
        _write_atomically(calls.frame(tick * per_tick, per_tick), path)
        yield path


def heavy_customers(calls: "Stream", mean: str = "10 minutes") -> "Stream":
    """Return the callers whose mean call over an hour is longer than `mean`."""
    import penstock as ps  # here, so that data can be made without the query front end

    return (
        calls.map(duration='"end" - start')
        .aggregate(
            by="src",
            window=ps.sliding("1 hour", every="1 minute"),
            calls="count(*)",
            mean="avg(duration)",
        )
        .filter(f"mean > interval '{mean}'")
    )


def _hash(number: I64, seed: int, column: int) -> U64:
    """Mix row numbers with seed and column: SplitMix64, which is stable and has no state."""
    # Seed and column have odd factors of their own; with the row's factor, seed 1 would be
    # seed 0 moved by one row.
    salt = (seed * 0xA0761D6478BD642F + column * 0xD1B54A32D192ED03) % 2**64
    x = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(salt)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _uniform(number: I64, seed: int, column: int) -> npt.NDArray[np.float64]:
    """Draw from [0, 1)."""
    return (_hash(number, seed, column) >> np.uint64(11)).astype(np.float64) / 2.0**53


def _draw(number: I64, seed: int, column: int, below: int) -> I64:
    """Draw whole numbers from 0 to `below` - 1."""
    return (_hash(number, seed, column) % np.uint64(below)).astype(np.int64)


@lru_cache(maxsize=4)
def _numbers(callers: int) -> pl.Series:
    """Return the telephone numbers: ten digits, as long as a caller's index fits seven."""
    return pl.Series("number", [f"600{i:07d}" for i in range(callers)])


def _micros(naive: datetime) -> int:
    """Return microseconds since 1970 of a naive UTC time."""
    return round(naive.replace(tzinfo=UTC).timestamp() * SECOND)


def _write_atomically(frame: pl.DataFrame, path: Path, *, modified: float | None = None) -> None:
    """Write under a hidden name, which no source lists, then rename."""
    hidden = path.with_name(f".{path.name}.tmp")
    group = max(1, -(-frame.height // _ROW_GROUPS))
    frame.write_parquet(hidden, row_group_size=group)
    if modified is not None:
        os.utime(hidden, (modified, modified))
    hidden.replace(path)
