"""Times in expressions: parts, units, zones and texts, value by value as DuckDB has them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import polars as pl
import pytest

import penstock as ps
from penstock.query.expressions import ExpressionProblem, infer_row_wise, parse
from penstock.testing.streams import TestStream

ZONES = ("America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe")
CHANGES = {
    "America/New_York": (datetime(2024, 3, 10, 7), datetime(2024, 11, 3, 6)),
    "Europe/Berlin": (datetime(2024, 3, 31, 1), datetime(2024, 10, 27, 1)),
    "Asia/Kolkata": (datetime(2024, 2, 29),),
    "Australia/Lord_Howe": (datetime(2024, 4, 6, 15), datetime(2024, 10, 5, 15, 30)),
}
STEPS = [timedelta(minutes=15 * i, microseconds=i * 123_457) for i in range(-12, 13)]
FAR = [timedelta(days=1), timedelta(days=200), timedelta(days=-20_000)]
UNITS = [
    "microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter",
    "year",
]  # fmt: skip
PARTS = [
    "century", "day", "decade", "dow", "doy", "epoch", "hour", "isodow", "isoyear", "millennium",
    "minute", "month", "quarter", "second", "week", "year",
]  # fmt: skip


def instants(zone: str) -> list[datetime]:
    return [change + step for change in CHANGES[zone] for step in (*STEPS, *FAR)]


@cache
def frame(zone: str) -> pl.DataFrame:
    """Return, for each moment around a change of clocks, what a zone's clocks say and what not."""
    at = pl.Series("ts", instants(zone), dtype=pl.Datetime("us"))
    zoned = at.dt.replace_time_zone("UTC").dt.convert_time_zone(zone).alias("z")
    shifted = zoned.dt.offset_by("40m").dt.convert_time_zone("Asia/Kathmandu").alias("other")
    wall = zoned.dt.replace_time_zone(None).alias("wall")
    return pl.DataFrame([at, zoned, wall, shifted, wall.dt.date().alias("d")])


def ours(text: str, rows: pl.DataFrame) -> pl.Series:
    schema = dict(rows.schema)
    value = parse(text, schema)
    infer_row_wise(value, schema)
    return rows.select(value.alias("v"))["v"]


@cache
def judge(zone: str) -> duckdb.DuckDBPyConnection:
    return duckdb.connect().execute(f"SET TimeZone='{zone}'")


def duck(text: str, rows: pl.DataFrame, zone: str) -> list[Any]:
    connection = judge(zone).register("t", rows.with_row_index("__row").to_arrow())
    return plain(connection.sql(f"SELECT ({text}) AS v FROM t ORDER BY __row").pl()["v"])


def plain(values: pl.Series) -> list[Any]:
    """Return values without a zone: instants in UTC; seconds to the microsecond."""
    if isinstance(values.dtype, pl.Datetime) and values.dtype.time_zone:
        values = values.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return (values.round(6) if values.dtype.is_float() else values).to_list()


def twice_shown(rows: pl.DataFrame, zone: str) -> pl.Series:
    """Return which instants are the first of two that clocks show alike."""
    wall = pl.col("wall")
    first = wall.dt.replace_time_zone(zone, ambiguous="earliest", non_existent="null")
    last = wall.dt.replace_time_zone(zone, ambiguous="latest", non_existent="null")
    return rows.select((first != last) & (pl.col("z") == first)).to_series().fill_null(False)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", UNITS)
def test_date_trunc(unit: str, zone: str) -> None:
    rows = frame(zone)
    for column in ("ts", "d"):
        text = f"date_trunc('{unit}', {column})"
        assert plain(ours(text, rows)) == duck(text, rows, zone)
    text = f"date_trunc('{unit}', z)"
    found, known = ours(text, rows), duck(text, rows, zone)
    assert found.dtype == rows.schema["z"]
    assert (found <= rows["z"]).all()
    # DuckDB cuts a time that is shown twice to the second of the two, which may be later than it
    sure = (~twice_shown(rows, zone)).to_list()
    near = [
        ok and not _is_near_the_change(row, zone) for ok, row in zip(sure, rows["ts"], strict=True)
    ]
    assert [v for v, ok in zip(plain(found), near, strict=True) if ok] == [
        v for v, ok in zip(known, near, strict=True) if ok
    ]
    assert sum(near) > len(near) / 2


