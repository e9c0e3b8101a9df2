"""Mistakes in a query: each is found when it is built, and all are reported at once."""

from __future__ import annotations

import pickle
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.query.stream import Stream

ROWS = pl.DataFrame(
    {"a": [1], "s": ["x"], "ts": [ps.at("2024-01-01")]},
    schema={"a": pl.Int64, "s": pl.String, "ts": pl.Datetime("us")},
)
MINUTE = ps.tumbling("1 minute")


def stream(**options: Any) -> Stream:
    return ps.from_rows(ROWS, **({"time": "ts"} | options))


def problems(made: Stream) -> tuple[str, ...]:
    with pytest.raises(ps.QueryError) as caught:
        made.write_memory()
    return caught.value.problems


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (stream().map(b="aa + 1"), "map b: unknown column 'aa'; did you mean 'a'?"),
        (stream().map(b="s + 1"), "map b: cannot compute with String and a number"),
        (stream().map(b="a +"), "map b: cannot read 'a +'"),
        (stream().map(b="sum(a)"), "map b: not row-wise"),
        (stream().map(b=pl.col("a").shift(1)), "map b: not row-wise"),
        (stream().map(b=pl.col("a") - pl.col("a").mean()), "map b: not row-wise"),
        (stream().map(__b="a"), "map: column names that begin with '__' are reserved"),
        (stream().map(), "map: no columns given"),
        (stream().select("nope"), "select nope: unknown column 'nope'"),
        (stream().select("a", a="a + 1"), "select: column 'a' is given twice"),
        (stream().filter("a"), "filter: a predicate must be true or false; it is Int64"),
        (stream().route("a")[0], "route 0: a predicate must be true or false"),
        (stream().union(stream().map(b="a")), "union: input 1 has other columns; not in both: b"),
        (stream().union(stream().map(a="s")), "union: input 1 has type String for 'a'"),
        (stream().apply(lambda f: f, schema={}), "apply <lambda>: the output schema is empty"),
        (stream().aggregate(window=MINUTE, by="q", n="count(*)"), "aggregate by: unknown column"),
        (stream().aggregate(window=MINUTE, by="s"), "aggregate: no values given"),
        (stream().aggregate(window=MINUTE, n="a"), "aggregate n: not an aggregate"),
        (stream().aggregate(window=MINUTE, n="median(b)"), "aggregate n: unknown column 'b'"),
        (stream().aggregate(window=MINUTE, by="s", s="count(*)"), "clashes with a column"),
        (stream().aggregate(window=MINUTE, window_end="count(*)"), "clashes with a column"),
        (stream().aggregate(window=ps.tumbling("0 s"), n="count(*)"), "size must be positive"),
        (
            stream().aggregate(window=ps.sliding("1 s", every="2 s"), n="count(*)"),
            "advance is larger than its size",
        ),
        (stream(time="tss"), "time column: unknown column 'tss'; did you mean 'ts'?"),
        (stream(time="a"), "time column 'a' must be a timestamp or a date; it is Int64"),
        (stream(delay="-1 s"), "delay must not be negative"),
    ],
)
def test_one_mistake(made: Stream, text: str) -> None:
    found = problems(made)
    assert any(text in problem for problem in found), found


def test_all_mistakes_at_once_and_no_complaint_about_what_follows_from_one() -> None:
    made = (
        stream()
        .map(b="aa + 1", c="s + 1")
        .filter("b > 3")
        .aggregate(by="q", window=ps.sliding("1 minute", every="1 hour"), n="conut(*)")
    )
    found = problems(made)
    assert len(found) == 5
    assert "6" not in str(ps.QueryError(problems=found)).splitlines()[0]


def test_a_route_to_nowhere() -> None:
    with pytest.raises(ps.QueryError, match="route: no predicates given"):
        stream().route()


def test_errors_survive_pickling() -> None:
    error = ps.RefusedLimitError(refused=3, limit=2, epoch=7, reason="map: bad")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is ps.RefusedLimitError
    assert str(again) == str(error)
    assert "limit=2" in str(error)
    assert issubclass(ps.QueryError, ValueError)


def test_a_query_survives_pickling() -> None:
    from pyspark import cloudpickle

    from penstock.compiler import compile_query

    made = stream().apply(lambda f: f.select("a"), schema={"a": pl.Int64}).write_memory()
    query = compile_query(made.sinks)
    blob = cloudpickle.dumps(query)  # type: ignore[no-untyped-call]  # has no types
    again = cloudpickle.loads(blob)
    assert again.operator_name(1) == query.operator_name(1) == "apply-0"
    assert dict(again.nodes[0].schema) == dict(query.nodes[0].schema)


def test_two_sinks_on_one_folder_are_refused() -> None:
    sink = stream().write_parquet("same")
    with pytest.raises(ps.QueryError, match="two sinks write to the same parquet 'same'"):
        sink.also(stream().write_parquet("same")).explain()


def test_a_folder_without_files_needs_a_schema(tmp_path: Any) -> None:
    with pytest.raises(ps.QueryError, match="no csv file in"):
        ps.read_csv(tmp_path, time="ts")


def test_schemas_are_read_from_the_first_file(tmp_path: Any) -> None:
    (tmp_path / "a.csv").write_text("ts,x\n2024-01-01 00:00:00,1\n")
    (tmp_path / "a.jsonl").write_text('{"ts": "2024-01-01T00:00:00", "x": 1.5}\n')
    assert ps.read_csv(tmp_path, time="ts").schema["ts"] == pl.Datetime("us")
    assert ps.read_ndjson(tmp_path, time="ts").schema == {
        "ts": pl.Datetime("us"),
        "x": pl.Float64(),
    }
