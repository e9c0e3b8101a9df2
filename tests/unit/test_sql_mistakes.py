"""Mistakes that are often made: each is answered in the words of SQL, with what to write."""

from __future__ import annotations

import logging
from typing import Any

import polars as pl
import pytest

import penstock as ps

SCHEMA: dict[str, Any] = {
    "k": pl.String,
    "x": pl.Int64,
    "ok": pl.Boolean,
    "ts": pl.Datetime("us"),
    "l": pl.List(pl.Int64),
    "st": pl.Struct({"a": pl.Int64}),
}
W = " GROUP BY k, TUMBLE(ts, '1 minute')"
INTERNALS = (
    "series",
    "dtype",
    "dyn ",
    "i64",
    "i32",
    "datetime[",
    "Token",
    "<",
    "Required",
    "Ident",
)
MISTAKES = [
    ("SELECT X FROM calls", "unknown column 'X'; did you mean 'x'?"),
    ("SELECT k FROM CALLS", "unknown table 'CALLS'; did you mean 'calls'?"),
    ('SELECT k FROM calls WHERE k = "a"', "a text has single quotes: 'a'"),
    ("SELECT k count(*) FROM calls", "is a comma, an operator or a quote missing before it?"),
    ("SELECT k FROM calls WHERE", "at 'WHERE': something is missing here"),
    ("SELECT k FROM calls WHERE x >", "at '>': something is missing here"),
    ("SELECT x + AS s FROM calls", "at 'AS': something is missing here"),
    ("SELECT * FROM", "at 'FROM': the name of a table is missing"),
    ("SELECT FROM calls", "SELECT needs columns; write SELECT * for all"),
    ("SELECT * FORM calls", "did you mean FROM before it?"),
    ("SELECT * FROM calls WERE x > 1", "did you mean WHERE before it?"),
    ("SELECT * FROM calls GROUPBY k", "did you mean GROUP BY before it?"),
    ("SELECT * FROM calls GROUP k", "did you mean GROUP BY before it?"),
    ("SELECT * FROM calls ODER BY k", "did you mean ORDER BY before it?"),
    ("SELECT x FROM calls WHERE x > 1)", "at ')': it has no partner"),
    ("SELECT x FROM calls WHERE (x > 1", "a ')' is missing"),
    ("SELECT CASE WHEN ok THEN 1 AS u FROM calls", "CASE needs END"),
    ("SELECT `k FROM calls", "what begins here has no end"),
    ("SELECT k FROM calls WHERE x = 'a'", "'a' is not a number; it stands beside Int64"),
    ("SELECT k FROM calls WHERE x IN ('1', 'a')", "'a' is not a number; it stands beside Int64"),
    ("SELECT k FROM calls WHERE k = 1", "a String cannot be compared with a number; put quotes"),
    ("SELECT k FROM calls WHERE ts > 5", "a time and Int32 do not go together; write to_time"),
    ("SELECT k FROM calls WHERE l = 1", "List cannot be compared with Int32"),
    ("SELECT x FROM calls WHERE NULL", "WHERE must be true or false; it is Null"),
    ("SELECT k + 1 AS s FROM calls", "cannot compute with String and a number; write CAST"),
    ("SELECT ts + 1 AS s FROM calls", "+ cannot be used with Datetime and a number"),
    ("SELECT x / k AS s FROM calls", "cannot divide String; write CAST"),
    ("SELECT -k AS s FROM calls", "- does not take String"),
    ("SELECT upper(x) AS s FROM calls", "String is needed, and column 'x' is Int64"),
    ("SELECT abs(k) AS s FROM calls", "abs does not take String"),
    ("SELECT hour(x) AS s FROM calls", "hour does not take Int64"),
    ("SELECT x LIKE 'a%' AS s FROM calls", "String is needed, not Int64"),
    ("SELECT x[1] AS s FROM calls", "List is needed, not Int64"),
    ("SELECT CASE WHEN x THEN 1 END AS s FROM calls", "Boolean is needed, and column 'x' is Int64"),
    ("SELECT x AND ok AS s FROM calls", "AND takes conditions, not Int64 and Boolean"),
    ("SELECT x IN () AS s FROM calls", "IN needs values in parentheses: x IN (1, 2)"),
    ("SELECT CAST(x AS INTEGR) AS s FROM calls", "unknown type 'INTEGR'; did you mean INTEGER?"),
    ("SELECT x::frob AS s FROM calls", "unknown type 'frob'; types: BOOLEAN, SMALLINT"),
    ("SELECT ts - INTERVAL '1 fortnight' AS s FROM calls", "unknown unit 'fortnight' of an inter"),
    ("SELECT st.b FROM calls", "unknown field 'b' of 'st'; fields: a"),
    ("SELECT x FROM calls GROUP BY window(ts, '1 minute')", "'window'; write TUMBLE(time, size)"),
    ("SELECT x FROM calls GROUP BY k, window(ts, '1m')", "'window'; write TUMBLE(time, size) or"),
    ("SELECT window.start, count(*) AS n FROM calls" + W, "are window_start and window_end"),
    ("SELECT k, x FROM calls HAVING x > 1", "HAVING is for groups; WHERE is for rows"),
    ("SELECT count(DISTINCT k, x) AS n FROM calls" + W, "DISTINCT of several columns is not supp"),
    (
        "SELECT count(DISTINCT *) AS n FROM calls" + W,
        "DISTINCT of several columns is not supported",
    ),
    ("SELECT sum(*) AS n FROM calls" + W, "sum(*) is not supported: name a column"),
    ("SELECT sum(k) AS n FROM calls" + W, "sum does not take String"),
    ("SELECT collect_list(x) AS n FROM calls" + W, "write array_agg(x)"),
    ("SELECT percentile(x, 0.5) AS n FROM calls" + W, "write quantile_cont(x, q)"),
    ("SELECT date_format(ts, 'yyyy') AS n FROM calls", "write strftime(t, '%Y-%m-%d')"),
    ("SHOW TABLES", "SHOW is not supported: write SELECT"),
    ("EXPLAIN SELECT x FROM calls", "EXPLAIN is not supported: write SELECT"),
    ("UPDATE calls SET x = 1", "UPDATE is not supported: write SELECT"),
]