def _is_near_the_change(moment: datetime, zone: str) -> bool:
    """Return whether an hour of Lord Howe has clocks that go back by half of it."""
    return zone == "Australia/Lord_Howe" and any(
        timedelta(0) <= moment - change < timedelta(minutes=30) for change in CHANGES[zone]
    )


def test_hours_that_are_shown_twice_stay_apart() -> None:
    rows = pl.DataFrame({"z": [datetime(2024, 11, 3, h, 15, tzinfo=UTC) for h in (4, 5, 6, 7)]})
    rows = rows.with_columns(pl.col("z").dt.convert_time_zone("America/New_York"))
    hours = plain(ours("date_trunc('hour', z)", rows))
    assert hours == [datetime(2024, 11, 3, h) for h in (4, 5, 6, 7)]
    assert plain(ours("date_trunc('day', z)", rows)) == [datetime(2024, 11, 3, 4)] * 4


def test_a_day_that_begins_twice_begins_the_first_time() -> None:
    rows = pl.DataFrame({"z": [datetime(2024, 11, 3, 4, 30, tzinfo=UTC)]})
    rows = rows.with_columns(pl.col("z").dt.convert_time_zone("America/Havana"))
    assert plain(ours("date_trunc('day', z)", rows)) == [datetime(2024, 11, 3, 4)]


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("part", PARTS)
def test_extract(part: str, zone: str) -> None:
    rows = frame(zone)
    for column in ("ts", "z", "d"):
        text = f"EXTRACT({part} FROM {column})"
        assert plain(ours(text, rows)) == duck(text, rows, zone)
        assert plain(ours(f"date_part('{part}', {column})", rows)) == duck(text, rows, zone)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("part", ["timezone", "timezone_hour", "timezone_minute"])
def test_the_offset_is_a_part(part: str, zone: str) -> None:
    rows = frame(zone)
    text = f"EXTRACT({part} FROM z)"
    assert ours(text, rows).to_list() == duck(text, rows, zone)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "text",
    [
        "z AT TIME ZONE 'America/New_York'",
        "z AT TIME ZONE 'Asia/Kolkata'",
        "ts AT TIME ZONE 'Europe/Berlin'",
        "wall AT TIME ZONE 'Australia/Lord_Howe'",
        "wall AT TIME ZONE 'America/New_York' AT TIME ZONE 'Europe/Berlin'",
        "z = wall",
        "z >= ts",
        "ts < z",
        "z > other",
        "z = other - INTERVAL '40 minutes'",
        "z >= d",
        "d < z",
        "z BETWEEN ts AND other",
        "z IN (wall, other)",
        "epoch(z - wall)",
        "epoch(z - d)",
        "greatest(z, ts, other)",
        "least(z, wall)",
        "coalesce(z, ts)",
        "coalesce(NULLIF(z, wall), other)",
        "CASE WHEN z > ts THEN z ELSE ts END",
        "CASE WHEN z > ts THEN NULL ELSE other END",
        "z::date",
        "CAST(z AS TIMESTAMP)::time",
        "CAST(z AS TIMESTAMP)",
        "CAST(wall AS TIMESTAMP)",
        "z::varchar",
        "ts::varchar",
        "epoch(z)",
        "epoch_ms(date_trunc('milliseconds', z))",
        "epoch_us(ts)",
        "epoch(other - z)",
        "to_timestamp(epoch(z))",
        "to_timestamp(epoch_ms(ts) // 1000)",
        "epoch_ms(epoch_ms(date_trunc('second', ts)))",
        "make_timestamp(year(ts), month(ts), day(ts), hour(ts), minute(ts), second(ts))",
        "make_date(year(z), month(z), day(z))",
        "z + INTERVAL '3 hours'",
        "z - INTERVAL '90 minutes'",
        "ts + INTERVAL '1 month'",
    ],
)
def test_zones(text: str, zone: str) -> None:
    rows = frame(zone)
    assert plain(ours(text, rows)) == duck(text, rows, zone)


