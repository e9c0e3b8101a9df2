"""Admission: a row is late by the rows before it alone, wherever the cuts are."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.columns import POSITION, TIME
from penstock.query.nodes import Rows, Source
from penstock.sources.admission import Carry, admit

SCHEMA = {"ts": pl.Datetime("us"), "n": pl.Int64()}
BASE = datetime(1970, 1, 1)


def source(delay: int) -> Source:
    reader = Rows(rows=pl.DataFrame(schema=SCHEMA))
    return Source(schema=SCHEMA, name="s", time="ts", delay_us=delay, reader=reader)


def brute_force(times: list[int | None], delay: int) -> list[str]:
    fates, highest = [], None
    for time in times:
        if time is None:
            fates.append("timeless")
            continue
        fates.append("late" if highest is not None and time < highest - delay else "in time")
        highest = time if highest is None else max(highest, time)
    return fates


@given(
    times=st.lists(st.integers(-20, 20) | st.none(), max_size=30),
    delay=st.integers(0, 12),
    cuts=st.lists(st.integers(0, 30), max_size=4),
)
def test_late_rows_are_those_of_brute_force(
    times: list[int | None], delay: int, cuts: list[int]
) -> None:
    rows = [
        {"ts": None if t is None else BASE + timedelta(microseconds=t), "n": i}
        for i, t in enumerate(times)
    ]
    frame = pl.DataFrame(rows, schema=SCHEMA)
    fates, carry = [""] * len(times), Carry()
    ends = [0, *sorted(min(cut, len(times)) for cut in cuts), len(times)]
    for start, end in zip(ends, ends[1:], strict=False):  # noqa: RUF007  # pairs of cuts
        done = admit(source(delay), 0, frame[start:end], carry, ordered=True)
        carry = done.carry
        for fate, part in (
            ("in time", done.rows),
            ("late", done.late),
            ("timeless", done.timeless),
        ):
            for n in part["n"]:
                fates[n] = fate
        assert done.rows[POSITION].to_list() == done.rows["n"].to_list()
        assert done.rows[TIME].to_list() == [times[n] for n in done.rows["n"]]
    assert fates == brute_force(times, delay)
    assert carry.rows == len(times)
    assert carry.seen == max((t for t in times if t is not None), default=Carry().seen)


@given(times=st.lists(st.integers(-20, 20), max_size=20), floor=st.integers(-20, 20))
def test_below_the_floor_every_row_is_late(times: list[int], floor: int) -> None:
    rows = [{"ts": BASE + timedelta(microseconds=t), "n": i} for i, t in enumerate(times)]
    frame = pl.DataFrame(rows, schema=SCHEMA)
    done = admit(source(100), 0, frame, Carry(), floor=floor)
    assert [times[n] for n in done.late["n"]] == [t for t in times if t < floor]
