"""Operators, and what has a grammar of its own."""

from __future__ import annotations

from penstock.query.functions.entry import SAME, STRICT, row

_ZERO = "a row that divides by zero is a dead letter, where PostgreSQL ends the query"
_T = "TIMESTAMP '2024-02-29 13:45:06'"

FORMS = (
    row("x + y, x - y, x * y", "the wider type", STRICT, "1 + 2 * 3", "7"),
    row(
        "x / y",
        "Float64",
        STRICT,
        "7 / 2",
        "3.5",
        "integers divide to a float, where PostgreSQL cuts; by zero it is infinite or NaN",
    ),
    row("x % y", SAME, STRICT, "-7 % 2", "-1", _ZERO),
    row("x // y", SAME, STRICT, "-7 // 2", "-3", f"div in PostgreSQL; {_ZERO}"),
    row("x ^ y", "Float64", STRICT, "2 ^ 3", "8.0"),
    row("s || x", "String", STRICT, "'a' || 1", "'a1'"),
    row("x = y, <>, <, <=, >, >=", "Boolean", STRICT, "1 < 2", "true"),
    row(
        "x IS [NOT] DISTINCT FROM y",
        "Boolean",
        "a value like others",
        "1 IS DISTINCT FROM NULL",
        "true",
    ),
    row("x IS [NOT] NULL", "Boolean", "is what it asks for", "1 IS NULL", "false"),
    row(
        "b IS [NOT] TRUE, FALSE", "Boolean", "neither true nor false", "(1 = 2) IS NOT TRUE", "true"
    ),
    row("AND, OR, NOT", "Boolean", "of three values", "1 = 2 AND NULL", "false"),
    row("x [NOT] BETWEEN y AND z", "Boolean", STRICT, "2 BETWEEN 1 AND 3", "true"),
    row("x [NOT] IN (y, ...)", "Boolean", "of three values", "3 IN (1, NULL)", "NULL"),
    row("s [NOT] LIKE pattern [ESCAPE c]", "Boolean", STRICT, "'abc' LIKE 'a%'", "true"),
    row("s [NOT] ILIKE pattern [ESCAPE c]", "Boolean", STRICT, "'aBc' ILIKE 'A%'", "true"),
    row(
        "CASE WHEN b THEN x ELSE y END",
        "the common type",
        "NULL is not true",
        "CASE WHEN 1 = NULL THEN 'a' ELSE 'b' END",
        "'b'",
    ),
    row(
        "CAST(x AS type), x::type",
        "the type",
        STRICT,
        "CAST('12' AS INT)",
        "12",
        "a row whose value does not fit is a dead letter, where PostgreSQL ends the query",
    ),
    row(
        "TRY_CAST(x AS type)",
        "the type",
        STRICT,
        "TRY_CAST('x' AS INT)",
        "NULL",
        "PostgreSQL has none",
    ),
    row(
        "EXTRACT(part FROM t)",
        "a number",
        STRICT,
        f"EXTRACT(WEEK FROM {_T})",
        "9",
        "the seconds have no fraction; epoch, milliseconds and microseconds are floats",
    ),
    row("POSITION(part IN s)", "Int64", STRICT, "POSITION('c' IN 'abc')", "3"),
    row(
        "SUBSTRING(s FROM start FOR count)",
        "String",
        STRICT,
        "SUBSTRING('abcd' FROM 2 FOR 2)",
        "'bc'",
    ),
    row("TRIM(BOTH characters FROM s)", "String", STRICT, "TRIM(BOTH 'x' FROM 'xax')", "'a'"),
    row(
        "t + INTERVAL, t - INTERVAL",
        SAME,
        STRICT,
        f"{_T} + INTERVAL '1 day'",
        "2024-03-01 13:45:06",
    ),
    row(
        "t AT TIME ZONE zone",
        "Datetime",
        STRICT,
        f"{_T} AT TIME ZONE 'Asia/Kolkata'",
        "2024-02-29 13:45:06+05:30",
        "the zone is a name in quotes; a date must be cast to a timestamp first",
    ),
    row("t - t", "Duration", STRICT, f"{_T} - TIMESTAMP '2024-02-29 13:45:00'", "0:00:06"),
)