LITERALS = [
    "'{t}'", "TIMESTAMP '{t}'", "TIMESTAMPTZ '{t}'", "'{t}+02'", "'{t}-05:30'", "'{t}Z'",
    "TIMESTAMPTZ '{t}+0200'", "DATE '2024-03-10'", "'2024-11-03'",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("literal", LITERALS)
def test_a_literal_beside_a_time_with_a_zone(literal: str, zone: str) -> None:
    rows = frame(zone)
    for moment in ("2024-11-03 01:30:00", "2024-03-10 02:30:00.25", "2024-10-27 02:00:00"):
        wanted = literal.format(t=moment)
        if "TIMESTAMPTZ" in wanted and "+" not in wanted:
            continue  # in UTC here, in the zone of the session in DuckDB: tested below
        known = wanted if "TIMESTAMP" in wanted or "DATE" in wanted else f"TIMESTAMPTZ {wanted}"
        for sign in ("<", "=", ">="):
            found = ours(f"z {sign} {wanted}", rows).to_list()
            assert found == duck(f"z {sign} {known}", rows, zone), (sign, wanted)


def test_the_time_of_day_is_that_of_the_clocks() -> None:
    rows = frame("Australia/Lord_Howe")
    assert ours("z::time", rows).to_list() == rows["wall"].dt.time().to_list()
    assert ours("epoch_ms(ts)", rows).to_list() == rows["ts"].dt.epoch("ms").to_list()


def test_a_timestamptz_without_an_offset_is_utc() -> None:
    rows = frame("Europe/Berlin")
    assert plain(ours("TIMESTAMPTZ '2024-01-01 10:00'", rows))[:1] == [datetime(2024, 1, 1, 10)]
    assert plain(ours("CAST(ts AS TIMESTAMPTZ)", rows)) == rows["ts"].to_list()
    assert plain(ours("CAST(z AS TIMESTAMPTZ)", rows)) == rows["ts"].to_list()


def test_many_texts_beside_a_time_are_times() -> None:
    rows = frame("Europe/Berlin")
    days = [f"2024-10-{day} 02:30:00" for day in range(20, 30)]
    several = ", ".join(f"'{day}'" for day in days)
    assert ours(f"z IN ({several})", rows).to_list() == duck(
        "z IN (" + ", ".join(f"TIMESTAMPTZ '{day}'" for day in days) + ")", rows, "Europe/Berlin"
    )
    assert ours(f"wall IN ({several})", rows).sum() == 0


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("days", ["1 day", "1 week", "1 month", "1 day 3 hours"])
def test_days_are_those_of_the_clocks(days: str, zone: str) -> None:
    rows = frame(zone)
    wall = pl.Series([datetime(2024, 3, 9, 2, 30), datetime(2024, 11, 2, 12), datetime(2024, 6, 1)])
    rows = pl.DataFrame({"z": wall.dt.replace_time_zone(zone)})
    for sign in ("+", "-"):
        text = f"z {sign} INTERVAL '{days}'"
        assert plain(ours(text, rows)) == duck(text, rows, zone)
    assert ours("z + INTERVAL '1 day'", rows).dtype == rows.schema["z"]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_times_keep_their_unit(unit: Any) -> None:
    rows = frame("America/New_York").with_columns(pl.col("ts", "z").dt.cast_time_unit(unit))
    rows = rows.with_columns(pl.col("ts", "z") + pl.duration(nanoseconds=7 if unit == "ns" else 0))
    for text in (
        "date_trunc('day', z)",
        "date_trunc('hour', z)",
        "z + INTERVAL '1 day'",
        "z - INTERVAL '1 day 2 hours'",
        "coalesce(z, ts)",
        "ts AT TIME ZONE 'Europe/Berlin'",
        "z AT TIME ZONE 'Europe/Berlin'",
    ):
        found = ours(text, rows)
        assert isinstance(found.dtype, pl.Datetime)
        assert found.dtype.time_unit == unit, text
    there = "(ts AT TIME ZONE 'Europe/Berlin') AT TIME ZONE 'Europe/Berlin'"
    assert ours(f"{there} = ts", rows.filter(pl.col("ts").dt.year() != 2024)).all()


def test_parts_of_an_interval() -> None:
    rows = pl.DataFrame(
        {"a": [timedelta(hours=49, minutes=-30, seconds=1.5), timedelta(hours=-1.5)]}
    )
    parts = ("day", "hour", "minute", "second", "milliseconds", "epoch")
    found = [ours(f"EXTRACT({part} FROM a)", rows).to_list() for part in parts]
    assert found == [[2, 0], [0, -1], [30, -30], [1, 0], [1500, 0], [174601.5, -5400.0]]


TEXTS = {
    "2024-01-31 10:05:06+02": datetime(2024, 1, 31, 8, 5, 6),
    " 2024-01-31T10:05Z ": datetime(2024, 1, 31, 10, 5),
    "2024-01-31 10:05:06.5-0330": datetime(2024, 1, 31, 13, 35, 6, 500_000),
    "2024-01-31 10:05": datetime(2024, 1, 31, 10, 5),
    "2024-01-31": datetime(2024, 1, 31),
    "soon": None,
}


def test_texts_with_offsets_are_instants() -> None:
    rows = pl.DataFrame({"s": list(TEXTS)})
    assert plain(ours("TRY_CAST(s AS TIMESTAMPTZ)", rows)) == list(TEXTS.values())
    assert plain(ours("to_timestamp(s)", rows[:5])) == list(TEXTS.values())[:5]
    with pytest.raises(pl.exceptions.PolarsError, match="the text is not a timestamp"):
        ours("to_timestamp(s)", rows)
    for text, wanted in TEXTS.items():
        if wanted:
            assert plain(ours(f"TIMESTAMPTZ '{text}'", rows))[0] == wanted


def test_formats() -> None:
    rows = pl.DataFrame({"s": ["31.01.2024 10:05", None]})
    assert plain(ours("to_timestamp(s, '%d.%m.%Y %H:%M')", rows)) == [
        datetime(2024, 1, 31, 10, 5),
        None,
    ]
    offset = pl.DataFrame({"s": ["31.01.2024 10:05 +0100"]})
    assert plain(ours("to_timestamp(s, '%d.%m.%Y %H:%M %z')", offset)) == [
        datetime(2024, 1, 31, 9, 5)
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("z AT TIME ZONE 'Europe/Berln'", "unknown time zone 'Europe/Berln'; did you mean"),
        ("d AT TIME ZONE 'Europe/Berlin'", "takes a timestamp, not Date"),
        ("ts AT TIME ZONE x", "the name of a zone in quotes"),
        ("date_trunc('fortnight', ts)", "date_trunc knows no part 'fortnight'; parts: micro"),
        ("date_trunc('hour', x)", "takes a date or a timestamp, not Int64"),
        ("EXTRACT(julian FROM ts)", "EXTRACT knows no part 'JULIAN'"),
        ("EXTRACT(year FROM x)", "takes a date, a timestamp or an interval, not Int64"),
        ("EXTRACT(year FROM z - ts)", "no part 'year' of an interval"),
        ("EXTRACT(timezone FROM ts)", "timestamps with a zone; this one has none"),
        ("ts > '2024-01-01 00:00+02'", "it has an offset: write TIMESTAMPTZ"),
        ("ts > 'yesterday'", "'yesterday' is not a timestamp"),
        ("DATE '2024-02-30'", "'2024-02-30' is not a date"),
        ("CAST(x AS TIMESTAMP)", "write to_timestamp(x) for seconds since 1970"),
        ("CAST(ts AS BIGINT)", "write epoch(t) for seconds since 1970"),
        ("to_timestamp(s, 'yyyy-MM-dd')", "a format of strftime in quotes"),
        ("to_timestamp(ts)", "a number of seconds"),
        ("ts + INTERVAL '1 day 01:30:00'", "an interval is written in whole numbers and units"),
        ("z + INTERVAL '1 day 01:30:00'", "an interval is written in whole numbers and units"),
        ("z + INTERVAL '1 day and a half'", "an interval is written in whole numbers and units"),
        ("ts - INTERVAL '1.5 hours'", "an interval is written in whole numbers and units"),
        ("from_unixtime(x)", "write to_timestamp(seconds)"),
    ],
)
def test_mistakes_say_what_to_write(text: str, complaint: str) -> None:
    rows = frame("Europe/Berlin").with_columns(x=pl.lit(1, pl.Int64), s=pl.lit("a"))
    with pytest.raises(ExpressionProblem) as caught:
        ours(text, rows)
    assert complaint in str(caught.value)
    assert "cannot parse" not in str(caught.value)


