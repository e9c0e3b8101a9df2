"""What DuckDB can say in batch comes out the same: joins, windows, top, dedup, enrich as of a time.

The engine runs in several epochs and instances; DuckDB sees all rows at once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest

import penstock as ps
from penstock.query.stream import Stream
from penstock.testing.compare import difference
from penstock.testing.streams import TestStream

START = datetime(2024, 1, 1)
SCHEMA: dict[str, Any] = {
    "k": pl.String, "g": pl.Int64, "x": pl.Int64, "ts": pl.Datetime("us"),
}  # fmt: skip


def rows(seed: int, count: int = 1500) -> pl.DataFrame:
    """Return rows with a hot key, nulls and disorder; every time is once in a stream."""
    random = np.random.default_rng(seed)
    seconds = np.arange(count) * 2 + seed  # left and right never tie
    seconds = seconds + random.integers(-4, 5, count) * 8
    key = np.where(random.random(count) < 0.3, 0, random.integers(1, 20, count))
    frame = pl.DataFrame(
        {
            "k": [None if n == 19 else f"k{n}" for n in key],
            "g": random.integers(0, 5, count),
            "x": random.integers(0, 100, count),
            "ts": [
                START + timedelta(seconds=int(s), milliseconds=i) for i, s in enumerate(seconds)
            ],
        },
        schema=SCHEMA,
    )
    return frame.with_columns(
        pl.when(pl.col("x") > 95).then(None).otherwise(pl.col("x")).alias("x")
    )


LEFT, RIGHT = rows(0), rows(1)


def source(name: str) -> Stream:
    return ps.from_rows([], schema=SCHEMA, time="ts", name=name, delay="2 minutes")


def found(stream: Stream) -> list[dict[str, Any]]:
    """Run a query over both streams in four epochs on three instances, to the end."""
    with TestStream(stream.write_memory(), instances=3) as run:
        for part in range(4):
            cut = slice(part * 400, (part + 1) * 400)
            both = {"l": LEFT[cut].to_dicts(), "r": RIGHT[cut].to_dicts()}
            given: dict[int | str, Any] = {name: both[name] for name in run.sources}
            run.add(given, splits=2)
        run.finish()
        return run.rows()


def expected(sql: str) -> list[dict[str, Any]]:
    with duckdb.connect() as connection:
        connection.register("l", LEFT.to_arrow())
        connection.register("r", RIGHT.to_arrow())
        found: pl.DataFrame = connection.sql(sql).pl()
        return found.to_dicts()


def agree(stream: Stream, sql: str, *, least: int = 50) -> None:
    mine, theirs = found(stream), expected(sql)
    assert len(theirs) >= least
    odd = difference(mine, [{name: row[name] for name in stream.schema} for row in theirs])
    assert not odd, odd


PAIR = "l.k, l.g, l.x, l.ts, r.g g_right, r.x x_right, r.ts ts_right"
BAND = "l.k = r.k and abs(epoch_us(l.ts) - epoch_us(r.ts)) < 15000000 and l.x > r.x"


@pytest.mark.parametrize("how", ["inner", "left", "full"])
def test_joins(how: str) -> None:
    pairs = source("l").join(source("r"), on="k", within="15 seconds", where="x > x_right", how=how)
    columns = PAIR.replace("l.k", "coalesce(l.k, r.k) k")
    agree(pairs, f"select {columns} from l {how} join r on {BAND}", least=1000)


def test_a_self_join() -> None:
    calls = source("l")
    pairs = calls.join(calls, on=("k", "g"), within="1 minute")
    agree(
        pairs,
        "select l.k, l.g, l.x, l.ts, r.x x_right, r.ts ts_right from l join l r on l.k = r.k "
        "and l.g = r.g and l.ts <> r.ts and abs(epoch_us(l.ts) - epoch_us(r.ts)) < 60000000",
        least=1000,
    )


def test_a_product() -> None:
    pairs = source("l").product(
        source("r"), within="8 seconds", where="x = x_right + 1 or k = 'k1' and g < g_right"
    )
    agree(
        pairs,
        "select l.*, r.k k_right, r.g g_right, r.x x_right, r.ts ts_right from l, r where "
        "abs(epoch_us(l.ts) - epoch_us(r.ts)) < 8000000 "
        "and (l.x = r.x + 1 or l.k = 'k1' and l.g < r.g)",
        least=300,
    )


def test_a_join_over_the_last_rows_of_a_key() -> None:
    """A row pairs with the last three of the other side with its key that come before it."""
    pairs = source("l").join(source("r"), on="k", within=ps.count_window(3))
    later = """
        select a.k, a.ts t, b.ts u, row_number() over (partition by a.ts order by b.ts desc) n
        from {a} a join {b} b on a.k = b.k and b.ts < a.ts"""
    agree(
        pairs,
        f"""with p as (select t lts, u rts from ({later.format(a="l", b="r")}) where n <= 3
            union all select u, t from ({later.format(a="r", b="l")}) where n <= 3)
        select {PAIR} from p join l on l.ts = p.lts join r on r.ts = p.rts""",
        least=1000,
    )


def test_sessions() -> None:
    sessions = source("l").aggregate(
        by="k", window=ps.session("30 seconds"), n="count(*)", total="sum(x)", middle="median(x)"
    )
    agree(
        sessions,
        """with gaps as (select *, coalesce(ts - lag(ts) over w > interval 30 seconds, true) new
               from l window w as (partition by k order by ts)),
           islands as (select *, sum(new::int) over (partition by k order by ts) s from gaps)
        select k, min(ts) window_start, max(ts) + interval 30 seconds window_end,
               count(*) n, sum(x)::bigint total, median(x) middle from islands group by k, s""",
        least=200,
    )


def test_windows_of_rows() -> None:
    windows = source("l").aggregate(
        by="k", window=ps.count_window(10, every=3), n="count(*)", total="sum(x)", least="min(x)"
    )
    agree(
        windows,
        """with numbered as (select *, row_number() over o - 1 i,
               first(ts) over w window_start, sum(x) over w total, min(x) over w least from l
               window o as (partition by k order by ts),
                      w as (partition by k order by ts rows 9 preceding))
        select k, window_start, ts window_end, 10::bigint n, total::bigint total, least
        from numbered where i >= 9 and (i - 9) % 3 = 0""",
        least=300,
    )


def test_top_of_each_window() -> None:
    counted = source("l").aggregate(by="k", window=ps.tumbling("1 minute"), total="sum(x)")
    best = counted.top(3, "total")
    agree(
        best,
        """with t as (select k, time_bucket(interval 1 minute, ts) window_start,
               sum(x)::bigint total from l group by all)
        select k, window_start, window_start + interval 1 minute window_end, total, rank from
        (select *, row_number() over (partition by window_start
            order by total desc nulls last, k nulls first) rank from t) where rank <= 3""",
        least=100,
    )


def test_dedup_for_ever() -> None:
    agree(
        source("l").dedup(by=("k", "g")),
        "select * from l qualify row_number() over (partition by k, g order by ts) = 1",
    )


@pytest.mark.parametrize("how", ["left", "inner"])
def test_enrich_with_a_table_that_changes(how: str) -> None:
    known = source("l").enrich(source("r").filter("k is not null"), on="k", how=how)
    join = f"asof {'left' if how == 'left' else ''} join"
    agree(known, f"select {PAIR} from l {join} r on l.k = r.k and l.ts >= r.ts", least=1000)


def test_enrich_with_a_table_that_does_not() -> None:
    table = pl.DataFrame({"g": [0, 1, 3], "name": ["zero", "one", "three"]})
    agree(
        source("l").enrich(table, on="g", how="inner"),
        "select l.*, name from l join (values (0, 'zero'), (1, 'one'), (3, 'three')) t(g, name) "
        "on l.g = t.g",
        least=500,
    )


def test_lists_become_rows() -> None:
    agree(
        source("l").select("k", items=pl.concat_list("x", "g")).explode("items"),
        "select k, unnest([x, g]) items from l",
        least=3000,
    )
