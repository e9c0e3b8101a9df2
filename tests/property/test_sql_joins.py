"""A join in SQL gives what DuckDB gives, in whatever form the query says it."""

from __future__ import annotations

from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.query.stream import Stream
from penstock.testing.compare import difference
from penstock.testing.streams import TestStream
from tests.property.test_joins import frame_of, small

COLUMNS = "a.k, a.x, a.ts, b.k AS k2, b.x AS x2, b.ts AS ts2"
SUBQUERY = "(SELECT * FROM calls WHERE x > 0)"
FORMS = {
    "a subquery written twice": (
        f"SELECT {COLUMNS} FROM {SUBQUERY} a {{how}} {SUBQUERY} b ON {{on}}"
    ),
    "a CTE used twice": f"WITH w AS {SUBQUERY} SELECT {COLUMNS} FROM w a {{how}} w b ON {{on}}",
    "a CTE and a subquery": (
        f"WITH w AS {SUBQUERY} SELECT {COLUMNS} FROM w a {{how}} {SUBQUERY} b ON {{on}}"
    ),
    "a CTE of a CTE": (
        f"WITH v AS (SELECT * FROM calls), w AS (SELECT * FROM v WHERE x > 0) "
        f"SELECT {COLUMNS} FROM w a {{how}} w b ON {{on}}"
    ),
    "one stream under one name": f"SELECT {COLUMNS} FROM kept a {{how}} kept b ON {{on}}",
    "one stream under two names": f"SELECT {COLUMNS} FROM kept a {{how}} same b ON {{on}}",
    "two streams that are equal": f"SELECT {COLUMNS} FROM kept a {{how}} twin b ON {{on}}",
}
INNER = {
    "the stream named twice, filtered after": (
        f"SELECT {COLUMNS} FROM calls a JOIN calls b ON {{on}} WHERE a.x > 0 AND b.x > 0"
    ),
}
CONDITIONS = (
    "a.k = b.k AND abs(a.ts - b.ts) < INTERVAL '5 seconds'",
    "a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '5 seconds'",
    "a.k = b.k AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL '5 seconds'",
    "a.k = b.k AND a.x <= b.x AND abs(a.ts - b.ts) < INTERVAL '5 seconds'",
    "a.k = b.k AND a.ts = b.ts",
    "a.x = b.y AND abs(a.ts - b.ts) < INTERVAL '5 seconds'",
    "a.x = b.y AND a.x = b.x AND abs(a.ts - b.ts) < INTERVAL '5 seconds'",
    "a.x % 2 = b.x - 1 AND abs(a.ts - b.ts) < INTERVAL '5 seconds'",
)
PRODUCTS = (
    "a.x <= b.x AND abs(a.ts - b.ts) < INTERVAL '5 seconds'",
    "(a.k = b.k OR a.x = 2) AND b.ts BETWEEN a.ts - INTERVAL '1 second' AND a.ts",
)
JOINS = ("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
few = settings(max_examples=max(1, settings().max_examples // 8))


def with_y(rows: list[Any]) -> pl.DataFrame:
    return frame_of(rows).with_columns(y=pl.lit(3) - pl.col("x"))


def given_streams(schema: Any) -> dict[str, Stream]:
    calls = ps.from_rows([], schema=dict(schema), time="ts", name="calls", delay="1h")
    kept = calls.filter("x > 0")
    return {"calls": calls, "kept": kept, "same": kept, "twin": calls.filter("x >= 1")}


def run(stream: Stream, rows: pl.DataFrame, cut: int) -> list[dict[str, Any]]:
    with TestStream(stream.write_memory(), instances=2) as test:
        for part in (slice(cut), slice(cut, None)):
            test.add({"calls": rows[part].to_dicts()})
        test.finish()
        return test.rows()


def ask(text: str, rows: pl.DataFrame) -> list[dict[str, Any]]:
    # DuckDB has no abs of an interval.
    text = text.replace("abs(a.ts - b.ts)", "abs(epoch_us(a.ts) - epoch_us(b.ts))")
    text = text.replace("< INTERVAL '5 seconds'", "< 5000000")
    with duckdb.connect() as database:
        database.register("calls", rows)
        found: list[dict[str, Any]] = database.sql(text).pl().to_dicts()
        return found


def agree(form: str, how: str, on: str, rows: list[Any], cut: int) -> None:
    frame = with_y(rows)
    made = ps.sql(form.format(how=how, on=on), **given_streams(frame.schema))
    plain = FORMS["a subquery written twice"].format(how=how, on=on)
    odd = difference(run(made, frame, cut), ask(plain, frame))
    assert not odd, odd


@pytest.mark.parametrize("form", FORMS)
@few
@given(
    how=st.sampled_from(JOINS), on=st.sampled_from(CONDITIONS), rows=small, cut=st.integers(0, 25)
)
def test_a_self_join_means_the_same_in_every_form(
    form: str, how: str, on: str, rows: list[Any], cut: int
) -> None:
    agree(FORMS[form], how, on, rows, cut)


@pytest.mark.parametrize("form", [*FORMS, *INNER])
@few
@given(on=st.sampled_from([*CONDITIONS, *PRODUCTS]), rows=small, cut=st.integers(0, 25))
def test_an_inner_self_join_means_the_same_in_every_form(
    form: str, on: str, rows: list[Any], cut: int
) -> None:
    agree((FORMS | INNER)[form], "JOIN", on, rows, cut)