@pytest.mark.parametrize(("text", "says"), MISTAKES)
def test_a_mistake_is_answered_once_and_without_internals(
    text: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls = ps.from_rows(pl.DataFrame(schema=SCHEMA), time="ts", name="calls")
    with caplog.at_level(logging.WARNING), pytest.raises(ps.QueryError) as caught:
        ps.sql(text, calls=calls)
    problems = [str(problem) for problem in caught.value.problems]
    assert len([p for p in problems if says in p]) == 1, problems
    assert not [p for p in problems if any(word in p for word in INTERNALS)], problems
    assert all("; line 1, column " in p for p in problems)
    assert not caplog.records


@pytest.mark.parametrize(
    "text",
    [
        "select k, sum(x) total from calls" + W,
        "SELECT k FROM calls;",
        "-- first\nSELECT k /* then */ FROM calls -- last",
        "SELECT CAST(x AS STRING) AS s FROM calls",
        "SELECT CAST(x AS LONG) AS s FROM calls",
        "SELECT ts - INTERVAL 1 DAY AS s FROM calls",
        "SELECT k, count(*) AS n FROM calls GROUP BY k, TUMBLE(ts, INTERVAL 1 MINUTE)",
        "SELECT st['a'] AS a, IF(x > 1, 'a', 'b') AS b FROM calls WHERE x == 1",
        "SELECT x AS end, x AS order FROM (SELECT x FROM calls)",
    ],
)
def test_what_is_no_mistake(text: str) -> None:
    calls = ps.from_rows(pl.DataFrame(schema=SCHEMA), time="ts", name="calls")
    assert ps.sql(text, calls=calls).schema
