"""Windows with a zone and an offset: what they hold, show, pin and refuse, in Python and in SQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import penstock as ps
from penstock.base.errors import CheckpointError, QueryError
from penstock.query.stream import Stream
from penstock.query.windows import TimeWindow
from penstock.testing import TestStream

BERLIN = "Europe/Berlin"
HOUR = timedelta(hours=1)


def _hours(first: datetime, count: int) -> list[dict[str, Any]]:
    return [{"x": i, "ts": first + i * HOUR} for i in range(count)]


def _counts(
    window: TimeWindow, rows: list[dict[str, Any]], folder: Path
) -> list[tuple[datetime, datetime, int]]:
    stream = ps.from_rows([], schema={"x": pl.Int64, "ts": pl.Datetime("us")}, time="ts")
    query = stream.aggregate(window=window, n="count(*)").write_memory("m", ordered=True)
    with TestStream(query, folder) as run:
        run.add(rows)
        run.finish()
        run.expect_reference()
        return [(r["window_start"], r["window_end"], r["n"]) for r in run.rows("m")]


def test_a_day_of_a_change_has_23_or_25_hours(tmp_path: Path) -> None:
    window = ps.tumbling("1 day", zone=BERLIN)
    spring = _counts(window, _hours(datetime(2024, 3, 29, 23), 72), tmp_path / "spring")
    autumn = _counts(window, _hours(datetime(2024, 10, 25, 22), 73), tmp_path / "autumn")
    assert [n for _, _, n in spring] == [24, 23, 24, 1]
    assert [n for _, _, n in autumn] == [24, 25, 24]
    assert [str(start) for start, _, _ in spring[:2]] == [
        "2024-03-30 00:00:00+01:00",
        "2024-03-31 00:00:00+01:00",
    ]
    assert str(spring[1][1]) == "2024-04-01 00:00:00+02:00"


@pytest.mark.parametrize(
    ("window", "starts"),
    [
        (ps.tumbling("1 day", offset="6 hours"), ["2023-12-31 06:00", "2024-01-01 06:00"]),
        (ps.tumbling("1 day", offset="-18 hours"), ["2023-12-31 06:00", "2024-01-01 06:00"]),
        (ps.tumbling("1 day", offset="10 days 6 hours"), ["2023-12-31 06:00", "2024-01-01 06:00"]),
        (ps.tumbling("6 hours", offset="90 minutes"), ["2023-12-31 19:30", "2024-01-01 01:30"]),
        (ps.tumbling("1 week", offset="4 days"), ["2024-01-01 00:00", None]),
        (ps.tumbling("1 week"), ["2023-12-28 00:00", None]),
        (
            ps.tumbling("1 week", offset="4 days 6 hours", zone="Asia/Tokyo"),
            ["2024-01-01 06:00+09:00", None],
        ),
        (
            ps.tumbling("1 day", offset="6 hours", zone="Asia/Tokyo"),
            ["2024-01-01 06:00+09:00", "2024-01-02 06:00+09:00"],
        ),
    ],
    ids=str,
)
def test_windows_begin_at_the_offset(
    window: TimeWindow, starts: list[str | None], tmp_path: Path
) -> None:
    found = _counts(window, _hours(datetime(2024, 1, 1), 24), tmp_path)
    wanted = [datetime.fromisoformat(start) for start in starts if start]
    assert [start for start, _, _ in found][: len(wanted)] == wanted
    assert sum(n for _, _, n in found) == 24


def test_windows_before_1970_and_at_the_ends_of_time(tmp_path: Path) -> None:
    times = [datetime(1, 2, 1), datetime(1677, 9, 21), datetime(1969, 12, 31, 23, 30)]
    rows = [{"x": 0, "ts": t} for t in [*times, datetime(1970, 1, 1), datetime(9999, 11, 30)]]
    found = _counts(ps.sliding("12 hours", every="4 hours", offset="1 hour"), rows, tmp_path / "a")
    assert len(found) == 12
    assert sum(n for _, _, n in found) == 15
    local = _counts(ps.tumbling("1 day", zone="Asia/Tokyo"), rows, tmp_path / "b")
    assert [n for _, _, n in local] == [1, 1, 2, 1]


def _local_counts(zone: str, rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'")
        frame = pl.DataFrame(rows).with_columns(pl.col("ts").dt.replace_time_zone("UTC"))
        base.register("rows", frame.to_arrow())
        sql = f"select strftime(ts at time zone '{zone}', '%Y-%m-%d') d, count(*) from rows"
        return base.execute(f"{sql} group by 1 order by 1").fetchall()


@pytest.mark.parametrize(
    ("zone", "first"),
    [
        (BERLIN, datetime(2024, 3, 28)),
        ("America/Sao_Paulo", datetime(2018, 11, 2)),
        ("America/Sao_Paulo", datetime(2019, 2, 15)),
        ("Asia/Beirut", datetime(2024, 3, 28)),
        ("Africa/Cairo", datetime(2024, 10, 29)),
        ("Pacific/Apia", datetime(2011, 12, 28)),
    ],
)
def test_local_days_are_the_dates_of_other_databases(
    zone: str, first: datetime, tmp_path: Path
) -> None:
    rows = [{"x": i, "ts": first + timedelta(minutes=20 * i)} for i in range(6 * 72)]
    found = _counts(ps.tumbling("1 day", zone=zone), rows, tmp_path)
    assert [(f"{start:%Y-%m-%d}", n) for start, _, n in found] == _local_counts(zone, rows)
    if zone in (BERLIN, "Africa/Cairo"):  # Polars cannot cut where midnight is skipped
        utc = pl.col("ts").dt.replace_time_zone("UTC")
        frame = pl.DataFrame(rows).with_columns(utc.dt.convert_time_zone(zone))
        days = frame.group_by_dynamic("ts", every="1d").agg(pl.len())
        assert [n for _, _, n in found] == days["len"].to_list()


def test_a_zone_is_that_of_the_bounds_and_of_the_event_time_from_then_on() -> None:
    stream = ps.from_rows([], schema={"ts": pl.Datetime("us", "Asia/Tokyo")}, time="ts")
    made = stream.aggregate(window=ps.tumbling("1 day", zone=BERLIN), n="count(*)")
    assert made.schema["window_start"] == pl.Datetime("us", BERLIN)
    again = made.aggregate(window=ps.tumbling("7 days"), n="sum(n)")
    assert again.schema["window_end"] == pl.Datetime("us", BERLIN)
    top = stream.top(1, "ts", window=ps.tumbling("1 day", zone=BERLIN))
    assert top.schema["window_end"] == pl.Datetime("us", BERLIN)


@pytest.mark.parametrize("window", [ps.session("30 minutes"), ps.count_window(2)], ids=str)
def test_other_windows_on_zoned_times_show_the_zone(window: Any) -> None:
    schema = {"x": pl.Int64, "ts": pl.Datetime("us", BERLIN)}
    stream = ps.from_rows([], schema=schema, time="ts")
    made = stream.aggregate(window=window, n="sum(x)")
    assert made.schema["window_end"] == pl.Datetime("us", BERLIN)
    with TestStream(made.write_memory("m")) as run:
        run.add([{"x": i, "ts": datetime(2024, 10, 27, i, tzinfo=UTC)} for i in range(4)])
        run.finish()
        run.expect_reference()
        assert run.rows("m")


@pytest.mark.parametrize(
    ("window", "sentence"),
    [
        (ps.tumbling("6 hours", zone=BERLIN), "a window with a zone is of whole local days; size="),
        (ps.tumbling("6 hours", zone=BERLIN), "say with offset= where windows begin"),
        (ps.sliding("1 day", every="12 hours", zone=BERLIN), "whole local days; every='12h'"),
        (ps.tumbling("1 day", zone="Berlin"), "unknown time zone; zone='Berlin'"),
    ],
)
def test_other_windows_with_a_zone_are_refused(window: TimeWindow, sentence: str) -> None:
    stream = ps.from_rows([], schema={"ts": pl.Datetime("us")}, time="ts")
    with pytest.raises(QueryError, match=sentence.replace("(", r"\(")):
        stream.aggregate(window=window, n="count(*)").write_memory()


def _days(**how: Any) -> Stream:
    stream = ps.from_rows([], schema={"x": pl.Int64, "ts": pl.Datetime("us")}, time="ts")
    return stream.aggregate(by="x", window=ps.tumbling("1 day", **how), n="count(*)")


def test_state_has_the_bounds_of_local_days(tmp_path: Path) -> None:
    query = _days(zone=BERLIN, offset="6 hours").write_memory("m")
    with TestStream(query, tmp_path) as run:
        run.add([{"x": 1, "ts": datetime(2024, 3, 31, 5)}])
        (found,) = run.state().to_dicts()
    assert str(found["pane_start"]) == "2024-03-31 06:00:00+02:00"


def test_state_shows_panes_in_the_zone_of_the_bounds() -> None:
    stream = ps.from_rows([], schema={"ts": pl.Datetime("us", "Asia/Tokyo")}, time="ts")
    hours = stream.aggregate(window=ps.tumbling("1 hour", offset="15 minutes"), n="count(*)")
    top = stream.top(1, "ts", window=ps.sliding("2 days", every="1 day", zone=BERLIN))
    with TestStream(hours.write_memory("m").also(top.write_memory("t"))) as run:
        run.add([{"ts": datetime(2024, 3, 31, 5, tzinfo=UTC)}])
        assert str(run.state("aggregate-0")["pane_start"][0]) == "2024-03-31 13:15:00+09:00"
        assert str(run.state("top-0")["pane_start"][0]) == "2024-03-31 00:00:00+01:00"


def test_zone_and_offset_are_pinned_in_words(tmp_path: Path) -> None:
    with TestStream(_days(zone=BERLIN).write_memory("m"), tmp_path) as run:
        run.add([{"x": 1, "ts": datetime(2024, 3, 31)}])
    for other in (_days(), _days(zone="UTC"), _days(zone=BERLIN, offset="1 hour")):
        with pytest.raises(CheckpointError, match="window was 'tumbling 1d in Europe/Berlin' and"):
            TestStream(other.write_memory("m"), tmp_path)
    explained = _days(zone=BERLIN, offset="1 hour").write_memory("m").explain()
    assert "over tumbling 1d offset 1h in Europe/Berlin" in explained


@pytest.mark.parametrize(
    ("sql", "window"),
    [
        (f"TUMBLE(ts, '1 day', '{BERLIN}')", "tumbling 1d in Europe/Berlin"),
        ("TUMBLE(ts, '1 day', INTERVAL '6 hours')", "tumbling 1d offset 6h"),
        (f"TUMBLE(ts, '1 day', '{BERLIN}', '6 hours')", "tumbling 1d offset 6h in Europe/Berlin"),
        (f"HOP(ts, '7 days', '1 day', '{BERLIN}')", "sliding 7d every 1d in Europe/Berlin"),
        ("HOP(ts, '1 hour', '10 minutes', '-1 minute')", "sliding 1h every 10m offset 9m"),
    ],
)
def test_sql_says_zone_and_offset(sql: str, window: str) -> None:
    stream = ps.from_rows([], schema={"ts": pl.Datetime("us")}, time="ts")
    found = ps.sql(f"SELECT window_start, count(*) AS n FROM s GROUP BY {sql}", s=stream)
    assert f"over {window}" in found.write_memory().explain()


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("TUMBLE(ts, '1 day', 'Berlin')", "unknown time zone; zone='Berlin'"),
        ("TUMBLE(ts, '1 hour', 'Europe/Berlin')", "whole local days"),
        ("TUMBLE(ts, '1 day', 'UTC', 'UTC')", "a zone and an offset once"),
        ("TUMBLE(ts, '1 day', 'UTC', '1h', '1h')", r"TUMBLE\(time, size\[, zone\]\[, offset\]\)"),
        ("SESSION(ts, '1 day', 'UTC')", "SESSION takes other arguments"),
    ],
)
def test_sql_refuses_other_zones_and_offsets(sql: str, sentence: str) -> None:
    stream = ps.from_rows([], schema={"ts": pl.Datetime("us")}, time="ts")
    with pytest.raises(QueryError, match=sentence):
        ps.sql(f"SELECT count(*) AS n FROM s GROUP BY {sql}", s=stream)
