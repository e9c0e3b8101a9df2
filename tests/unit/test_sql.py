"""SQL becomes the operators that a user could have written, and is refused where it can't."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.cli.app import app
from penstock.query.stream import Stream
from penstock.sql.script import load_script
from penstock.testing.compare import difference
from penstock.testing.streams import TestStream

ROOT = Path(__file__).parents[2]
CALLS: dict[str, Any] = {
    "src": pl.String,
    "dst": pl.String,
    "start": pl.Datetime("us"),
    "end": pl.Datetime("us"),
    "ts": pl.Datetime("us"),
    "x": pl.Int64,
    "y": pl.Float64,
    "ok": pl.Boolean,
}
TOWERS: dict[str, Any] = {
    "tower": pl.String,
    "src": pl.String,
    "at": pl.Datetime("us"),
    "x": pl.Int64,
}
T0 = datetime(2024, 1, 1)
MINUTE = ps.tumbling("1 minute")


def calls(**options: Any) -> Stream:
    return ps.from_rows(pl.DataFrame(schema=CALLS), time="ts", name="calls", **options)


def towers() -> Stream:
    return ps.from_rows(pl.DataFrame(schema=TOWERS), time="at", name="towers")


def tables() -> dict[str, Stream]:
    return {"calls": calls(), "towers": towers()}


def explained(stream: Stream) -> str:
    return stream.write_memory().explain()


HOUR = ps.sliding("1 hour", every="1 minute")
sql = ps.sql
PAIRS: dict[str, Any] = {
    "SELECT * FROM calls": lambda c: c,
    "SELECT calls.* FROM calls WHERE x > 1 AND src LIKE 'a%'": lambda c: c.filter(
        "x > 1 AND src LIKE 'a%'"
    ),
    "SELECT src, x AS n FROM calls": lambda c: c.select("src", n=pl.col("x")),
    'SELECT *, "end" - start AS duration FROM calls c': lambda c: c.map(duration='"end" - start'),
    "SELECT CASE WHEN x > 3 THEN 'big' ELSE 'small' END AS size FROM calls": lambda c: c.select(
        size="CASE WHEN x > 3 THEN 'big' ELSE 'small' END"
    ),
    """SELECT src, window_start, window_end, count(*) AS calls, avg(y) AS mean FROM calls
       GROUP BY src, HOP(ts, '1 hour', '1 minute') HAVING avg(y) > 10 AND calls > 2""": lambda c: (
        c.aggregate(by="src", window=HOUR, calls="count(*)", mean="avg(y)").filter(
            "mean > 10 AND calls > 2"
        )
    ),
    """SELECT lower(src) AS who, window_start, window_end, sum(x) AS total FROM calls
       GROUP BY who, TUMBLE(ts, INTERVAL '1' MINUTE)""": lambda c: c.map(
        who="lower(src)"
    ).aggregate(by="who", window=MINUTE, total="sum(x)"),
    """SELECT src, TUMBLE_END(ts, '60 seconds') AS till, max(x) - min(x) AS span FROM calls
       GROUP BY 1, TUMBLE(ts, '60 seconds')""": lambda c: c.aggregate(
        by="src", window=MINUTE, span="max(x) - min(x)"
    ).select("src", till=pl.col("window_end"), span=pl.col("span")),
    "SELECT dst FROM calls GROUP BY dst, TUMBLE(ts, '1 minute') HAVING sum(x) > 4": lambda c: (
        c.aggregate(by="dst", window=MINUTE, sql_value_1="sum(x)")
        .filter("sql_value_1 > 4")
        .select("dst")
    ),
    """SELECT src, x * count(*) AS by FROM calls
       GROUP BY src, x, TUMBLE(ts, '1 minute')""": lambda c: c.aggregate(
        by=["src", "x"], window=MINUTE, sql_value_1="count(*)"
    ).select("src", by="x * sql_value_1"),
    """WITH minutes AS (SELECT src, window_end, count(*) AS n FROM calls
                        GROUP BY src, TUMBLE(ts, '1 minute'))
       SELECT window_start, window_end, max(n) AS most FROM minutes
       GROUP BY TUMBLE(window_end, '1 hour')""": lambda c: (
        c.aggregate(by="src", window=MINUTE, n="count(*)")
        .select("src", "window_end", "n")
        .aggregate(window=ps.tumbling("1 hour"), most="max(n)")
    ),
    "SELECT q.n FROM (SELECT x AS n FROM calls WHERE ok) AS q WHERE n > 1": lambda c: (
        c.filter("ok").select(n=pl.col("x")).filter("n > 1")
    ),
    "SELECT src, x FROM calls UNION ALL SELECT src, x FROM calls WHERE ok": lambda c: c.select(
        "src", "x"
    ).union(c.filter("ok").select("src", "x")),
    "SELECT src, 'a' AS kind FROM calls UNION ALL SELECT src, 'b' FROM calls WHERE ok": lambda c: (
        c.select("src", kind="'a'").union(c.filter("ok").select("src", kind="'b'"))
    ),
}


@pytest.mark.parametrize("text", PAIRS)
def test_the_same_plan_as_in_python(text: str) -> None:
    stream = calls()
    assert explained(sql(text, calls=stream)) == explained(PAIRS[text](stream))


ROWS = [
    {
        "src": src,
        "dst": f"D{i % 3}",
        "start": T0 + timedelta(seconds=7 * i),
        "end": T0 + timedelta(seconds=7 * i, minutes=i % 5),
        "ts": T0 + timedelta(seconds=11 * i, microseconds=i % 2),
        "x": None if i % 7 == 3 else i % 9,
        "y": None if i % 11 == 5 else i / 4,
        "ok": [True, False, None][i % 3],
    }
    for i, src in enumerate(["Ann", "bob", "Ann", None, "cy_d"] * 12)
]
SITES = [
    {
        "tower": f"T{i % 2}",
        "src": ["Ann", "bob", None, "cy_d"][i % 4],
        "at": T0 + timedelta(seconds=13 * i),
        "x": i % 5,
    }
    for i in range(40)
]


def run(stream: Stream) -> list[dict[str, Any]]:
    with TestStream(stream.write_memory()) as test:
        given: dict[str, list[dict[str, Any]]] = {"calls": ROWS, "towers": SITES}
        for part in (slice(0, 25), slice(25, None)):
            rows: dict[int | str, Any] = {name: given[name][part] for name in test.sources}
            test.add(rows)
        test.finish()
        test.expect_reference()
        return [dict(row) for row in test.rows()]


@cache
def judge() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.register("calls", pl.DataFrame(ROWS, schema=CALLS).to_arrow())
    connection.register("towers", pl.DataFrame(SITES, schema=TOWERS).to_arrow())
    return connection


def ask_duckdb(text: str) -> list[dict[str, Any]]:
    found = judge().execute(text)
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


SCALARS = """
CASE WHEN x > 3 THEN 'big' WHEN x = 1 THEN 'one' ELSE 'none' END
CASE x WHEN 1 THEN 'a' WHEN 2 THEN 'b' END
"end" - start > INTERVAL '2 minutes'
"end" - start > INTERVAL '2' MINUTE
ts + INTERVAL '1 hour 30 minutes'
ts - INTERVAL '250 ms'
ts > TIMESTAMP '2024-01-01 00:03:00'
CAST(ts AS DATE) = DATE '2024-01-01'
CAST(x AS DOUBLE)
CAST(x AS VARCHAR)
TRY_CAST(src AS INT)
x::varchar || 'q'
EXTRACT(MINUTE FROM ts)
DATE_PART('second', ts)
YEAR(ts)
STRFTIME(ts, '%Y-%m')
x IN (1, 7)
x NOT IN (1, 7)
x BETWEEN 2 AND 4
x NOT BETWEEN 2 AND 4
src LIKE 'A%'
src NOT LIKE '%y!_d' ESCAPE '!'
src ILIKE 'a%'
src IS NULL
src IS NOT NULL
ok IS TRUE
ok IS NOT TRUE
ok IS FALSE
ok IS NOT FALSE
NOT ok IS FALSE AND x > 3
(ok IS FALSE) = (x > 3)
((calls.ok IS FALSE) IS NOT TRUE) IS FALSE
src IS DISTINCT FROM 'bob' AND ok
NOT src IS NOT DISTINCT FROM dst OR ok
NOT ok
x IS DISTINCT FROM 1
COALESCE(x, 0)
NULLIF(x, 1)
GREATEST(x, 3)
LEAST(x, 3)
UPPER(src)
LOWER(src)
LENGTH(src)
TRIM(src)
TRIM(BOTH 'A' FROM src)
REPLACE(src, 'n', 'q')
STARTS_WITH(src, 'A')
CONCAT(dst, '-', x)
src || '-' || dst
x + 1 - 2 * 3
- (x + 2) * 3
x / 2
x % 4
MOD(x, 4)
ABS(y - 5)
CEIL(y)
FLOOR(y)
SQRT(x)
POWER(y, 2)
LN(x + 1)
LOG10(x + 1)
LOG2(x + 1)
x = 1 OR y > 2 AND ok
(x = 1 OR y > 2) AND ok
x <> 1
'it''s'
1.5
NULL
""".strip().splitlines()


@pytest.mark.parametrize("text", SCALARS)
def test_scalars_as_in_duckdb(text: str) -> None:
    query = f"SELECT ts, {text} AS v FROM calls"
    odd = difference(run(sql(query, calls=calls())), ask_duckdb(query))
    assert not odd, odd


AGGREGATES = """
count(*)
count(x)
count(1)
COUNT(DISTINCT dst)
sum(x)
sum(y) / count(*)
avg(x)
min(src)
max(ts)
max(x) - min(x)
median(x)
stddev(y)
variance(y)
quantile_cont(y, 0.25)
count(*) FILTER (WHERE ok)
sum(x) FILTER (WHERE src = 'Ann')
sum(CASE WHEN ok THEN 1 ELSE 0 END)
coalesce(max(x), -1)
CASE WHEN count(*) > 2 THEN 'many' ELSE 'few' END
count(*) > 2 AND max(x) < 8
""".strip().splitlines()


@pytest.mark.parametrize("text", AGGREGATES)
def test_aggregates_as_in_duckdb(text: str) -> None:
    made = (
        f"SELECT dst, window_start AS w, {text} AS v FROM calls GROUP BY dst, TUMBLE(ts, '2 min')"
    )
    bucket = "time_bucket(INTERVAL '2 minutes', ts)"
    asked = f"SELECT dst, {bucket} AS w, {text} AS v FROM calls GROUP BY dst, {bucket}"
    odd = difference(run(sql(made, calls=calls())), ask_duckdb(asked))
    assert not odd, odd


BUCKET = "time_bucket(INTERVAL '1 minute', ts)"
HOPS = """(SELECT c.*, time_bucket(INTERVAL '1 minute', ts) - k * INTERVAL '1 minute' AS w
           FROM calls c, range(3) r(k))"""
SESSIONS = """(SELECT *, sum(new) OVER (PARTITION BY dst ORDER BY ts) AS s FROM
    (SELECT *, CASE WHEN ts - lag(ts) OVER (PARTITION BY dst ORDER BY ts) < INTERVAL '23 seconds'
               THEN 0 ELSE 1 END AS new FROM calls WHERE x > 0))"""
QUERIES: dict[str, tuple[str, str]] = {
    "where": (
        "SELECT src, x FROM calls WHERE ok AND NOT x > 4",
        "SELECT src, x FROM calls WHERE ok AND NOT x > 4",
    ),
    "group by an expression and its alias, having on what is not selected": (
        """SELECT upper(src) AS who, x % 2 AS odd, sum(y) AS total FROM calls WHERE x IS NOT NULL
           GROUP BY who, x % 2, TUMBLE(ts, '1 minute') HAVING count(*) > 1 OR total > 3""",
        f"""SELECT upper(src) AS who, x % 2 AS odd, sum(y) AS total FROM calls
            WHERE x IS NOT NULL GROUP BY upper(src), x % 2, {BUCKET}
            HAVING count(*) > 1 OR sum(y) > 3""",
    ),
    "a key beside an aggregate, and a name that clashes": (
        """SELECT dst || '!' AS a, x + count(*) AS b, max(src) AS src, TUMBLE_START() AS window
           FROM calls GROUP BY dst, x, TUMBLE(ts, '1 minute') HAVING b * 2 > 5""",
        f"""SELECT dst || '!' AS a, x + count(*) AS b, max(src) AS src, {BUCKET} AS "window"
            FROM calls GROUP BY dst, x, {BUCKET} HAVING (x + count(*)) * 2 > 5""",
    ),
    "hop": (
        """SELECT dst, window_start AS w, window_end AS e, count(*) AS n FROM calls
           GROUP BY dst, HOP(ts, INTERVAL '3' MINUTE, '1 minute')""",
        f"""SELECT dst, w, w + INTERVAL '3 minutes' AS e, count(*) AS n
            FROM {HOPS} GROUP BY dst, w""",
    ),
    "session": (
        """SELECT dst, SESSION_START(ts, '23 seconds') AS a, window_end AS b, sum(x) AS n
           FROM calls WHERE x > 0 GROUP BY dst, SESSION(ts, '23 seconds')""",
        f"""SELECT dst, min(ts) AS a, max(ts) + INTERVAL '23 seconds' AS b, sum(x) AS n
            FROM {SESSIONS} GROUP BY dst, s""",
    ),
    "count window": (
        """SELECT dst, window_start AS a, window_end AS b, sum(x) AS n FROM calls
           GROUP BY dst, COUNT_WINDOW(4)""",
        """SELECT dst, min(ts) AS a, max(ts) AS b, sum(x) AS n FROM
             (SELECT *, (row_number() OVER (PARTITION BY dst ORDER BY ts) - 1) // 4 AS w FROM calls)
           GROUP BY dst, w HAVING count(*) = 4""",
    ),
    "with, used twice, and union all by position": (
        """WITH named AS (SELECT src AS who, x FROM calls WHERE src IS NOT NULL),
                large AS (SELECT who, x FROM named WHERE x > 5)
           SELECT who, x + 10 AS v FROM named UNION ALL SELECT who, x FROM large
           UNION ALL (SELECT dst, x FROM calls WHERE ok)""",
        """WITH named AS (SELECT src AS who, x FROM calls WHERE src IS NOT NULL),
                large AS (SELECT who, x FROM named WHERE x > 5)
           SELECT who, x + 10 AS v FROM named UNION ALL SELECT who, x FROM large
           UNION ALL (SELECT dst, x FROM calls WHERE ok)""",
    ),
    "an aggregate of an aggregate in a subquery": (
        """SELECT window_start AS w, max(n) AS most FROM
             (SELECT dst, window_end AS till, count(*) AS n FROM calls
              GROUP BY dst, TUMBLE(ts, '1 minute')) AS m
           GROUP BY TUMBLE(till, '5 minutes')""",
        f"""SELECT time_bucket(INTERVAL '5 minutes', till) AS w, max(n) AS most FROM
              (SELECT dst, {BUCKET} + INTERVAL '1 minute' AS till, count(*) AS n FROM calls
               GROUP BY dst, {BUCKET}) GROUP BY w""",
    ),
}
"""Each with what DuckDB is asked in its place."""


@pytest.mark.parametrize("name", QUERIES)
def test_queries_as_in_duckdb(name: str) -> None:
    made, asked = QUERIES[name]
    found, expected = run(sql(made, calls=calls())), ask_duckdb(asked)
    assert found
    odd = difference(found, expected)
    assert not odd, odd


REFUSED = [
    ("SELECT src FROM calls\nLIMIT 5", "LIMIT is not supported: it goes with", 2, 1),
    ("SELECT src\nFROM calls\n  ORDER BY src", "ORDER BY is not supported: a stream has no", 3, 3),
    ("SELECT src FROM calls OFFSET 3", "OFFSET is not supported", 1, 23),
    ("SELECT  DISTINCT src FROM calls", "DISTINCT is not supported: use Stream.dedup", 1, 9),
    ("SELECT src FROM calls UNION SELECT dst FROM calls", "UNION is not supported: write", 1, 23),
    ("SELECT 1 AS a FROM calls EXCEPT SELECT 2 AS a FROM calls", "EXCEPT is not supp", 1, 26),
    ("SELECT sum(x) OVER (PARTITION BY src) AS s FROM calls", "OVER is not supported", 1, 15),
    ("SELECT src FROM calls QUALIFY x > 1", "QUALIFY is not supported", 1, 23),
    ("SELECT src FROM calls WINDOW w AS (PARTITION BY src)", "WINDOW is not supported", 1, 30),
    ("SELECT src FROM calls FOR UPDATE", "FOR is not supported", 1, 23),
    ("SELECT src FROM calls TABLESAMPLE (10)", "TABLESAMPLE is not supported", 1, 23),
    ("SELECT (SELECT 1) AS a FROM calls", "a subquery in an expression is not supp", 1, 9),
    ("SELECT x FROM calls WHERE x IN (SELECT x FROM calls)", "a subquery in an expr", 1, 33),
    ("SELECT x FROM calls WHERE EXISTS (SELECT x FROM calls)", "a subquery in an", 1, 27),
    ("SELECT now() AS t FROM calls", "NOW is not supported: a continuous query gives", 1, 8),
    ("SELECT src, CURRENT_TIMESTAMP AS t FROM calls", "CURRENT_TIMESTAMP is not sup", 1, 13),
    ("SELECT $1 AS a FROM calls", "a parameter is not supported", 1, 9),
    ("SELECT 1 AS a", "SELECT needs a FROM", 1, 1),
    ("SELECT * EXCLUDE (x) FROM calls", "* EXCEPT is not supported", 1, 8),
    ("SELECT * FROM db.calls", "a table with a schema is not supported", 1, 15),
    ("SELECT * FROM calls AS c(a)", "a list of columns in an alias is not supported", 1, 24),
    ("SELECT * FROM unnest(x)", "UNNEST in FROM is not supported", 1, 15),
    ("SELECT * FROM tumble(calls) t", "TUMBLE in FROM takes other arguments: TUMBLE(TABLE", 1, 15),
    ("SELECT * FROM frob(calls) t", "a table function is not supported", 1, 15),
    ("VALUES (1)", "VALUES is not supported: write SELECT", 1, 1),
    ("WITH RECURSIVE a AS (SELECT x FROM calls) SELECT x FROM a", "WITH RECURSIVE is not", 1, 1),
    ("WITH a(b) AS (SELECT x FROM calls) SELECT b FROM a", "a list of columns in WITH", 1, 6),
    ("SELECT * FROM cals", "unknown table 'cals'; did you mean 'calls'?", 1, 15),
    ("SELECT c.x FROM calls AS k", "unknown table 'c'; tables: k", 1, 8),
    ("SELECT k.* , c.* FROM calls AS k", "unknown table 'c'; tables: k", 1, 14),
    ("SELECT scr FROM calls", "unknown column 'scr'; did you mean 'src'?", 1, 8),
    ("SELECT src,\n  k.dts FROM calls k", "unknown column 'dts'; did you mean", 2, 3),
    ("SELECT a.b.c.src FROM calls", "a name of more than two parts is not supported", 1, 8),
    ("SELECT x + 1 FROM calls", "an expression needs a name; write AS", 1, 8),
    ("SELECT x, y AS x FROM calls", "two columns are called 'x'", 1, 11),
    ("SELECT x AS __x FROM calls", "a column cannot be called '__x'", 1, 8),
    ("SELECT x AS self FROM calls", "a column cannot be called 'self'", 1, 8),
    ("SELECT lenght(src) AS a FROM calls", "unknown function 'lenght'; did you mean 'le", 1, 8),
    ("SELECT nvl(x, 1) AS a FROM calls", "unknown function 'nvl'; write coalesce(x, y)", 1, 8),
    ("SELECT x AS a FROM calls WHERE round(y, 1, 2) > 1", "round takes other arguments: ro", 1, 32),
    ("SELECT greatest() AS a FROM calls", "greatest takes other arguments: greatest(x, ", 1, 8),
    ("SELECT row_number() AS a FROM calls", "row_number needs OVER, which is not supp", 1, 8),
    (
        "SELECT src, frob_by(x, y) AS a FROM calls GROUP BY src, TUMBLE(ts, '1s')",
        "unknown function 'frob_by'", 1, 13,
    ),
    ("SELECT frob(x) AS a FROM calls", "unknown function 'frob'; docs/sql.md lists", 1, 8),
    ("SELECT x + src AS a FROM calls", "cannot compute with Int64 and String", 1, 8),
    ("SELECT x FROM calls WHERE x + 1", "WHERE must be true or false; it is Int64", 1, 27),
    ("SELECT x FROM calls WHERE sum(x) > 1", "an aggregate is not allowed in WHERE", 1, 21),
    ("SELECT count(*) FROM calls", "an aggregate over a stream has no end; GROUP BY needs a", 1, 8),
    ("SELECT x FROM calls HAVING x > 1", "HAVING is for groups; WHERE is for rows; GROUP", 1, 21),
    ("SELECT src FROM calls GROUP BY src", "GROUP BY needs a window: TUMBLE(time, size)", 1, 23),
    ("SELECT x FROM calls GROUP BY ALL", "GROUP BY ALL is not supported", 1, 21),
    ("SELECT x FROM calls GROUP BY ROLLUP (x), TUMBLE(ts, '1s')", "ROLLUP is not supp", 1, 30),
    (
        "SELECT src FROM calls GROUP BY src, TUMBLE(start, '1 minute')",
        "a window is over the event time, which is ts or EVENT_TIME(); found start", 1, 44,
    ),
    (
        "SELECT src FROM calls GROUP BY src, TUMBLE(ts, '1s'), TUMBLE(ts, '2s')",
        "GROUP BY has two windows", 1, 55,
    ),
    ("SELECT x FROM calls GROUP BY x, TUMBLE(ts)", "TUMBLE takes other arguments", 1, 33),
    ("SELECT x FROM calls GROUP BY x, TUMBLE(ts, '1 month')", "unknown unit 'month'", 1, 44),
    ("SELECT x FROM calls GROUP BY x, TUMBLE(ts, x)", "not a duration: x; write it like", 1, 44),
    (
        "SELECT x FROM calls GROUP BY x, HOP(ts, '1 minute', '1 hour')",
        "HOP: window advance is larger than its size", 1, 33,
    ),
    ("SELECT x FROM calls GROUP BY x, COUNT_WINDOW('a')", "COUNT_WINDOW takes whole", 1, 33),
    ("SELECT x FROM calls GROUP BY x, COUNT_WINDOW(2, 3)", "a count window has at least", 1, 33),
    ("SELECT x FROM calls GROUP BY 3, TUMBLE(ts, '1s')", "GROUP BY 3: no such column", 1, 30),
    (
        "SELECT src, dst FROM calls GROUP BY src, TUMBLE(ts, '1s')",
        "column 'dst' is neither in GROUP BY nor inside an aggregate", 1, 13,
    ),
    ("SELECT * FROM calls GROUP BY x, TUMBLE(ts, '1s')", "* with GROUP BY is not supp", 1, 8),
    (
        "SELECT sum(count(*)) AS a FROM calls GROUP BY TUMBLE(ts, '1s')",
        "an aggregate of an aggregate is not supported", 1, 8,
    ),
    ("SELECT TUMBLE(ts, '1s') AS w FROM calls GROUP BY TUMBLE(ts, '1s')", "has two ends", 1, 8),
    (
        "SELECT HOP_END(ts, '1s') AS w FROM calls GROUP BY TUMBLE(ts, '1s')",
        "HOP_END is not of the window in GROUP BY: TUMBLE(ts, '1s')", 1, 8,
    ),
    ("SELECT x FROM calls GROUP BY sum(x), TUMBLE(ts, '1s')", "an aggregate in GROUP BY", 1, 30),
    (
        "SELECT x FROM calls GROUP BY x, TUMBLE(ts, '1s') HAVING sum(x)",
        "HAVING must be true or false; it is Int64", 1, 57,
    ),
    (
        "SELECT src, x FROM calls\nUNION ALL\nSELECT src FROM calls",
        "UNION ALL of 2 and 1 columns", 3, 1,
    ),
    ("SELECT src FROM calls UNION ALL SELECT x FROM calls", "has type Int64 for 'src'", 1, 33),
    ("SELECT FROM", "cannot read the SQL", 1, 8),
    ("SELECT trim(src AS a FROM calls", "cannot read the SQL: '(' has no partner", 1, 12),
    ("SELECT 'a', \"b\",\n 'it''s FROM calls", "what begins here has no end", 2, 2),
    ("SELECT (x FROM calls", "cannot read the SQL at 'FROM': a ')' is missing", 1, 11),
    ("SELECT x FROM calls, towers", "a join without a condition is not supported", 1, 22),
    ("SELECT x FROM calls CROSS JOIN towers", "CROSS JOIN is not supported", 1, 27),
    ("SELECT 1 AS a FROM calls NATURAL JOIN towers", "NATURAL JOIN is not supported", 1, 34),
    ("SELECT 1 AS a FROM calls JOIN towers USING (src)", "USING has no place for a time", 1, 45),
    ("SELECT 1 AS a FROM calls c JOIN towers c ON true", "two tables are called 'c'", 1, 33),
    (
        "SELECT 1 AS a FROM calls c JOIN towers t ON c.src = t.src",
        "a JOIN needs a time band, such as", 1, 28,
    ),
    (
        "SELECT 1 AS a FROM calls c JOIN towers t ON c.src = t.src AND c.ts > t.at",
        "this one has no end on one side; event times: c.ts, t.at", 1, 28,
    ),
    (
        "SELECT 1 AS a FROM calls c JOIN towers t ON c.ts > t.at AND c.ts < t.at",
        "the time band of the JOIN is empty", 1, 28,
    ),
    (
        "SELECT 1 AS a FROM calls c JOIN towers t ON src = tower AND ts = at",
        "column 'src' is ambiguous; write c.src or t.src", 1, 45,
    ),
    (
        "SELECT 1 AS a FROM calls c JOIN towers t ON c.ts = t.at AND sum(c.x) > 1",
        "an aggregate in ON is not supported", 1, 61,
    ),
    (
        "SELECT 1 AS a FROM calls c LEFT JOIN towers t ON abs(c.ts - t.at) < INTERVAL '1s'",
        "LEFT JOIN without an equality is not supported", 1, 33,
    ),
    (
        "SELECT src FROM calls GROUP BY src, TUMBLE(ts, '1s') ORDER BY src, count(*) LIMIT 2",
        "ORDER BY with several expressions is not supported", 1, 68,
    ),
    (
        "SELECT src FROM calls GROUP BY src, SESSION(ts, '1s') ORDER BY count(*) LIMIT 2",
        "ORDER BY with LIMIT over such a window is not supported", 1, 55,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says", "line", "column"), REFUSED, ids=[r[0] for r in REFUSED])
def test_refused_by_name_with_line_and_column(text: str, says: str, line: int, column: int) -> None:
    with pytest.raises(ps.QueryError) as caught:
        sql(text, **tables())
    problem = next((p for p in caught.value.problems if says in p), None)
    assert problem is not None, caught.value.problems
    assert problem.endswith(f"; line {line}, column {column}")


def test_all_mistakes_at_once_in_the_order_of_the_text() -> None:
    text = """
        WITH a AS (SELECT nope FROM calls), b AS (SELECT src, x FROM calls WHERE huh > 1)
        SELECT z FROM b
        UNION ALL SELECT src FROM a LIMIT 3"""
    with pytest.raises(ps.QueryError) as caught:
        sql(text, calls=calls())
    said = [problem.split(";")[0] for problem in caught.value.problems]
    assert said == [
        "unknown column 'nope'",
        "unknown column 'huh'",
        "unknown column 'z'",
        "LIMIT is not supported: it goes with ORDER BY, over GROUP BY with TUMBLE or HOP, "
        "in the outermost SELECT",
    ]


def test_mistakes_of_the_streams_come_first() -> None:
    with pytest.raises(ps.QueryError, match="map z: unknown column 'q'"):
        sql("SELECT * FROM calls", calls=calls().map(z="q"))
    with pytest.raises(ps.QueryError, match="sql takes one SELECT; found 2 statements"):
        sql("SELECT * FROM calls; SELECT * FROM calls", calls=calls())


def test_the_event_time_is_followed() -> None:
    window = "GROUP BY TUMBLE({}, '1 minute')"
    for stream, name in (
        (calls(), "ts"),
        (calls().select("x", at="ts"), "at"),
        (calls().map(again="ts"), "again"),
        (calls().filter("x > 1").map(z="x"), "ts"),
        (calls().union(calls().map(x="x + 1")), "ts"),
        (calls().aggregate(window=MINUTE, x="sum(x)"), "window_end"),
        (calls().aggregate(window=MINUTE, x="sum(x)").top(3, "x"), "window_end"),
        (calls().select("x").top(3, "x", window=MINUTE), "window_end"),
        (calls().dedup(by="src"), "ts"),
        (calls().enrich(pl.DataFrame({"src": ["a"], "ts": [1]}), on="src"), "ts"),
        (calls().enrich(towers().select("src", "tower"), on="src"), "ts"),
        (calls().select("x"), "EVENT_TIME()"),
        (calls().join(calls(), on="src", within="1s", how="left"), "EVENT_TIME()"),
        (calls().apply(lambda f: f, schema=CALLS), "ts"),
    ):
        sql("SELECT sum(x) AS s FROM c " + window.format(name), c=stream)
    for stream, name in (
        (calls().map(ts="start"), "ts"),
        (calls().select("x", "start"), "start"),
        (calls().union(calls().map(ts="start")), "ts"),
        (calls().aggregate(window=MINUTE, x="sum(x)"), "window_start"),
    ):
        with pytest.raises(ps.QueryError, match="a window is over the event time"):
            sql("SELECT sum(x) AS s FROM c " + window.format(name), c=stream)


SCRIPT = """
CREATE TABLE calls (src VARCHAR, x BIGINT, ts TIMESTAMP)
    WITH (format = 'parquet', path = 'calls', time = 'ts', delay = '5 seconds',
          idle = '1 minute', max_files_per_epoch = 3);
CREATE TABLE busy (who VARCHAR, n BIGINT) WITH (path = 'busy', ordered = true);
CREATE TABLE screen WITH (format = 'console', rows = 5);
CREATE VIEW known AS SELECT * FROM calls WHERE src IS NOT NULL;
INSERT INTO busy SELECT src, count(*) AS n FROM known GROUP BY src, TUMBLE(ts, '1 minute');
INSERT INTO screen SELECT x FROM known;
SELECT src FROM calls;
"""


def test_a_script_is_a_query_with_sinks() -> None:
    source = ps.read_parquet(
        "calls",
        time="ts",
        delay="5 seconds",
        idle="1 minute",
        max_files_per_epoch=3,
        schema={"src": pl.String, "x": pl.Int64, "ts": pl.Datetime("us")},
    )
    known = source.filter("src IS NOT NULL")
    busy = known.aggregate(by="src", window=MINUTE, n="count(*)").select("src", "n")
    expected = (
        busy.select(who=pl.col("src"), n=pl.col("n"))
        .write_parquet("busy", ordered=True)
        .also(known.select("x").write_console(5), source.select("src").write_console())
    )
    assert load_script(SCRIPT).explain() == expected.explain()


TABLE = "CREATE TABLE t (a INT, ts TIMESTAMP) WITH (path = 't', time = 'ts');\n"
BAD_SCRIPTS = [
    (TABLE, "the script writes nothing", 1, 1),
    ("CREATE TABLE t (a INT) WITH (time = 'a');", "table 't' needs WITH (path = '…')", 1, 14),
    ("CREATE TABLE t (a FROB) WITH (path = 't');", "column 'a': unknown type 'FROB'", 1, 17),
    ("CREATE TABLE t (a INT NOT NULL) WITH (path = 't');", "NOT NULL in CREATE TABLE", 1, 17),
    ("CREATE TABLE t (a INT) WITH (path = 't', frob = 1);", "has no option 'frob'", 1, 14),
    ("CREATE TABLE t (a INT, ts DATE) WITH (path='t', time='ts', rows=1);", "'rows'", 1, 14),
    ("CREATE TABLE t (a INT) WITH (format = 'orc', time = 'a');", "no format 'orc'", 1, 14),
    ("CREATE TABLE t (a INT) WITH (path = 't', time = 'b');", "unknown column 'b'", 1, 14),
    ("CREATE TABLE t (a DATE) WITH (path='t', time='a', delay='x');", "cannot read dura", 1, 14),
    ("CREATE TABLE t WITH (path = 'no-such-folder', time = 'a');", "no-such-folder", 1, 14),
    ("CREATE TABLE IF NOT EXISTS t (a INT) WITH (path = 't');", "IF NOT EXISTS in", 1, 1),
    ("CREATE TABLE t AS SELECT 1 AS a;", "CREATE TABLE AS is not supported", 1, 1),
    (TABLE + "CREATE VIEW t AS SELECT a FROM t;", "there are two tables called 't'", 2, 13),
    (TABLE + "CREATE OR REPLACE VIEW v AS SELECT a FROM t;", "REPLACE in CREATE VIEW", 2, 1),
    (TABLE + "CREATE VIEW v (b) AS SELECT a FROM t;", "a list of columns in CREATE VIEW", 2, 13),
    (TABLE + "INSERT INTO t SELECT a FROM t;", "'t' is read; INSERT needs a table", 2, 13),
    (TABLE + "INSERT INTO u SELECT a FROM t;", "unknown table 'u'", 2, 13),
    (TABLE + "INSERT INTO u (a) SELECT a FROM t;", "a list of columns in INSERT", 2, 13),
    (TABLE + "INSERT INTO u VALUES (1);", "VALUES is not supported", 2, 15),
    (TABLE + "SELECT b FROM t;", "unknown column 'b'", 2, 8),
    (TABLE + "INSERT INTO t;", "INSERT without SELECT", 2, 1),
    (TABLE + "DROP TABLE t;", "DROP is not supported", 2, 1),
    (
        TABLE + "CREATE TABLE u (a TEXT) WITH (path='u'); INSERT INTO u SELECT a FROM t;",
        "table 'u' has (a String); the SELECT gives (a Int32)", 2, 42,
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "says", "line", "column"), BAD_SCRIPTS)
def test_scripts_that_are_refused(text: str, says: str, line: int, column: int) -> None:
    with pytest.raises(ps.QueryError) as caught:
        load_script(text)
    problem = next((p for p in caught.value.problems if says in p), None)
    assert problem is not None, caught.value.problems
    assert problem.endswith(f"; line {line}, column {column}")


def test_the_command_line_takes_sql_files(tmp_path: Path) -> None:
    path = tmp_path / "query.sql"
    path.write_text(SCRIPT)
    assert CliRunner().invoke(app, ["check", str(path)]).exit_code == 0
    shown = CliRunner().invoke(app, ["explain", str(path)])
    assert "aggregate n by src over tumbling 1m" in shown.stdout
    path.write_text(SCRIPT.replace("SELECT x FROM known", "SELECT x\nFROM knwon LIMIT 2"))
    bad = CliRunner().invoke(app, ["check", str(path)])
    assert bad.exit_code == 1
    assert "unknown table 'knwon'; did you mean 'known'?; line 10, column 6" in bad.stderr
    assert "LIMIT is not supported" in bad.stderr
    path.write_bytes(b"SELECT \xff")
    assert "it is not UTF-8" in CliRunner().invoke(app, ["check", str(path)]).stderr


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.sql")), ids=lambda p: p.name)
def test_the_examples_are_sound(path: Path) -> None:
    assert load_script(path.read_text()).explain()


def test_what_the_guide_shows_runs() -> None:
    text = (ROOT / "docs/sql.md").read_text()
    namespace: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "docs/sql.md", "exec"), namespace)
    streams = {name: made for name, made in namespace.items() if isinstance(made, Stream)}
    blocks = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 8
    for block in blocks:
        if "CREATE" in block:
            assert load_script(block).explain()
        else:
            assert explained(sql(block, **streams))


JOINS: dict[str, Any] = {
    """SELECT * FROM calls c JOIN towers t
       ON c.src = t.src AND abs(c.ts - t.at) < INTERVAL '1 minute'""": lambda c, t: c.join(
        t, on="src", within="1 minute"
    ),
    """SELECT * FROM calls c JOIN towers t ON c.src = t.tower AND c.x > t.x
       AND t.at BETWEEN c.ts - INTERVAL '1 minute' AND c.ts + INTERVAL '1 minute'""": lambda c, t: (
        c.join(
            t,
            left_on="src",
            right_on="tower",
            within=timedelta(minutes=1, microseconds=1),
            where="x > x_right",
        )
    ),
    """SELECT a.x, b.x AS other FROM calls a JOIN calls b
       ON a.src = b.src AND a.ts - b.ts <= INTERVAL '5s' AND b.ts - a.ts < INTERVAL '9s'
    """: lambda c, t: c.join(
        c,
        on="src",
        within="9 seconds",
        where="(ts - ts_right <= INTERVAL '5 SECOND') AND (ts_right - ts < INTERVAL '9 SECOND')",
        self_pairs=True,
    ).select("x", other=pl.col("x_right")),
    """SELECT * FROM calls c LEFT JOIN towers t
       ON c.src = t.src AND c.ts < t.at + INTERVAL '7s' AND c.ts > t.at - INTERVAL '7s'
    """: lambda c, t: c.join(t, left_on="src", right_on="src", within="7 seconds", how="left"),
    """SELECT t.*, c.x AS n FROM calls c RIGHT OUTER JOIN towers t
       ON upper(c.src) = t.src AND abs(t.at - c.ts) < INTERVAL '7s'""": lambda c, t: t.join(
        c.map(sql_key_1="upper(src)"),
        left_on="src",
        right_on="sql_key_1",
        within="7 seconds",
        how="left",
    ).select("tower", "src", "at", "x", n=pl.col("x_right")),
    """SELECT c.x FROM calls c FULL JOIN towers t
       ON c.src = t.src AND c.x = t.x AND abs(t.at - c.ts) < INTERVAL '7s'""": lambda c, t: c.join(
        t, left_on=["src", "x"], right_on=["src", "x"], within="7 seconds", how="full"
    ).select("x"),
    """SELECT c.x FROM calls c JOIN towers t
       ON c.x < t.x AND abs(c.ts - t.at) < INTERVAL '7s'""": lambda c, t: c.product(
        t, within="7 seconds", where="x < x_right"
    ).select("x"),
    """SELECT c.src, sum(t.x) AS load FROM calls c JOIN towers t
       ON c.src = t.src AND abs(c.ts - t.at) < INTERVAL '7s'
       GROUP BY c.src, TUMBLE(GREATEST(t.at, c.ts), '1 minute')""": lambda c, t: (
        c.join(t, on="src", within="7 seconds")
        .aggregate(by="src", window=MINUTE, load="sum(x_right)")
        .select("src", "load")
    ),
}


@pytest.mark.parametrize("text", JOINS)
def test_the_same_join_as_in_python(text: str) -> None:
    streams = tables()
    expected = JOINS[text](streams["calls"], streams["towers"])
    assert explained(sql(text, **streams)) == explained(expected)


@pytest.mark.parametrize(
    "on",
    [
        "c.src = t.src AND abs(c.ts - t.at) < INTERVAL '24 seconds'",
        "c.src = t.src AND abs(c.ts - t.at) <= INTERVAL '24 seconds'",
        "c.src = t.src AND t.at BETWEEN c.ts - INTERVAL '20 seconds' AND c.ts",
        "c.src = t.src AND c.src = t.tower AND c.ts = t.at",
        "lower(c.src) = lower(t.src) AND c.x > t.x AND c.ts > t.at AND c.ts < t.at + INTERVAL '1m'",
        "c.x = t.x AND c.ok IS TRUE AND c.ts >= t.at - INTERVAL '5s' AND c.ts < t.at",
    ],
)
@pytest.mark.parametrize("how", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
def test_joins_as_in_duckdb(how: str, on: str) -> None:
    columns = "c.src AS a, c.ts, c.x, t.src AS b, t.at, t.x AS y"
    query = f"SELECT {columns} FROM calls c {how} towers t ON {on}"
    asked = re.sub(r"abs\((.*?)\) (<=?) (INTERVAL '.*?')", r"(\1 \2 \3 AND -(\1) \2 \3)", query)
    odd = difference(run(sql(query, **tables())), ask_duckdb(asked))
    assert not odd, odd


def test_more_joins_as_in_duckdb() -> None:
    within = "BETWEEN t.at - INTERVAL '9 seconds' AND t.at + INTERVAL '2 seconds'"
    for query in (
        f"SELECT c.x, t.x AS y FROM calls c JOIN towers t ON c.x < t.x AND c.ts {within}",
        f"""SELECT c.ts AS a, t.at, d.ts AS b FROM calls c
            JOIN towers t ON c.src = t.src AND c.ts BETWEEN t.at AND t.at + INTERVAL '40 seconds'
            LEFT JOIN calls d ON d.dst = c.dst AND d.ts {within}""",
        f"""SELECT t.tower FROM towers t LEFT JOIN calls c ON c.src = t.src AND c.ts {within}
            WHERE c.src IS NULL""",
    ):
        odd = difference(run(sql(query, **tables())), ask_duckdb(query))
        assert not odd, odd


@pytest.mark.parametrize("how", ["JOIN", "LEFT JOIN", "FULL JOIN"])
@pytest.mark.parametrize("right", ["dst", "src"])
def test_a_row_is_its_own_partner_where_on_lets_it(how: str, right: str) -> None:
    query = f"""SELECT a.ts AS l, b.ts AS r FROM calls a {how} calls b
                ON a.dst = b.{right} AND a.ts <= b.ts AND b.ts <= a.ts + INTERVAL '1 minute'"""
    odd = difference(run(sql(query, **tables())), ask_duckdb(query))
    assert not odd, odd


def test_the_first_of_each_window() -> None:
    query = """SELECT dst, window_start AS w, sum(y) AS total FROM calls
               GROUP BY dst, TUMBLE(ts, '1 minute') ORDER BY 3 DESC LIMIT 2"""
    asked = f"""SELECT dst, w, total FROM
                  (SELECT dst, {BUCKET} AS w, sum(y) AS total, sum(y) AS n FROM calls
                   GROUP BY dst, w)
                QUALIFY row_number() OVER (PARTITION BY w ORDER BY n DESC) <= 2"""
    odd = difference(run(sql(query, calls=calls())), ask_duckdb(asked))
    assert not odd, odd


def test_names_of_the_user_are_never_taken() -> None:
    odd = calls().map(sql_key_1="src", sql_value_1="x")
    made = sql(
        """SELECT a.sql_key_1 AS k, upper(b.sql_key_1) AS u, sum(b.sql_value_1) + 1 AS by FROM c a
           JOIN c b ON lower(a.sql_key_1) = upper(b.src) AND abs(a.ts - b.ts) < INTERVAL '1s'
           GROUP BY 1, upper(b.sql_key_1), TUMBLE(EVENT_TIME(), '1 minute')
           HAVING max(a.x) > 1""",
        c=odd,
    )
    expected = (
        (both := odd.map(sql_key_2="lower(src)", sql_key_3="upper(src)"))
        .join(both, left_on="sql_key_2", right_on="sql_key_3", within="1 second", self_pairs=True)
        .map(u="upper(sql_key_1_right)")
        .aggregate(
            by=["sql_key_1", "u"],
            window=MINUTE,
            sql_value_1="sum(sql_value_1_right)",
            sql_value_2="max(x)",
        )
        .filter("sql_value_2 > 1")
        .select(k=pl.col("sql_key_1"), u=pl.col("u"), by="sql_value_1 + 1")
    )
    assert explained(made).replace("lower(sql_key_1)", "lower(src)") == explained(expected)
