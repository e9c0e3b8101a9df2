"""Nothing wraps, decimals stay decimals, and NaN is the greatest number."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pytest

import penstock as ps
from penstock.query.windows import Window
from penstock.testing.streams import TestStream

WINDOWS: dict[str, Window] = {
    "time": ps.tumbling("1 hour"),
    "sliding": ps.sliding("1 hour", every="10 minutes"),
    "count": ps.count_window(10),
    "overlapping": ps.count_window(10, every=1),
    "session": ps.session("1 minute"),
}
HUGE = 1_700_000_000_000_000_000
NAN = float("nan")
SCHEMA: dict[str, pl.DataType] = {
    "x": pl.Int64(), "u": pl.UInt64(), "d": pl.Duration("us"), "m": pl.Decimal(12, 2),
    "y": pl.Float64(), "ts": pl.Datetime("us"),
}  # fmt: skip


def rows_of(**columns: list[Any]) -> list[dict[str, Any]]:
    """Return rows one second apart; columns that are not given are null."""
    height = max(map(len, columns.values()))
    return [
        {name: columns[name][i] if name in columns else None for name in SCHEMA if name != "ts"}
        | {"ts": ps.at("2024-01-01") + timedelta(seconds=i)}
        for i in range(height)
    ]


def run(window: Window, rows: list[dict[str, Any]], **values: Any) -> tuple[Any, ...]:
    """Return results, refused results and their reasons; the reference has the same."""
    source = ps.from_rows([], schema=SCHEMA, time="ts")
    query = source.aggregate(window=window, **values).write_memory()
    with TestStream(query, instances=2) as stream:
        stream.add(rows[:3], splits=2)
        stream.add(rows[3:4])
        stream.add(rows[4:], splits=3)
        stream.finish()
        stream.expect_reference()
        letters = stream.dead_letters()
        reasons = letters["reason"].to_list() if letters.height else []
        return stream.rows(), stream.counts()["refusedResults"], reasons


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_averages_do_not_wrap(window: Window) -> None:
    rows = rows_of(x=[HUGE] * 10, d=[timedelta(days=10**8)] * 10, u=[2**63] * 10)
    found, refused, _ = run(window, rows, a="avg(x)", b=pl.col("x").mean(), s="avg(d)", u="avg(u)")
    assert refused == 0
    assert found
    for row in found:
        assert (row["a"], row["b"]) == (HUGE, HUGE)
        assert type(row["a"]) is float
        assert row["s"] == timedelta(days=10**8)
        assert row["u"] == float(2**63)


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_averages_of_kept_rows_do_not_wrap(window: Window) -> None:
    rows = rows_of(x=[HUGE] * 10, d=[timedelta(days=10**8)] * 10)
    found, refused, _ = run(
        window, rows, a="avg(x) + 0 * median(x)", s="avg(d)", n="median(x)", t=pl.col("x").mean()
    )
    assert refused == 0
    assert {(row["a"], row["s"], row["t"]) for row in found} == {
        (float(HUGE), timedelta(days=10**8), float(HUGE))
    }


@pytest.mark.parametrize("form", ["merged", "kept"])
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_sums_do_not_wrap_on_the_way(window: Window, form: str) -> None:
    top = 2**63 - 1
    rows = rows_of(x=[top, top, top, -top, -top, 5, 1, -top, top, -6])
    more = {} if form == "merged" else {"m": "median(x)"}
    found, refused, _ = run(window, rows, s="sum(x)", p=pl.col("x").sum(), **more)
    assert refused == 0
    assert {(row["s"], row["p"]) for row in found} == {(top, top)}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["merged", "kept"])
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize(
    ("column", "values"),
    [("x", [2**62] * 10), ("x", [-(2**62)] * 10), ("u", [2**63] * 10),
     ("d", [timedelta(microseconds=2**61)] * 10)],
    ids=["up", "down", "unsigned", "interval"],
)  # fmt: skip
def test_sums_that_do_not_fit_are_refused(
    column: str, values: list[Any], window: Window, form: str
) -> None:
    more = {} if form == "merged" else {"m": "median(x)"}
    found, refused, reasons = run(window, rows_of(**{column: values}), s=f"sum({column})", **more)
    assert found == []
    assert refused == len(reasons) >= 1
    assert all(f"sum({column})" in reason and "does not fit" in reason for reason in reasons)


def test_a_refused_sum_names_operator_and_key() -> None:
    schema = {"k": pl.String(), "x": pl.Int64(), "ts": pl.Datetime("us")}
    source = ps.from_rows([], schema=schema, time="ts")
    query = source.aggregate(by="k", window=ps.tumbling("1h"), total="sum(x)").write_memory()
    with TestStream(query) as stream:
        at = ps.at("2024-01-01")
        stream.add([{"k": k, "x": x, "ts": at} for k in "ab" for x in (2**62, 2**62 - (k == "b"))])
        stream.finish()
        (letter,) = stream.dead_letters().to_dicts()
        assert letter["operator"] == "aggregate total by k over tumbling 1h"
        assert '"k":"a"' in letter["row"].replace(" ", "")
        assert letter["reason"] == "sum(x) does not fit Int64"
        assert [row["total"] for row in stream.rows()] == [2**63 - 1]


CENTS = (10, 20, 30, -705, 1200, 9999, 1, 333, 333, 334)
MONEY = [Decimal(cents) / 100 for cents in CENTS]
TOTAL = Decimal(sum(CENTS)) / 100


@pytest.mark.parametrize("form", ["merged", "kept"])
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_decimals_stay_decimals(window: Window, form: str) -> None:
    more = {} if form == "merged" else {"m": "median(y)"}
    found, refused, _ = run(
        window, rows_of(m=MONEY, y=[1.0] * 10), s="sum(m)", a="avg(m)", lo="min(m)", hi="max(m)",
        f="first(m)", l="last(m)", **more,
    )  # fmt: skip
    assert refused == 0
    for row in found:
        assert row["s"] == TOTAL
        assert row["a"] == (TOTAL / 10).quantize(Decimal("0.000001"))
        assert (row["lo"], row["hi"], row["f"], row["l"]) == (
            min(MONEY), max(MONEY), MONEY[0], MONEY[-1],
        )  # fmt: skip
        assert row["s"].as_tuple().exponent == -2
        assert row["a"].as_tuple().exponent == -6


def test_types_of_sums_and_averages() -> None:
    source = ps.from_rows([], schema=SCHEMA | {"i": pl.Int16()}, time="ts")
    columns = ("x", "u", "d", "m", "y", "i")
    values = {f"s{c}": f"sum({c})" for c in columns} | {f"a{c}": f"avg({c})" for c in columns}
    for more in ({}, {"kept": "median(x)"}):
        schema = source.aggregate(window=ps.tumbling("1h"), **values, **more).schema
        span, sums, mean = pl.Duration("us"), pl.Decimal(38, 2), pl.Decimal(38, 6)
        wanted = [pl.Int64(), pl.UInt64(), span, sums, pl.Float64(), pl.Int64()]
        assert [schema[f"s{c}"] for c in columns] == wanted
        real = pl.Float64()
        assert [schema[f"a{c}"] for c in columns] == [real, real, span, mean, real, real]


def test_halves_of_decimals_are_rounded_away_from_zero() -> None:
    values = ["-0.03", "0.00", "0.00", "-0.02", "-0.01", "0.00", "0.00", "0.00"]
    source = ps.from_rows([], schema={"m": pl.Decimal(38, 4), "ts": pl.Datetime("us")}, time="ts")
    for sign in (1, -1):
        unit = Decimal("0.0001") * sign
        rows = [{"m": unit * int(Decimal(v) * 100), "ts": ps.at("2024-01-01")} for v in values]
        query = source.map(m=pl.col("m")).aggregate(window=ps.tumbling("1h"), a="avg(m)")
        with TestStream(query.write_memory()) as stream:
            stream.add(rows * 125)
            stream.finish()
            stream.expect_reference()
            assert stream.rows()[0]["a"] == Decimal("-0.000075") * sign


@pytest.mark.parametrize(
    ("pair", "mean"),
    [((-3, -2), -2), ((3, 2), 2), ((-1, 0), 0), ((-(2**62), -(2**62) + 1), -(2**62) + 1)],
    ids=str,
)
def test_averages_of_intervals_are_cut_towards_zero(pair: tuple[int, int], mean: int) -> None:
    rows = rows_of(d=[timedelta(microseconds=n) for n in pair])
    found, _, _ = run(ps.tumbling("1h"), rows, a="avg(d)")
    kept, _, _ = run(ps.tumbling("1h"), rows, a="avg(d)", m="median(x)")
    wanted = timedelta(microseconds=mean)
    assert (found[0]["a"], kept[0]["a"]) == (wanted, wanted)


def test_decimals_with_too_many_digits_are_refused() -> None:
    source = ps.from_rows([], schema={"m": pl.Decimal(38, 0), "ts": pl.Datetime("us")}, time="ts")
    at, big = ps.at("2024-01-01"), Decimal(10) ** 36 * 9
    for text in ("sum(m)", "avg(m)", "sum(m) + 0 * median(cast(m as double))"):
        query = source.aggregate(window=ps.tumbling("1h"), v=text).write_memory()
        with TestStream(query) as stream:
            stream.add([{"m": big, "ts": at}] * 12)
            stream.finish()
            stream.expect_reference()
            assert (stream.rows(), stream.counts()["refusedResults"]) == ([], 1)
            assert "does not fit" in stream.dead_letters()["reason"][0]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["merged", "kept"])
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize(
    "values",
    [[1.0, NAN, None, -3.0, 2.0, float("inf"), 0.0, 4.0, 5.0, 6.0], [NAN, None] * 5, [None] * 10,
     [float("-inf")] * 10, [1.0] * 9 + [NAN]],
    ids=["some", "all", "none", "infinite", "last"],
)  # fmt: skip
def test_nan_is_the_greatest_number(values: list[float | None], window: Window, form: str) -> None:
    more = {} if form == "merged" else {"m": "median(x)"}
    found, _, _ = run(
        window, rows_of(y=values), lo="min(y)", hi="max(y)", p=pl.col("y").max(), **more
    )
    frame = pl.DataFrame({"y": values}, schema={"y": pl.Float64})  # noqa: F841  # DuckDB reads it
    low, high = duckdb.execute("SELECT min(y), max(y) FROM frame").fetchall()[0]
    assert found
    for row in found:
        assert repr((row["lo"], row["hi"], row["p"])) == repr((low, high, high))
