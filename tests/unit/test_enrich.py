"""Enrich: columns from a table that stands still, or from one that changes."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import numpy as np
import polars as pl
import pytest

import penstock as ps
from penstock.base.columns import POSITION, SOURCE, TIME
from penstock.base.errors import CheckpointError, QueryError
from penstock.base.times import NOT_STARTED
from penstock.operators.keyed.enrich import EnrichKernel
from penstock.operators.stores.keyed_rows import KeyedRows
from penstock.query.enrich import Enrich
from penstock.query.stream import Stream
from penstock.testing import TestStream

SCHEMA = {"k": pl.Int64, "x": pl.Int64, "ts": pl.Datetime("us")}
PRICES = {"k": pl.Int64, "price": pl.Int64, "ts": pl.Datetime("us")}
FIRST = datetime(2024, 1, 1)
CITIES = pl.DataFrame({"k": [1, 2, None, None], "city": ["Oslo", "Rome", "Lima", "Bonn"]})


def at(second: float) -> datetime:
    return FIRST + timedelta(seconds=second)


def rows(*given: tuple[int | None, float], name: str = "x") -> list[dict[str, Any]]:
    return [{"k": k, name: i, "ts": at(second)} for i, (k, second) in enumerate(given)]


def source(schema: Any = SCHEMA, **options: Any) -> Stream:
    return ps.from_rows([], schema=schema, time="ts", **options)


@pytest.mark.parametrize("how", ["left", "inner"])
def test_a_table_that_stands_still(how: str, tmp_path: Path) -> None:
    CITIES.write_parquet(tmp_path / "cities.parquet")
    given = rows((1, 0), (3, 1), (None, 2), (2, 3))
    for table in (CITIES, tmp_path / "cities.parquet", str(tmp_path / "cities.parquet")):
        made = source().enrich(table, on="k", how=how).write_memory()
        with TestStream(made, instances=2) as stream:
            stream.add(given, splits=3)
            stream.expect_reference()
            found = {row["x"]: row["city"] for row in stream.rows()}
        known = {0: "Oslo", 3: "Rome"}
        assert found == (known if how == "inner" else known | {1: None, 2: None})


def test_names_that_clash_get_the_suffix() -> None:
    table = pl.DataFrame({"k": [1], "x": [9], "y": [8]})
    made = source().enrich(table, on="k", suffix="_of_k")
    assert list(made.schema) == ["k", "x", "ts", "x_of_k", "y"]
    changing = source().enrich(source(), on="k")
    assert list(changing.schema) == ["k", "x", "ts", "x_right", "ts_right"]


@pytest.mark.parametrize(
    ("table", "options", "problem"),
    [
        (CITIES, {"on": "q"}, "enrich on: unknown column 'q'"),
        (CITIES, {"on": "x"}, "enrich table: unknown column 'x'"),
        (CITIES, {"on": ()}, "enrich: no key columns given"),
        (CITIES, {"how": "full"}, "enrich: how='full' is not allowed; allowed: left, inner"),
        (CITIES.cast({"k": pl.Int32}), {}, "'k' is Int64 in the stream and Int32 in the table"),
        (pl.concat([CITIES, CITIES]), {}, "several rows have one key; the first of them: k=1"),
        (CITIES.rename({"city": "__c"}), {}, "names that begin with '__' are reserved"),
        ("nowhere.parquet", {}, "enrich: cannot read the table 'nowhere.parquet'"),
        (5, {}, "enrich: a table is a stream, a Polars DataFrame or the path"),
        (pl.DataFrame({"k": [1], "x": [2]}), {"suffix": ""}, "column 'x' would be there twice"),
        (source().filter("q > 1"), {}, "filter: unknown column 'q'"),
    ],
)
def test_mistakes(table: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(QueryError, match=problem.replace("(", r"\(")):
        source().enrich(table, **({"on": "k"} | options)).write_memory()


def test_a_table_before_a_stateful_operator_is_pinned_by_its_content(tmp_path: Path) -> None:
    def counted(table: pl.DataFrame) -> Any:
        cities = source().enrich(table, on="k")
        return cities.aggregate(by="city", window=ps.tumbling("1h"), n="count(*)").write_memory()

    with TestStream(counted(CITIES), tmp_path) as stream:
        stream.add(rows((1, 0)))
    with TestStream(counted(CITIES.reverse()), tmp_path) as stream:
        stream.add(rows((2, 1)))
    with pytest.raises(CheckpointError, match="aggregate-0 input"):
        TestStream(counted(CITIES.with_columns(city=pl.lit("Bonn"))), tmp_path)


@pytest.mark.parametrize("cut", [1, 2, 3, 9])
def test_a_table_that_changes(cut: int) -> None:
    """A row gets the newest price at its time, also one that arrives after it or has its time."""
    calls = rows((1, 0), (1, 5), (2, 6), (1, 5), (None, 7), (1, 20), (2, 21))
    prices = rows((1, 1), (1, 5), (1, 5), (2, 7), (None, 1), (1, 19.5), (1, 30), name="price")
    made = source(delay="5s").enrich(source(PRICES, delay="9s", name="prices"), on="k")
    with TestStream(made.write_memory(ordered=True), instances=3) as stream:
        for i in range(0, 7, cut):
            part: dict[int | str, Any] = {0: calls[i : i + cut], "prices": prices[i : i + cut]}
            stream.add(part)
            stream.crash()
        stream.finish()
        stream.expect_reference()
        found = {row["x"]: row["price"] for row in stream.rows()}
    assert found == {0: None, 1: 2, 2: None, 3: 2, 4: None, 5: 5, 6: 3}


def test_table_rows_at_the_same_place_come_by_their_columns() -> None:
    table = source(PRICES, name="prices", delay="9s").aggregate(
        by=("k", "price"), window=ps.tumbling("10s"), n="count(*)"
    )
    made = source().enrich(table, on="k").select("x", "price").write_memory()
    for instances in (1, 3):
        with TestStream(made, instances=instances) as stream:
            changes = [{"k": 1, "price": p, "ts": at(p)} for p in (3, 7, 5, 1)]
            part: dict[int | str, Any] = {0: rows((1, 9), (1, 10), (1, 11)), "prices": changes}
            stream.add(part)
            stream.finish()
            stream.expect_reference()
            assert {row["x"]: row["price"] for row in stream.rows()} == {0: None, 1: 7, 2: 7}


def test_a_stream_may_be_its_own_table() -> None:
    calls = source()
    with TestStream(calls.enrich(calls, on="k", how="inner").write_memory()) as stream:
        stream.add(rows((1, 0), (2, 1), (1, 2)))
        stream.finish()
        stream.expect_reference()
        assert [row["x_right"] for row in stream.rows()] == [0, 1, 2]


def kernel_of(how: str = "left") -> EnrichKernel:
    node = source().enrich(source(PRICES), on="k", how=how)._node
    assert isinstance(node, Enrich)
    return EnrichKernel(node, 2, ordered=False)


def frame(name: str, keys: Any, times: Any, values: Any) -> pl.DataFrame:
    found = pl.DataFrame({"k": keys, name: values, TIME: times}).with_row_index(POSITION)
    types = {"k": pl.Int64, name: pl.Int64, TIME: pl.Int64, POSITION: pl.Int64}
    place = [pl.col(TIME).cast(pl.Datetime("us")).alias("ts"), pl.lit(0, pl.Int32).alias(SOURCE)]
    return found.cast(types).with_columns(place)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["left", "inner"])
def test_many_rows_against_duckdb(how: str) -> None:
    random = np.random.default_rng(3)
    size = 40_000
    calls = frame("x", random.integers(0, 500, size), np.sort(random.integers(0, 10**6, size)),
                 np.arange(size))  # fmt: skip
    times = np.sort(random.choice(10**6, size // 4, replace=False))
    prices = frame("price", random.integers(0, 520, size // 4), times, np.arange(size // 4))
    kernel = kernel_of(how)
    state, found = kernel.restore([], NOT_STARTED), []
    for low in range(0, 10**6, 90_000):
        part = pl.col(TIME).is_between(low, low + 90_000, closed="left")
        fresh = [
            kernel.prepare(rows.filter(part).lazy(), port).collect()
            for port, rows in enumerate((calls, prices))
        ]
        done = kernel.advance(state, fresh, low + 80_000)
        state = done.state
        found.append(done.results)
    found.append(kernel.advance(state, [], 1 << 62).results)
    outer = "left" if how == "left" else ""
    text = (
        f"select x, price from calls asof {outer} join prices "
        "on calls.k = prices.k and calls.__time >= prices.__time"
    )
    with duckdb.connect() as database:
        expected = database.sql(text).pl()
    result = pl.concat(found).select("x", "price")
    assert result.sort("x").equals(expected.sort("x"))
    assert state.table.live <= 520


def test_a_table_that_stands_still_against_duckdb() -> None:
    random = np.random.default_rng(4)
    cities = pl.DataFrame({"k": random.permutation(5_000), "city": random.integers(0, 9, 5_000)})
    keys = random.integers(0, 6_000, 3_000).tolist()
    given = [{"k": key, "x": i, "ts": at(i)} for i, key in enumerate(keys)]
    made = source().enrich(cities, on="k", how="inner").aggregate(
        by="city", window=ps.tumbling("1000 days"), n="sum(x)"
    )  # fmt: skip
    with TestStream(made.select("city", "n").write_memory(), instances=3) as stream:
        stream.add(given, splits=4)
        stream.finish()
        found = sorted((row["city"], row["n"]) for row in stream.rows())
    calls = pl.DataFrame(given)
    assert calls.height == 3_000
    text = "select city, sum(x)::bigint from calls join cities using (k) group by city order by 1"
    with duckdb.connect() as database:
        assert found == database.sql(text).fetchall()


def test_an_epoch_looks_only_at_the_keys_of_its_rows() -> None:
    looked: dict[int, int] = {}
    for kept in (1_000, 50_000):
        kernel = kernel_of()
        table = kernel.prepare(frame("price", range(kept), [0] * kept, range(kept)).lazy(), 1)
        state = kernel.advance(kernel.restore([], NOT_STARTED), [table.collect()], 1).state
        heights: list[int] = []
        find, replace = KeyedRows.find, KeyedRows.replace

        def finding(self: KeyedRows, keys: pl.DataFrame) -> pl.DataFrame:
            heights.append(keys.height)  # noqa: B023
            return find(self, keys)  # noqa: B023

        def replacing(self: KeyedRows, keys: pl.DataFrame, rows: pl.DataFrame) -> KeyedRows:
            heights.append(keys.height)  # noqa: B023
            return replace(self, keys, rows)  # noqa: B023

        with (
            patch.object(KeyedRows, "find", finding),
            patch.object(KeyedRows, "replace", replacing),
        ):
            for time in range(1, 40):
                some = range(100 * (time % 10), 100 * (time % 10 + 1))
                fresh = [frame("x", some, [time] * 100, some), frame("price", [5], [time], [0])]
                sent = [kernel.prepare(f.lazy(), port).collect() for port, f in enumerate(fresh)]
                done = kernel.advance(state, sent, time + 1)
                assert done.results.height == 100
                state = done.state
        looked[kept] = sum(heights)
    assert looked[50_000] == looked[1_000] == 39 * 101
