"""Forms of SQL that say what another form says: windows, joins, fields, tables, quotes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import penstock as ps
from penstock.query.stream import Stream
from penstock.sql.script import load_script
from penstock.testing.compare import difference
from penstock.testing.streams import TestStream

T0 = datetime(2024, 1, 1)
HOUR = timedelta(hours=1)
PLACE = pl.Struct({"city": pl.String, "at": pl.Struct({"lat": pl.Float64})})
CALLS: dict[str, Any] = {
    "src": pl.String,
    "x": pl.Int64,
    "ts": pl.Datetime("us"),
    "place": PLACE,
}
TOWERS: dict[str, Any] = {"src": pl.String, "at": pl.Datetime("us"), "y": pl.Int64, "place": PLACE}
PEOPLE = pl.DataFrame(
    {"id": ["a", "b", None, "d"], "x": [1, 2, 3, 4], "name": ["Ann", "Bob", "Cy", None]},
    schema_overrides={"x": pl.Int32},
)


def place(i: int) -> dict[str, Any]:
    return {"city": "PQR"[i % 3], "at": {"lat": float(i % 4)}}


ROWS = [
    {"src": "abc"[i % 3], "x": i % 5, "ts": T0 + timedelta(seconds=7 * i), "place": place(i)}
    for i in range(30)
]
SITES = [
    {"src": "abd"[i % 3], "at": T0 + timedelta(seconds=11 * i), "y": i % 4, "place": place(i + 1)}
    for i in range(20)
]


def tables() -> dict[str, Stream | pl.DataFrame]:
    calls = ps.from_rows(pl.DataFrame(schema=CALLS), time="ts", name="calls")
    towers = ps.from_rows(pl.DataFrame(schema=TOWERS), time="at", name="towers")
    return {"calls": calls, "towers": towers, "people": PEOPLE}


def plan(text: str) -> str:
    return ps.sql(text, **tables()).write_memory().explain()


def run(text: str) -> list[dict[str, Any]]:
    with TestStream(ps.sql(text, **tables()).write_memory()) as test:
        given: dict[str, list[dict[str, Any]]] = {"calls": ROWS, "towers": SITES}
        test.add({name: given[name] for name in test.sources})
        test.finish()
        test.expect_reference()
        return [dict(row) for row in test.rows()]


@cache
def judge() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.register("calls", pl.DataFrame(ROWS, schema=CALLS).to_arrow())
    connection.register("towers", pl.DataFrame(SITES, schema=TOWERS).to_arrow())
    connection.register("people", PEOPLE.to_arrow())
    return connection


def ask_duckdb(text: str) -> list[dict[str, Any]]:
    found = judge().execute(text)
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def problems(text: str, **more: Any) -> Sequence[str]:
    with pytest.raises(ps.QueryError) as caught:
        ps.sql(text, **tables(), **more)
    return [str(problem) for problem in caught.value.problems]


MINUTE = "GROUP BY src, TUMBLE(ts, '1 minute')"


@pytest.mark.parametrize(
    ("bound", "window"),
    [
        ("TUMBLE_START(ts, '1 minute')", "TUMBLE(ts, INTERVAL '1' MINUTE)"),
        ("TUMBLE_END(ts, INTERVAL '60 seconds')", "TUMBLE(ts, '1 minute')"),
        ("TUMBLE_END(calls.ts, INTERVAL '1' MINUTE)", "TUMBLE(ts, '1m')"),
        ("TUMBLE_START(EVENT_TIME(), '1m')", "TUMBLE(ts, '1m')"),
        ("HOP_START(ts, '60 minutes', '60s')", "HOP(ts, INTERVAL '1 hour', INTERVAL '1' MINUTE)"),
        ("SESSION_END(ts, '90s')", "SESSION(ts, INTERVAL '1 minute 30 seconds')"),
    ],
)
def test_bounds_are_of_a_window_by_its_value(bound: str, window: str) -> None:
    column = "window_start" if "START" in bound else "window_end"
    made = plan(f"SELECT src, {bound} AS w FROM calls GROUP BY src, {window}")
    assert made == plan(f"SELECT src, {column} AS w FROM calls GROUP BY src, {window}")


@pytest.mark.parametrize("bound", ["TUMBLE_START(ts, '2 minutes')", "HOP_START(ts, '1m', '1m')"])
def test_bounds_of_another_window_are_refused(bound: str) -> None:
    (said,) = problems(f"SELECT src, {bound} AS w FROM calls {MINUTE}")
    assert "is not of the window in GROUP BY: TUMBLE(ts, '1 minute')" in said


FLINK = {
    "TABLE(TUMBLE(TABLE calls, DESCRIPTOR(ts), INTERVAL '10' SECOND))": "TUMBLE(ts, '10s')",
    "TUMBLE(TABLE calls, DESCRIPTOR(ts), INTERVAL '1' MINUTE)": "TUMBLE(ts, '1m')",
    "TUMBLE(calls, DESCRIPTOR(ts), '1 minute')": "TUMBLE(ts, '1m')",
    "TABLE(HOP(TABLE calls, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '1' MINUTE))": (
        "HOP(ts, '1m', '10s')"
    ),
    "TABLE(SESSION(TABLE calls PARTITION BY src, DESCRIPTOR(ts), INTERVAL '9' SECOND))": (
        "SESSION(ts, '9s')"
    ),
    """TABLE(HOP(DATA => TABLE calls, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' MINUTE,
                 SLIDE => INTERVAL '10' SECOND))""": "HOP(ts, '1m', '10s')",
}


@pytest.mark.parametrize("form", FLINK)
def test_window_table_functions_of_flink(form: str) -> None:
    columns = "SELECT src, window_start, window_end, sum(x) AS total"
    expected = plan(f"{columns} FROM calls WHERE x > 1 GROUP BY src, {FLINK[form]}")
    bounds = "GROUP BY src, window_start, window_end"
    assert plan(f"{columns} FROM {form} WHERE x > 1 {bounds}") == expected
    named = bounds.replace("window_start", "w.window_start")
    assert plan(f"{columns} FROM {form} AS w WHERE w.x > 1 {named}") == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "SELECT * FROM TABLE(TUMBLE(TABLE calls, DESCRIPTOR(ts), INTERVAL '10' SECOND))",
            "TUMBLE in FROM needs GROUP BY window_start, window_end; or write GROUP BY TUMBLE(ts",
        ),
        (
            """SELECT src FROM TABLE(SESSION(TABLE calls, DESCRIPTOR(ts), INTERVAL '1' SECOND))
               GROUP BY src, window_start, window_end""",
            "SESSION in FROM needs PARTITION BY with the columns of GROUP BY",
        ),
        ("SELECT * FROM TUMBLE(TABLE calls, ts, '1s')", "TUMBLE in FROM takes other arguments: TU"),
        (
            "SELECT * FROM TABLE(CUMULATE(TABLE calls, DESCRIPTOR(ts), '1s', '9s'))",
            "CUMULATE is not supported: use TUMBLE, HOP or SESSION",
        ),
        (
            "SELECT * FROM TABLE(TUMBLE(TABLE calls, DESCRIPTOR(ts), '1s')) a, towers t",
            "a JOIN of a window table function is not supported: join the tables by a time band",
        ),
    ],
)
def test_other_uses_of_window_table_functions(text: str, says: str) -> None:
    (said,) = problems(text)
    assert says in said


NEAR = "t.at BETWEEN c.ts - INTERVAL '20 seconds' AND c.ts + INTERVAL '5 seconds'"
BOTH = f"c.src = t.src AND {NEAR}"


@pytest.mark.parametrize(
    "text",
    [
        f"FROM calls c JOIN towers t ON c.src = t.src WHERE {NEAR}",
        f"FROM calls c JOIN towers t ON {NEAR} WHERE c.src = t.src",
        f"FROM calls c, towers t WHERE {BOTH}",
        f"FROM calls c, towers t WHERE {NEAR} AND (c.src = t.src AND x > 1)",
        f"FROM calls c CROSS JOIN towers t WHERE {BOTH} AND (c.x = t.y OR c.x > 3)",
        f"FROM calls c JOIN towers t USING (src) WHERE {NEAR} AND t.y < 3",
        "FROM calls c, towers t WHERE c.src = t.src AND ts = t.at",
        f"FROM calls c, towers t WHERE {NEAR} AND c.place.city = t.place.city",
        f"""FROM calls c, towers t, calls d
            WHERE {BOTH} AND d.ts > t.at AND d.ts < t.at + INTERVAL '9 seconds' AND d.x = c.x""",
        f"""FROM calls c, towers t LEFT JOIN calls d ON d.src = t.src AND d.ts = t.at
            WHERE {BOTH} AND d.x IS NULL""",
    ],
)
def test_joins_in_where(text: str) -> None:
    query = f"SELECT c.ts, t.at, c.x, t.y, c.src {text}"
    found = run(query)
    assert found
    odd = difference(found, ask_duckdb(query))
    assert not odd, odd


def test_where_and_on_are_the_same_for_an_inner_join() -> None:
    on = plan(f"SELECT c.x FROM calls c JOIN towers t ON {BOTH}")
    assert plan(f"SELECT c.x FROM calls c, towers t WHERE {BOTH}") == on
    assert plan(f"SELECT c.x FROM calls c CROSS JOIN towers t WHERE {BOTH}") == on


def test_using_shows_its_column_once() -> None:
    made = ps.sql(f"SELECT * FROM calls c JOIN towers t USING (src) WHERE {NEAR}", **tables())
    assert list(made.schema) == ["src", "x", "ts", "place", "at", "y", "place_right"]


@pytest.mark.parametrize("side", ["LEFT", "RIGHT", "FULL"])
def test_where_stays_after_an_outer_join(side: str) -> None:
    query = f"SELECT c.x FROM calls c {side} JOIN towers t ON c.src = t.src WHERE {NEAR}"
    assert "a JOIN needs a time band" in problems(query)[0]
    later = f"""SELECT c.x FROM calls c, towers t
                {side} JOIN calls d ON d.src = c.src AND d.ts = c.ts WHERE {BOTH}"""
    if side == "LEFT":
        assert plan(later)
    else:
        assert "a join without a condition" in problems(later)[0]


def zoned(name: str, zone: str | None) -> Stream:
    schema: dict[str, Any] = {"k": pl.Int32 if zone else pl.Int64, "ts": pl.Datetime("us", zone)}
    return ps.from_rows(pl.DataFrame(schema=schema), time="ts", name=name)


def test_bands_of_times_in_two_zones() -> None:
    sources = {"a": zoned("a", "America/New_York"), "b": zoned("b", "Europe/Berlin")}
    text = """SELECT a.ts AS x, b.ts AS y, a.ts = b.ts AS same FROM a JOIN b ON a.k = b.k
              AND b.ts BETWEEN a.ts - INTERVAL '2 hours' AND a.ts + INTERVAL '24 hours'"""
    moments = [datetime(2024, 11, 2, tzinfo=UTC) + timedelta(hours=5 * i) for i in range(12)]
    rows: dict[int | str, Any] = {n: [{"k": 1, "ts": ts} for ts in moments] for n in sources}
    with TestStream(ps.sql(text, **sources).write_memory()) as test:
        test.add(rows)
        test.finish()
        test.expect_reference()
        found = [(r["x"].astimezone(UTC), r["y"].astimezone(UTC), r["same"]) for r in test.rows()]
    hours = {(x, y, x == y) for x in moments for y in moments if -2 <= (y - x) / HOUR <= 24}
    assert len(found) == len(hours)
    assert set(found) == hours
    assert ps.sql("SELECT a.k FROM a, b WHERE a.k = b.k AND a.ts = b.ts", **sources).schema


@pytest.mark.parametrize("join", ["a JOIN b ON", "a, b WHERE"])
def test_bands_that_depend_on_clocks_are_refused(join: str) -> None:
    band = "a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL '1 {}' AND a.ts"
    with pytest.raises(ps.QueryError, match="a day of a zone's clocks has 23 to 25 hours"):
        ps.sql(
            f"SELECT a.k FROM {join} {band.format('day')}",
            a=zoned("a", "Europe/Berlin"),
            b=zoned("b", "Europe/Berlin"),
        )
    with pytest.raises(ps.QueryError, match="'ts' has Europe/Berlin, 'ts' has none; declare both"):
        ps.sql(
            f"SELECT a.k FROM {join} {band.format('hour')}",
            a=zoned("a", "Europe/Berlin"),
            b=zoned("b", None),
        )
    days = f"SELECT a.k FROM {join} {band.format('day')}"
    assert ps.sql(days, a=zoned("a", None), b=zoned("b", None)).schema


def test_keys_that_are_integers_of_two_types() -> None:
    narrow = zoned("a", "UTC")
    wide = ps.from_rows([], schema={"k": pl.Int64, "ts": pl.Datetime("us", "UTC")}, time="ts")
    made = ps.sql("SELECT a.k FROM a JOIN b ON a.k = b.k AND a.ts = b.ts", a=narrow, b=wide)
    assert "join on sql_key_1 = k, ts" in made.write_memory().explain()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ts, place.city, calls.place.at.lat, (place).city AS c FROM calls",
        "SELECT ts, upper(place.city) || '!' AS c FROM calls WHERE place.at.lat > 1",
        "SELECT ts, CASE WHEN place.at.lat > 1 THEN place.city END AS c FROM calls",
        "SELECT ts, x IN (place.at.lat, 3) AS c FROM calls WHERE NOT place.city = 'P'",
        "SELECT c.ts, coalesce((c.place).at.lat, 0) AS c FROM calls c",
        f"SELECT c.ts, t.place.city FROM calls c JOIN towers t ON {BOTH} AND c.place.city = 'Q'",
    ],
)
def test_fields_of_structs(text: str) -> None:
    found = run(text)
    assert found
    odd = difference(found, ask_duckdb(text))
    assert not odd, odd


def test_fields_are_keys_and_values() -> None:
    bucket = "time_bucket(INTERVAL '1 minute', ts)"
    found = run(
        """SELECT place.city, window_start AS w, max(place.at.lat) AS most FROM calls
           GROUP BY place.city, TUMBLE(ts, '1 minute') HAVING min(place.at.lat) < 1"""
    )
    assert found
    expected = ask_duckdb(
        f"""SELECT place.city, {bucket} AS w, max(place.at.lat) AS most FROM calls
            GROUP BY place.city, w HAVING min(place.at.lat) < 1"""
    )
    assert not difference(found, expected)
    in_python = tables()["calls"]
    assert isinstance(in_python, Stream)
    assert in_python.map(c="place.city", l="place.at.lat + 1").schema["l"] == pl.Float64()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT place.ciy FROM calls", "unknown field 'ciy' of 'place'; did you mean 'city'?"),
        ("SELECT place.at.lon FROM calls", "unknown field 'lon' of 'at'; fields: lat"),
        ("SELECT x.y FROM calls", "'x' has no field 'y': it is Int64, not a struct"),
        (
            "SELECT place.city FROM calls AS place",
            "'place' is a table here; the field of a column is (place).city",
        ),
        ("SELECT plce.city FROM calls", "unknown table 'plce'"),
    ],
)
def test_fields_that_there_are_not(text: str, says: str) -> None:
    (said,) = problems(text)
    assert says in said


def test_names_in_backticks() -> None:
    assert plan("SELECT `src`, `x` AS `end` FROM `calls`") == plan(
        'SELECT "src", "x" AS "end" FROM "calls"'
    )
    assert [row["a"] for row in run("SELECT '`x`' AS a FROM calls")][:1] == ["`x`"]
    (said,) = problems("SELECT `src FROM calls")
    assert said == "cannot read the SQL: what begins here has no end; line 1, column 8"


@pytest.mark.parametrize(
    "text",
    [
        "FROM calls c JOIN people p ON c.src = p.id",
        "FROM calls c LEFT JOIN people p ON c.src = p.id",
        "FROM calls c LEFT JOIN people p ON c.src = p.id WHERE p.id IS NULL",
        "FROM calls c LEFT JOIN people p ON p.id = c.src AND p.x > 1",
        "FROM calls c JOIN people p ON p.id = c.src AND p.x > c.x",
        "FROM calls c, people p WHERE p.x = c.x AND name <> 'Bob'",
        "FROM calls c JOIN people p ON lower(c.src) = lower(p.id)",
        "FROM calls c JOIN people p ON c.src = p.id AND c.x = p.x",
        f"FROM calls c JOIN towers t ON {BOTH} LEFT JOIN people p ON t.y = p.x",
    ],
)
def test_joins_with_a_table_that_stands_still(text: str) -> None:
    query = f"SELECT c.ts, c.src, c.x, p.id, p.x AS other, p.name {text}"
    found = run(query)
    assert found
    odd = difference(found, ask_duckdb(query))
    assert not odd, odd


def test_such_a_join_keeps_the_event_time_and_is_an_enrich() -> None:
    made = plan(f"SELECT name, count(*) AS n FROM calls JOIN people ON src = id {MINUTE}, name")
    assert "enrich on src (inner) from 3 rows" in made
    star = ps.sql("SELECT * FROM calls JOIN people USING (x)", **tables())
    assert list(star.schema) == ["src", "x", "ts", "place", "id", "name"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT * FROM people", "'people' is a table, not a stream; FROM a stream JOIN people"),
        ("SELECT * FROM calls RIGHT JOIN people ON src = id", "RIGHT JOIN with the table 'people'"),
        ("SELECT * FROM calls JOIN people p ON true", "needs an equality, such as calls.id = p.id"),
        (
            "SELECT * FROM calls LEFT JOIN people p ON src = id AND calls.x > 2",
            "such a condition in ON of a LEFT JOIN is not supported",
        ),
        ("SELECT * FROM calls c JOIN people p ON c.ts = p.id", "column 'ts' is Datetime"),
        ("SELECT * FROM calls c JOIN people p ON c.src = p.nam", "unknown column 'nam'; did you"),
        ("SELECT * FROM calls c JOIN people USING (src)", "USING: unknown column 'src'; columns:"),
    ],
)
def test_joins_with_such_a_table_that_are_refused(text: str, says: str) -> None:
    assert says in problems(text)[0]


def test_keys_that_are_there_twice_are_refused() -> None:
    twice = pl.DataFrame({"id": ["a", "a"], "n": [1, 2]})
    (said,) = problems("SELECT n FROM calls JOIN twice ON src = id", twice=twice)
    assert "several rows have one key; the first of them: src='a'" in said
    (odd,) = problems("SELECT x FROM calls", q=[1])
    assert odd == "sql: a table is a stream or a Polars DataFrame; 'q' is list"


SCRIPT = """
CREATE TABLE calls (src VARCHAR, x BIGINT, ts TIMESTAMP) WITH (path = 'calls', time = 'ts');
CREATE TABLE people {columns} WITH (format = '{form}', path = '{path}');
CREATE TABLE out WITH (path = 'out');
INSERT INTO out SELECT src, name FROM calls LEFT JOIN people ON src = id;
"""


@pytest.mark.parametrize("form", ["parquet", "csv", "ndjson", "arrow"])
@pytest.mark.parametrize("columns", ["(id VARCHAR, name VARCHAR)", ""])
def test_a_script_joins_a_table_without_a_time(form: str, columns: str, tmp_path: Path) -> None:
    path = tmp_path / f"people.{form}"
    writes: dict[str, Any] = {
        "parquet": PEOPLE.write_parquet,
        "csv": PEOPLE.write_csv,
        "ndjson": PEOPLE.write_ndjson,
        "arrow": PEOPLE.write_ipc,
    }
    writes[form](path)
    made = load_script(SCRIPT.format(columns=columns, form=form, path=path))
    assert "enrich on src (left) from 3 rows" in made.explain()
    assert dict(made.sinks[0].schema) == {"src": pl.String(), "name": pl.String()}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("people.parquet", "nowhere.parquet"), "cannot read the table 'people' at"),
        (("(id VARCHAR)", "(idd VARCHAR)"), "table 'people': unknown column 'idd'; did you mean"),
        (("(id VARCHAR)", "(id BIGINT)"), "cannot read the table 'people' at"),
        (("INSERT INTO out", "INSERT INTO people"), "'people' is read; INSERT needs a table"),
        (("JOIN people", "JOIN out"), "table 'out' is written, so it can't be read; write"),
    ],
)
def test_scripts_with_such_a_table_that_are_refused(
    change: tuple[str, str], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "people.parquet"
    PEOPLE.write_parquet(path)
    text = SCRIPT.format(columns="(id VARCHAR)", form="parquet", path=path)
    text = text.replace("src, name", "src, id").replace(*change)
    if "JOIN out" in text:
        text = text.replace("INSERT", "INSERT INTO out SELECT src FROM calls;\nINSERT")
    with pytest.raises(ps.QueryError) as caught:
        load_script(text)
    assert any(says in str(problem) for problem in caught.value.problems), caught.value.problems


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELEC x", "unknown statement 'SELEC'; did you mean SELECT?; line 1, column 1"),
        ("SELEC x FROM calls", "unknown statement 'SELEC'; did you mean SELECT?"),
        ("\n  slect x", "unknown statement 'slect'; did you mean SELECT?; line 2, column 3"),
        ("SELECT x FROM calls; frobnicate", "unknown statement 'frobnicate'; write SELECT"),
        ("calls", "unknown statement 'calls'"),
    ],
)
def test_statements_that_there_are_not(text: str, says: str) -> None:
    assert says in problems(text)[0]
    with pytest.raises(ps.QueryError, match="unknown statement"):
        load_script(text)
