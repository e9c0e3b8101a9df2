"""Windows of local days: every row is in the windows of its day, whatever its zone's clock did.

Clocks that skip midnight or show it twice, days of 23, 24 and 25 hours, a day that never was; rows
out of order and late, several instances, moves of buckets and crashes.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.base.durations import DAY
from penstock.base.times import FINISHED, NOT_STARTED
from penstock.operators.windows.clocks import find_reached, panes_at, show_at
from penstock.operators.windows.panes import Panes
from penstock.plan.changes import MoveProtocol
from penstock.testing.reference.rows import to_micros
from penstock.testing.reference.windows import windows_of
from penstock.testing.streams import TestStream

CHANGES = {
    "Europe/Berlin": [datetime(2024, 3, 31, 1), datetime(2024, 10, 27, 1)],
    "America/Sao_Paulo": [datetime(2018, 11, 4, 3), datetime(2019, 2, 17, 2)],  # skips midnight
    "Asia/Beirut": [datetime(2024, 3, 30, 22), datetime(2024, 10, 26, 21)],
    "Africa/Cairo": [datetime(2024, 4, 25, 22), datetime(2024, 10, 31, 21)],
    "America/St_Johns": [datetime(2010, 11, 7, 2, 31), datetime(2010, 3, 14, 3, 31)],  # at 00:01
    "Pacific/Apia": [datetime(2011, 12, 30, 10)],  # had no 2011-12-30
    "Pacific/Kwajalein": [datetime(1969, 9, 30, 13), datetime(1993, 8, 21, 12)],  # a day again
    "America/Sitka": [datetime(1867, 10, 19, 0, 30)],
    "Asia/Kathmandu": [datetime(1985, 12, 31, 18, 30)],
    "UTC": [datetime(1970, 1, 1), datetime(1, 2, 5), datetime(1677, 9, 21), datetime(2099, 12, 30)],
}
"""Instants at which clocks changed, and some at which times are odd."""
OFFSETS = [0, 0, 1, 90 * 60_000_000, 6 * 3_600_000_000, 23 * 3_600_000_000, -60_000_000, 4 * DAY]
places = st.sampled_from([(zone, time) for zone, times in CHANGES.items() for time in times])
hours = st.integers(-80, 80).map(lambda h: timedelta(hours=h))
fine = st.sampled_from([timedelta(), timedelta(minutes=1), -timedelta(microseconds=1)])


@settings(max_examples=60)
@given(
    place=places,
    steps=st.lists(st.tuples(hours, fine), min_size=1, max_size=20),
    days=st.sampled_from([1, 2, 7]),
    offset=st.sampled_from(OFFSETS),
)
def test_a_row_is_in_one_pane_and_that_is_where_its_clock_puts_it(
    place: tuple[str, datetime], steps: list[tuple[timedelta, timedelta]], days: int, offset: int
) -> None:
    zone, middle = place
    window = ps.tumbling(f"{days} days", offset=timedelta(microseconds=offset), zone=zone)
    panes = Panes.of(window)
    times = pl.Series("t", sorted(to_micros(middle + a + b) for a, b in steps))
    frame = times.to_frame().with_columns(pane=panes.pane_of(pl.col("t")))
    frame = frame.with_columns(
        start=panes.start_of(pl.col("pane")), end=panes.start_of(pl.col("pane") + 1)
    )
    assert frame["pane"].is_sorted()
    for row in frame.iter_rows(named=True):
        ((start, end),) = windows_of(row["t"], window)
        assert (row["start"], row["end"]) == (start, end)
        assert start <= row["t"] < end
        assert panes.sealed_before(row["t"]) == row["pane"]
        assert panes.start_at(row["pane"]) == start


@settings(max_examples=50)
@given(place=places, step=hours)
def test_without_a_change_near_by_a_day_is_the_date(
    place: tuple[str, datetime], step: timedelta
) -> None:
    """Where a day is not shown twice, the pane is what casting the local time to a date gives."""
    zone, middle = place
    time = (middle + step).replace(tzinfo=UTC).astimezone(ZoneInfo(zone))
    (pane,) = panes_at(pl.Series([to_micros(time)]), DAY, 0, zone)
    later = timedelta(hours=25)
    monotone = all(
        (time.astimezone(UTC) - later + timedelta(minutes=m)).astimezone(ZoneInfo(zone)).date()
        <= time.date()
        for m in range(25 * 60)
    )
    expected = (time.date() - date(1970, 1, 1)).days
    assert pane == expected if monotone else pane > expected


def test_days_follow_one_another_in_every_zone() -> None:
    days = pl.int_range(-40_000, 47_000, dtype=pl.Int64, eager=True)
    for zone in CHANGES:
        starts = find_reached(days * DAY, zone)
        assert starts.is_sorted()
        assert (show_at(starts, zone) >= days * DAY).all()
        assert (show_at(starts - 1, zone) < days * DAY).all()
    assert Panes.of(ps.tumbling("1 day", zone="UTC")).sealed_before(FINISHED) == FINISHED // DAY
    assert Panes.of(ps.tumbling("1 day", zone="UTC")).sealed_before(NOT_STARTED) < 0


@settings(max_examples=10)
@given(
    place=places,
    steps=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.sampled_from("abc")),
                   min_size=10, max_size=40),
    days=st.sampled_from([(1, 1), (2, 1), (7, 1), (6, 2), (7, 7)]),
    offset=st.sampled_from(OFFSETS),
    value=st.sampled_from(["sum(x)", "first(x)", "median(x)"]),
    protocol=st.sampled_from(["window", "state"]),
    zoned=st.booleans(),
)  # fmt: skip
def test_a_run_is_that_of_the_reference(
    place: tuple[str, datetime],
    steps: list[tuple[int, int, str]],
    days: tuple[int, int],
    offset: int,
    value: str,
    protocol: MoveProtocol,
    zoned: bool,
) -> None:
    zone, middle = place
    given_in = pl.Datetime("us", "Asia/Tokyo" if zoned else None)
    stream = ps.from_rows(
        [], schema={"k": pl.String, "x": pl.Int64, "ts": given_in}, time="ts", delay="8 hours"
    )
    window = ps.sliding(
        timedelta(days=days[0]),
        every=timedelta(days=days[1]),
        offset=timedelta(microseconds=offset),
        zone=zone,
    )
    made = stream.aggregate(by="k", window=window, v=value)
    top = stream.top(1, "x", by="k", window=window)
    sinks = made.write_memory("m", ordered=True).also(top.write_memory("t"))
    with TestStream(sinks, instances=3, buckets=8) as run:
        for number, part in enumerate(_parts(steps, middle - timedelta(hours=60), zoned)):
            if number:
                owners = run.owners[1]
                moves = {b: (owner + number) % 3 for b, owner in enumerate(owners.owners) if b % 2}
                run.move(1, moves, protocol=protocol)
            run.crash(part) if number == 2 else run.add(part)
        run.expect_reference()
        run.finish()
        run.expect_reference()
        assert run.rows("m")


def _parts(
    steps: list[tuple[int, int, str]], start: datetime, zoned: bool
) -> list[list[dict[str, Any]]]:
    rows, time = [], start
    for x, (ahead, behind, key) in enumerate(steps):
        time += timedelta(hours=ahead / 3)
        at = time - timedelta(hours=behind)
        rows.append({"k": key, "x": x * 7 % 11, "ts": at.replace(tzinfo=UTC) if zoned else at})
    return [rows[i::1][:8] for i in range(0, len(rows), 8)]
