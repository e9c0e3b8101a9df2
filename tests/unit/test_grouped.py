"""Aggregates of our own and orders within aggregates, with DuckDB as the judge."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import polars as pl
import pytest

import penstock as ps
from penstock.testing.compare import close
from penstock.testing.streams import TestStream

NAN = float("nan")
ROWS = pl.DataFrame(
    {
        "k": ["b", "a", "c", None, "d", "e", "f", "g"],
        "x": [1, 5, 3, 5, None, -2, 4, 4],
        "f": [1.5, NAN, 2.5, NAN, None, -1.0, 2.5, 0.0],
        "ok": [True, None, False, True, None, True, False, True],
        "ts": [ps.at("2024-01-01") + timedelta(seconds=i) for i in range(8)],
    }
)
VALUES = [
    "var_pop(x)", "stddev_pop(x)", "var_pop(x) FILTER (WHERE ok)", "bool_and(ok)", "bool_or(ok)",
    "bool_and(ok) FILTER (WHERE x > 4)", "bool_or(x > 9)", "count_if(ok)",
    "count_if(x > 3)", "count_if(ok) FILTER (WHERE x > 3)", "max_by(x, f)", "min_by(x, f)",
    "max_by(x, f) FILTER (WHERE ok)", "min_by(k, x)", "arg_max(ts, f)", "arg_min(f, ts)",
    "max_by(k, x) FILTER (WHERE x > 99)", "bool_and(ok) FILTER (WHERE x > 99)",
    "var_pop(x) FILTER (WHERE x = 1)",
    *[f"array_agg(k ORDER BY x{first}, f{second})"
      for first in ("", " DESC", " NULLS FIRST", " DESC NULLS LAST", " DESC NULLS FIRST")
      for second in ("", " DESC", " NULLS FIRST", " DESC NULLS LAST")],
    "array_agg(f ORDER BY f DESC)", "array_agg(f ORDER BY f NULLS FIRST)",
    "string_agg(k, '-' ORDER BY x DESC, k)",
    "count(abs(-1))", "sum(abs(-1))", "count(abs(-1)) FILTER (WHERE ok)", "sum(-1)", "avg(2 + 1)",
    "variance(sign(0e0))", "var_pop(3)", "array_agg(1)", "string_agg('z', '')", "median(7)",
    "count(DISTINCT abs(-1))", "count_if(TRUE)", "max_by(x, abs(-1))", "max_by(7, f)",
    "count(*) FILTER (WHERE ends_with('b', 'b'))", "sum(x) FILTER (WHERE 1 > 2)",
    "covar_pop(x, 2 + 1)", "max_by(x IN (0, 1, 2, 3), f)", "min_by(x IN (0, 1, 2, 3), f)",
]  # fmt: skip
WINDOWS = {"TUMBLE(ts, '1 hour')": "rows", "SESSION(ts, '1 minute')": "session"}


@pytest.mark.slow
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("text", VALUES)
def test_as_duckdb(text: str, window: str) -> None:
    source = ps.from_rows([], schema=dict(ROWS.schema), time="ts", name="t")
    query = ps.sql(f"SELECT {text} AS v FROM t GROUP BY {window}", t=source)
    with TestStream(query.write_memory(), instances=2) as stream:
        stream.add(ROWS[:3].to_dicts(), splits=2)
        stream.add(ROWS[3:].to_dicts())
        stream.finish()
        stream.expect_reference()
        ((found,),) = [tuple(row.values()) for row in stream.rows()]
    assert close(plain(found), plain(judged(text))), (found, judged(text))


@cache
def _judge() -> duckdb.DuckDBPyConnection:
    return duckdb.connect().register("t", ROWS.to_arrow())


def judged(text: str) -> Any:
    return _judge().execute(f"SELECT {text} FROM t").fetchall()[0][0]


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(item) for item in value]
    return "nan" if isinstance(value, float) and math.isnan(value) else value


def test_the_first_of_rows_that_tie_wins_and_may_be_null() -> None:
    rows = [{"k": k, "x": x, "ts": ps.at("2024-01-01") + timedelta(seconds=i)}
            for i, (k, x) in enumerate([("a", 1), (None, 7), ("c", 7), ("d", None)])]  # fmt: skip
    schema = {"k": pl.String(), "x": pl.Int64(), "ts": pl.Datetime("us")}
    source = ps.from_rows([], schema=schema, time="ts")
    query = source.aggregate(window=ps.tumbling("1h"), hi="max_by(k, x)", lo="min_by(k, x)")
    with TestStream(query.write_memory()) as stream:
        stream.add(rows)
        stream.finish()
        assert [(row["hi"], row["lo"]) for row in stream.rows()] == [(None, "a")]


def test_no_rows_are_counted_as_none() -> None:
    source = ps.from_rows([], schema=dict(ROWS.schema), time="ts")
    query = source.aggregate(
        window=ps.tumbling("1h"), n="count_if(ok) FILTER (WHERE x > 99)", e="every(x > -9)"
    )
    with TestStream(query.write_memory()) as stream:
        stream.add(ROWS.to_dicts())
        stream.finish()
        assert [(row["n"], row["e"]) for row in stream.rows()] == [(0, True)]


def test_the_average_of_decimals_has_the_type_that_it_is_cast_to() -> None:
    rows = [{"d": Decimal(d), "ts": ps.at("2024-01-01")} for d in ("1.00", "1.01", "1.01")]
    schema = {"d": pl.Decimal(10, 2), "ts": pl.Datetime("us")}
    asked = {"f": "CAST(avg(d) AS DOUBLE PRECISION)", "r": "round(avg(d), 1)", "p": "avg(d) * 2"}
    query = ps.from_rows([], schema=schema, time="ts").aggregate(window=ps.tumbling("1h"), **asked)
    with TestStream(query.write_memory()) as stream:
        stream.add(rows)
        stream.finish()
        stream.expect_reference()
        (row,) = stream.rows()
    assert [row[name] for name in asked] == [1.006667, Decimal("1.0"), Decimal("2.013334")]
    assert isinstance(row["f"], float)


def test_a_condition_is_needed() -> None:
    source = ps.from_rows([], schema=dict(ROWS.schema), time="ts", name="t")
    with pytest.raises(ps.QueryError, match="bool_and takes a condition; it is Int64"):
        source.aggregate(window=ps.tumbling("1h"), v="bool_and(x)").write_memory()