def test_in_a_query_and_in_the_texts_of_python() -> None:
    zone = ZoneInfo("America/New_York")
    schema = {"ts": pl.Datetime("us", "America/New_York"), "x": pl.Int64}
    source = ps.from_rows([], schema=schema, time="ts", name="t")
    hours = ps.sql(
        """SELECT date_trunc('hour', ts) AS h, ts::date AS day, window_end, count(*) AS n FROM t
           WHERE ts >= TIMESTAMP '2024-11-03' AND ts < '2024-11-03 06:30+00'
           GROUP BY h, day, TUMBLE(ts, '1 day')
           HAVING window_end > TIMESTAMP '2024-01-01'""",
        t=source,
    )
    mapped = source.map(h="date_trunc('hour', ts)", utc="ts AT TIME ZONE 'UTC'")
    sinks = hours.write_memory("a").also(mapped.write_memory("b"))
    start = datetime(2024, 11, 3, 3, 45, tzinfo=UTC)
    with TestStream(sinks) as test:
        test.add([{"ts": start + timedelta(minutes=30 * i), "x": i} for i in range(8)])
        test.finish()
        test.expect_reference()
        counts = {(row["h"].astimezone(UTC).hour, row["day"]): row["n"] for row in test.rows("a")}
        assert counts == {
            (4, date(2024, 11, 3)): 2,
            (5, date(2024, 11, 3)): 2,
            (6, date(2024, 11, 3)): 1,
        }
        first = test.rows("b")[0]
    assert first["h"] == datetime(2024, 11, 2, 23, tzinfo=zone)
    assert first["utc"] == datetime(2024, 11, 3, 3, 45)


