"""Problems: sentences about mistakes that know the line of the user's code."""

import copy
import pickle
import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock.base.errors import QueryError
from penstock.base.problems import Problem, locate
from penstock.query.other_names import OTHER_NAMES
from penstock.query.stream import Stream

QUERY = """\
import penstock as ps

rows = ps.from_rows([{"a": 1, "ts": ps.at("2024-01-01")}], time="ts")
query = (
    rows
    .map(b="missing + 1")
    .filter(
        "nowhere > 1",
    )
)
query.write_memory()
"""


def one_row() -> Stream:
    return ps.from_rows([{"a": 1, "ts": ps.at("2024-01-01")}], time="ts")


def test_every_mistake_has_the_line_of_its_call_not_of_the_sink(tmp_path: Path) -> None:
    file = tmp_path / "query.py"
    file.write_text(QUERY)
    done = subprocess.run(
        [sys.executable, "query.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    lines = done.stderr.splitlines()
    assert any("'missing'" in line and line.endswith("[query.py:6]") for line in lines), lines
    assert any("'nowhere'" in line and line.endswith("[query.py:7]") for line in lines), lines


def test_a_mistake_of_a_source_has_the_line_of_the_source() -> None:
    stream = ps.from_rows([{"a": 1}], time="ts")
    (problem,) = stream._problems
    first = test_a_mistake_of_a_source_has_the_line_of_the_source.__code__.co_firstlineno
    assert problem.where.endswith(f"test_problems.py:{first + 1}")


def test_mistakes_of_a_joined_stream_keep_their_lines() -> None:
    left, right = one_row().map(b="x1"), one_row().map(c="x2")
    with pytest.raises(QueryError) as caught:
        left.join(right, on="a", within="1 minute").write_memory()
    places = {problem.where for problem in caught.value.problems}
    assert len(caught.value.problems) == 2
    assert len(places) == 1  # both were made on the same line
    assert all("test_problems.py" in place for place in places)


def test_mistakes_in_sql_have_their_place_in_the_text_and_the_line_of_the_call() -> None:
    with pytest.raises(QueryError) as caught:
        ps.sql("SELECT missing FROM rows", rows=one_row())
    (problem,) = caught.value.problems
    assert "line 1, column 8" in problem
    assert "test_problems.py" in problem.where


def test_problems_survive_a_process_boundary() -> None:
    error = QueryError(problems=locate(["map: no columns given"]))
    assert "test_problems.py" in error.problems[0].where
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.problems[0].where == error.problems[0].where


def test_a_place_is_kept_when_told_again() -> None:
    first = Problem("map: no columns given", "query.py:3")
    assert Problem(first, "other.py:9").where == "query.py:3"


def test_what_streams_and_queries_look_like() -> None:
    stream = one_row().map(b="a + 1")
    assert repr(stream) == "<Stream: map b = a + 1; a Int64, ts Datetime('us'), b Int64>"
    assert repr(stream.map(c="x")).endswith("c unknown; 1 mistake>")
    both = stream.write_memory("one").also(stream.write_memory("two"))
    assert repr(both) == "<Query, not started: write memory one; write memory two>"


def test_a_window_that_is_none_is_a_mistake_among_others() -> None:
    wrong = one_row().aggregate(by="b", window="1 hour", n="count(*)")  # type: ignore[arg-type]
    with pytest.raises(QueryError) as caught:
        wrong.write_memory().explain()
    window, key = caught.value.problems
    assert window == "aggregate: window='1 hour' is no window; for example ps.tumbling('1 minute')"
    assert key.startswith("aggregate by: unknown column 'b'")


def test_keys_are_columns_or_say_so() -> None:
    counts = one_row().aggregate(by=pl.col("a"), window=ps.tumbling("1 hour"), n="count(*)")
    assert list(counts.schema) == ["a", "window_start", "window_end", "n"]
    with pytest.raises(QueryError, match=r"keys are columns; name the expression first") as caught:
        one_row().aggregate(by=[pl.col("a") + 1], window=ps.tumbling("1 hour"), n="count(*)")
    assert "test_problems.py" in caught.value.problems[0].where


def test_a_star_selects_all_columns() -> None:
    assert list(one_row().select("*", b="a + 1").schema) == ["a", "ts", "b"]


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("groupBy", "aggregate"),
        ("withColumn", "map"),
        ("where", "filter"),
        ("show", "write_memory"),
    ],
)
def test_names_of_other_frames_lead_to_those_of_a_stream(name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=f"no '{name}'; use {instead}"):
        getattr(one_row(), name)


def test_what_other_names_lead_to_exists() -> None:
    own = set(dir(ps.Stream))
    assert not own & set(OTHER_NAMES)
    used = {verb for text in OTHER_NAMES.values() for verb in re.findall(r"\b([a-z_]+)\(", text)}
    assert used - own <= {"tumbling", "count", "read_parquet", "table", "start"}
    assert copy.copy(one_row()).schema == one_row().schema
