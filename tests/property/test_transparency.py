"""Transparency: however a query is cut, split, moved and crashed, it gives the reference's rows.

``PENSTOCK_EXAMPLES`` sets how many examples a test tries; with ``CI=true`` they never change.
"""

from __future__ import annotations

import os
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.compiler import compile_query
from penstock.driver.outputs import read_side_output
from penstock.query.stream import Stream
from penstock.testing.compare import difference
from penstock.testing.reference import evaluate
from penstock.testing.runner import LocalRun
from penstock.testing.streams import TestStream
from tests.property.queries import COLUMNS
from tests.property.strategies import Row, Scenario, arrivals, scenarios

pytestmark = pytest.mark.filterwarnings("ignore:top without a window")

PLAIN = {name: COLUMNS[name] for name in ("k", "x", "y", "ts")}
few = settings(max_examples=max(1, settings().max_examples // 4))
many = settings(max_examples=int(os.environ.get("PENSTOCK_EXAMPLES", "300")))


@many
@given(scenario=scenarios())
@pytest.mark.timeout(1200)
def test_engine_agrees_with_the_reference(scenario: Scenario) -> None:
    scenario.check()


def chunked(rows: list[Row], cuts: list[int]) -> list[list[Row]]:
    ends = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    return [rows[a:b] for a, b in pairwise(ends)]


cut_places = st.lists(st.integers(0, 45), max_size=5)
delays = st.sampled_from([0, 2, 5, 20])


@few
@given(rows=arrivals(), delay=delays, cuts=cut_places, instances=st.integers(1, 5))
def test_late_independent_of_cuts(
    rows: list[Row], delay: int, cuts: list[int], instances: int
) -> None:
    source = ps.from_rows([], schema=COLUMNS, time="ts", delay=timedelta(seconds=delay))
    late, highest = [], None
    for row in rows:
        if row["ts"] is not None:
            if highest is not None and row["ts"] < highest - timedelta(seconds=delay):
                late.append(row)
            highest = row["ts"] if highest is None else max(highest, row["ts"])
    with TestStream(source.write_memory(), instances=instances) as stream:
        for chunk in chunked(rows, cuts):
            stream.add(chunk, splits=3)
        found = stream.late().get(0, pl.DataFrame(schema=COLUMNS | {"epoch": pl.Int64()}))
        assert not difference(found.drop("epoch").to_dicts(), late)
        assert stream.counts()["late"] == len(late)


@few
@given(
    rows=arrivals(),
    delay=delays,
    cuts=cut_places,
    instances=st.integers(1, 5),
    form=st.sampled_from(["parquet", "csv", "ndjson", "arrow"]),
)
def test_files_of_any_format_in_any_cut(
    rows: list[Row], delay: int, cuts: list[int], instances: int, form: str
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        paths = [
            _written(chunk, folder / f"{i}.{form}") for i, chunk in enumerate(chunked(rows, cuts))
        ]
        source: Stream = getattr(ps, f"read_{form}")(
            folder, time="ts", schema=PLAIN, delay=timedelta(seconds=delay)
        )
        ends = source.aggregate(
            by="k", window=ps.sliding("7s", every="3s"), n="count(*)", m="last(y)"
        )
        query = source.write_memory("all", ordered=True).also(ends.write_memory("ends"))
        run = LocalRun(compile_query(query.sinks, instances=instances), folder / "checkpoint")
        for start in range(0, len(paths), 2):
            run.files({0: paths[start : start + 2]})
        run.finish()
        _expect_reference(run, query.sinks, rows)


def _written(rows: list[Row], path: Path) -> str:
    frame = pl.DataFrame(rows, schema=COLUMNS).select(list(PLAIN))
    if path.suffix == ".parquet":
        frame.write_parquet(path, row_group_size=4)
    elif path.suffix == ".csv":
        frame.write_csv(path)
    elif path.suffix == ".ndjson":
        frame.with_columns(pl.col("ts").dt.to_string("iso:strict")).write_ndjson(path)
    else:
        frame.write_ipc(path)
    return str(path)


def _expect_reference(
    run: LocalRun, sinks: tuple[ps.query.nodes.Sink, ...], rows: list[Row]
) -> None:
    plain = [{name: row[name] for name in PLAIN} for row in rows]
    reference = evaluate(sinks, {0: plain}, finish=True)
    for number, sink in run.driver.query.sinks:
        found = run.table(number).to_dicts()
        odd = difference(found, reference.rows[number], ordered=sink.ordered)
        assert not odd, odd
    late = read_side_output(run.driver.root, "late").get(0, pl.DataFrame())
    found_late = late.select(list(PLAIN)).to_dicts() if late.height else []
    assert not difference(found_late, reference.late[0])
    assert run.driver.last is not None
    assert run.driver.last.totals["refused"] == reference.refused


EXACT = {
    "count(*)": 6, "count(x)": 5, "sum(x)": 20, "avg(x)": 4.0, "min(x)": 1, "max(x)": 9,
    "first(x)": 3, "last(x)": 9, "count(distinct x)": 4, "variance(x)": 9.0, "stddev(x)": 3.0,
    "median(x)": 3.0, "sum(x) / count(*)": 20 / 6, "max(x) - min(x)": 8, "sum(1)": 6,
    "sum(x) filter (where x > 3)": 13, "min(k)": "a", "max(d)": timedelta(seconds=9),
    "avg(d)": timedelta(seconds=4), "sum(d) + max(d)": timedelta(seconds=29),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [[], [1], [2, 3, 5]], ids=str)
@pytest.mark.parametrize("text", list(EXACT))
def test_aggregate_functions(text: str, cuts: list[int]) -> None:
    values = [3, 1, None, 3, 4, 9]
    rows = [
        {"k": "ab"[i % 2], "x": x, "d": None if x is None else timedelta(seconds=x), "ts": _at(i)}
        for i, x in enumerate(values)
    ]
    source = ps.from_rows([], schema=COLUMNS, time="ts")
    query = source.aggregate(window=ps.sliding("20s", every="10s"), v=text).write_memory()
    with TestStream(query, instances=2) as stream:
        for chunk in chunked(rows, cuts):
            stream.add(chunk)
        stream.finish()
        found = [row["v"] for row in stream.rows()]
        assert (
            found
            == [pytest.approx(EXACT[text]) if isinstance(EXACT[text], float) else EXACT[text]] * 2
        )
        stream.expect_reference()


def _at(second: float) -> object:
    return ps.at("2024-01-01 00:00:00") + timedelta(seconds=second)


@pytest.mark.parametrize(
    "text",
    ["sum(y)", "avg(y)", "min(y)", "max(y)", "variance(y)", "last(y)", "count(distinct y)",
     "median(y)", "count(y)"],
)  # fmt: skip
def test_floats_that_are_no_numbers(text: str) -> None:
    values = [1.0, float("nan"), None, float("inf"), -2.0, float("nan"), float("-inf")]
    rows: list[Row] = [{"y": y, "ts": _at(i)} for i, y in enumerate(values)]
    source = ps.from_rows([], schema=COLUMNS, time="ts")
    query = source.aggregate(window=ps.sliding("4s", every="1s"), v=text).write_memory()
    with TestStream(query, instances=2) as stream:
        for chunk in chunked(rows, [1, 3, 6]):
            stream.add(chunk)
        stream.finish()
        stream.expect_reference()


@pytest.mark.parametrize(
    "dtype",
    [pl.Datetime("ms"), pl.Datetime("ns"), pl.Datetime("us", "Europe/Paris"), pl.Date()],
    ids=str,
)
def test_time_columns_of_any_type(dtype: pl.DataType) -> None:
    hours = [0, 30, 12, 90, 20, 120, 300]
    times = pl.Series([ps.at("1969-12-30") + timedelta(hours=h) for h in hours])
    zone = getattr(dtype, "time_zone", None)
    typed = times.dt.replace_time_zone("UTC").dt.convert_time_zone(zone) if zone else times
    rows: list[Row] = [{"x": i, "ts": t} for i, t in enumerate(typed.cast(dtype))]
    source = ps.from_rows([], schema={"x": pl.Int64, "ts": dtype}, time="ts", delay="24 hours")
    ends = source.aggregate(window=ps.sliding("7 days", every="3 days"), n="count(*)", t="min(ts)")
    query = source.write_memory("all", ordered=True).also(ends.write_memory("ends"))
    with TestStream(query, instances=3) as stream:
        stream.add(rows[:3], splits=2)
        stream.add(rows[3:], splits=2)
        stream.expect_reference()
        assert stream.counts()["late"] == 1


@few
@given(
    values=st.lists(st.integers(-1000, 1000) | st.none(), min_size=1, max_size=60),
    q=st.sampled_from([0.0, 0.01, 0.25, 0.5, 0.9, 1.0]),
    cuts=cut_places,
)
def test_approximate_quantiles_are_near(
    values: list[int | None], q: float, cuts: list[int]
) -> None:
    source = ps.from_rows([], schema=COLUMNS, time="ts")
    query = source.aggregate(window=ps.tumbling("1h"), v=ps.approx_quantile("x", q)).write_memory()
    rows: list[Row] = [{"x": x, "ts": _at(i)} for i, x in enumerate(values)]
    with TestStream(query, instances=2) as stream:
        for chunk in chunked(rows, cuts):
            stream.add(chunk)
        stream.finish()
        found = [row["v"] for row in stream.rows()]
        exact = [row["v"] for row in stream.reference().rows[2]]
    assert found == [None if v is None else pytest.approx(v, rel=0.02) for v in exact]


@pytest.mark.parametrize("distinct", [0, 1, 10, 1000, 50_000])
def test_approximate_distinct_counts_are_near(distinct: int) -> None:
    source = ps.from_rows([], schema=COLUMNS, time="ts")
    query = source.aggregate(window=ps.tumbling("1h"), v=ps.approx_distinct("x")).write_memory()
    rows: list[Row] = [
        {"x": i % distinct if distinct else None, "ts": _at(0)} for i in range(60_000)
    ]
    with TestStream(query, instances=2) as stream:
        stream.add(rows[:30_000])
        stream.add(rows[30_000:])
        stream.finish()
        (row,) = stream.rows()
    assert row["v"] == pytest.approx(distinct, rel=0.05)