@pytest.mark.parametrize(
    "text",
    [
        "make_date(y, 2, 30)",
        "make_date(2023, y, 29)",
        "make_timestamp(y, 2, 30, 0, 0, 0)",
        "make_timestamp(2023, 2, 29, y, 0, 0)",
        "make_timestamp(2024, 2, 29, 0, 0, y)",
    ],
)
def test_a_time_of_parts_is_null_if_one_of_them_is(text: str) -> None:
    rows = pl.DataFrame({"y": [None]}, schema={"y": pl.Int64})
    assert ours(text, rows).to_list() == [None]


FARTHEST = 8_210_000_000_000_000_000
FAILING = [
    ("make_timestamp(2024, 2, 29, 0, 0, f)", "the seconds are not from 0 to 60"),
    ("epoch_us(n)", "the time is too far away"),
    ("epoch_ms(n)", "the time is too far away"),
    ("to_timestamp(n)", "the time is too far away"),
    ("to_timestamp(f)", "the time is too far away"),
]


@pytest.mark.parametrize(("text", "reason"), FAILING)
@pytest.mark.parametrize("sign", [1, -1])
def test_times_that_polars_has_not_are_dead_letters(text: str, reason: str, sign: int) -> None:
    schema = {"n": pl.Int64, "f": pl.Float64, "ts": pl.Datetime("us")}
    source = ps.from_rows([], schema=schema, time="ts").select("n", v=text)
    far = {"n": sign * (FARTHEST + 1), "f": sign * 1e14}
    with TestStream(source.write_memory()) as stream:
        stream.add([{**values, "ts": ps.at("2024-01-01")} for values in (far, {"n": 1, "f": 1.0})])
        stream.finish()
        assert [row["n"] for row in stream.rows()] == [1]
        (dead,) = stream.dead_letters()["reason"].to_list()
    assert reason in dead


def test_a_row_over_which_polars_panics_is_a_dead_letter(capfd: pytest.CaptureFixture[str]) -> None:
    schema = {
        "n": pl.Int64,
        "at": pl.Datetime("us"),
        "d": pl.Duration("us"),
        "ts": pl.Datetime("us"),
    }
    source = ps.from_rows([], schema=schema, time="ts")
    query = source.select("n", v="(at + d) AT TIME ZONE 'Europe/Berlin'")
    rows = [
        {"n": n, "at": datetime(2024, 1, 1), "d": d, "ts": ps.at("2024-01-01")}
        for n, d in enumerate([timedelta(1), timedelta(99_000_000), None])
    ]
    with TestStream(query.write_memory()) as stream:
        stream.add(rows)
        stream.finish()
        assert sorted(row["n"] for row in stream.rows()) == [0, 2]
        assert stream.dead_letters().height == 1
    assert "panicked" in capfd.readouterr().err
