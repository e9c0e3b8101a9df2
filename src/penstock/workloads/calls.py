"""Call description records: the data of StreamCloud, section X, Table II.

The law this module keeps: **a row depends on its number and on the fields of `CallRecords`,
and on nothing else.** So any cut of the rows into frames or files holds the same rows, and
two machines make the same data.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from penstock.workloads.draws import (
    HOUR,
    I64,
    SECOND,
    Flags,
    draw,
    evenly,
    micros,
    names,
    row_numbers,
    uniform,
)
from penstock.workloads.files import write_atomically, write_stream

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecords:
    """A made-up stream of call records, a pure function of its fields.

    Event time `ts` ascends evenly from `first` over `hours`. A record is emitted when its
    call ends, so `end` is `ts` cut to the second; durations are whole seconds, exponential
    as in the classic model of telephone traffic. With `hot_callers` above 0, that many
    callers at a time make `hot_share` of all calls, `hot_factor` times as long; each of
    them stays hot for `hot_minutes`, then another takes its place. One call in `away_one_in`
    is made from another district; `settled` callers make all other calls from one place.

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
    away_one_in: int = 8
    settled: bool = False

    def __post_init__(self) -> None:
        """Refuse fields that no stream could have."""
        if self.rows < 1 or self.callers < 2 or self.districts < 1 or self.away_one_in < 1:
            raise ValueError(
                f"too small; rows={self.rows!r} (at least 1), callers={self.callers!r} "
                f"(at least 2), districts={self.districts!r} (at least 1), "
                f"away_one_in={self.away_one_in!r} (at least 1)"
            )
        if not 0 <= self.hot_callers <= self.callers or not 0 <= self.hot_share <= 1:
            raise ValueError(
                f"no such hot set; hot_callers={self.hot_callers!r} (0 to callers), "
                f"hot_share={self.hot_share!r} (0 to 1)"
            )
        micros(self.first)
        if self.span_us <= 0:
            raise ValueError(f"hours={self.hours!r} must be above 0")

    @property
    def span_us(self) -> int:
        """Event time from the first row to the end of the stream, in microseconds."""
        return round(self.hours * HOUR)

    def frame(self, offset: int, rows: int) -> pl.DataFrame:
        """Return rows `offset` to `offset + rows`, cut at the end of the stream."""
        number = row_numbers(offset, rows, self.rows)
        since = evenly(number, self.span_us, self.rows)
        src, hot = self._callers(number, since)
        dst = (src + 1 + draw(number, self.seed, 3, self.callers - 1)) % self.callers
        ts = since + micros(self.first)
        end = ts // SECOND * SECOND
        known = names("600", 7, self.callers)
        columns = {
            "src": known.gather(src),
            "dst": known.gather(dst),
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
        return write_stream(self, folder, files, name="calls")

    def _callers(self, number: I64, since: I64) -> tuple[I64, Flags]:
        """Return the caller of each row and whether that caller is hot now."""
        src = draw(number, self.seed, 1, self.callers)
        if not self.hot_callers:
            return src, np.zeros(len(number), dtype=np.bool_)
        step = max(1, round(self.hot_minutes * 60 * SECOND / self.hot_callers))
        place = since // step + draw(number, self.seed, 4, self.hot_callers)
        chosen = draw(place, self.seed, 5, self.callers)
        hot = uniform(number, self.seed, 6) < self.hot_share
        return np.where(hot, chosen, src), hot

    def _seconds(self, number: I64, hot: Flags) -> I64:
        """Return whole-second durations of at least one second."""
        mean = np.where(hot, self.mean_seconds * self.hot_factor, self.mean_seconds)
        drawn = -mean * np.log1p(-uniform(number, self.seed, 2))
        return 1 + drawn.astype(np.int64)

    def _places(self, number: I64, src: I64) -> dict[str, npt.NDArray[np.generic]]:
        """Return district, latitude and longitude of the caller."""
        away = draw(number, self.seed, 7, self.away_one_in) == 0
        other = draw(number, self.seed, 8, self.districts)
        district = np.where(away, other, src % self.districts)
        side = int(np.ceil(np.sqrt(self.districts)))
        who = np.where(away, number, src) if self.settled else number
        lat = 36.0 + (district // side + uniform(who, self.seed, 9)) * (7.0 / side)
        lon = -9.0 + (district % side + uniform(who, self.seed, 10)) * (12.0 / side)
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
        path = folder / f"calls-{micros(first) // SECOND}-{tick:06d}.parquet"
        write_atomically(calls.frame(tick * per_tick, per_tick), path)
        yield path
