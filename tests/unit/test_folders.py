"""Folders as they are found: partition columns, columns that come and go, late rows."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.base.errors import QueryError
from penstock.compiler import compile_query
from penstock.driver.outputs import read_side_output
from penstock.plan.epoch import EpochPlan
from penstock.query.stream import Stream
from penstock.sources import folder
from penstock.sources.files import ReadFile
from penstock.sources.partitions import partition_values
from penstock.testing import TestStream
from penstock.testing.runner import LocalRun

SCHEMA: dict[str, Any] = {"k": pl.String, "x": pl.Int64, "ts": pl.Datetime("us")}


def rows(*seconds: int) -> pl.DataFrame:
    return pl.DataFrame(
        [{"k": f"k{s}", "x": s, "ts": datetime(2024, 1, 1, 0, 0, s)} for s in seconds],
        schema=SCHEMA,
    )


def run(stream: Stream, folder: Path, *epochs: list[Path], instances: int = 1) -> LocalRun:
    query = compile_query(stream.write_memory().sinks, instances=instances)
    found = LocalRun(query, folder / "checkpoint")
    for paths in epochs:
        found.files({0: [str(path) for path in paths]})
    return found


def write(frame: pl.DataFrame, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    getattr(frame, f"write_{ {'.arrow': 'ipc'}.get(path.suffix, path.suffix[1:]) }")(path)
    return path


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("form", ["parquet", "csv", "ndjson", "arrow"])
def test_values_of_folders_are_columns(tmp_path: Path, form: str, instances: int) -> None:
    folder = tmp_path / "in"
    first = write(rows(1, 2), folder / "year=2024" / "day=2024-03-01" / f"a.{form}")
    second = write(rows(3), folder / "year=2025" / "day=2024-03-02" / f"b.{form}")
    null = write(rows(4), folder / "year=2025" / "day=__HIVE_DEFAULT_PARTITION__" / f"c.{form}")
    wrong = write(rows(5), folder / "year=x" / "day=2024-03-02" / f"d.{form}")
    beside = write(rows(6), folder / f"e.{form}")
    read = getattr(ps, f"read_{form}")
    stream = read(
        folder, time="ts", schema=SCHEMA, partitions={"year": pl.Int32, "day": pl.Date},
    )  # fmt: skip
    assert list(stream.schema) == ["k", "x", "ts", "year", "day"]
    done = run(stream.select("x", "year", "day"), tmp_path, [first, second, null, wrong, beside],
               instances=instances)  # fmt: skip
    assert sorted(done.table().rows(), key=lambda row: row[0]) == [
        (1, 2024, date(2024, 3, 1)),
        (2, 2024, date(2024, 3, 1)),
        (3, 2025, date(2024, 3, 2)),
        (4, 2025, None),
    ]
    assert done.driver.last is not None
    assert done.driver.last.file_totals == {"seen": 5, "read": 3, "refused": 2, "waiting": 0}
    reasons = read_side_output(done.driver.root, "dead")[0]["reason"].sort().to_list()
    assert reasons == ["folder year=x: no value of type Int32", "no folder year=… in its path"]


def test_partition_columns_can_be_found(tmp_path: Path) -> None:
    write(rows(1), tmp_path / "year=2024" / "month=03" / "a.parquet")
    stream = ps.read_parquet(tmp_path, time="ts", partitions=True)
    assert stream.schema["year"] == pl.Int64
    assert stream.schema["month"] == pl.String  # 03 is no whole number that says itself
    with pytest.raises(QueryError, match="to find the partition columns by"):
        ps.read_parquet(tmp_path / "year=2024" / "month=03", time="ts", partitions=True)


def test_the_time_is_no_partition_column(tmp_path: Path) -> None:
    stream = ps.read_parquet(
        tmp_path, time="day", schema={"x": pl.Int64}, partitions={"day": pl.Date}
    )
    with pytest.raises(QueryError, match="must be in the files"):
        stream.write_memory()


def test_a_column_of_a_folder_stands_before_that_of_a_file(tmp_path: Path) -> None:
    path = write(rows(1), tmp_path / "in" / "k=other" / "a.parquet")
    stream = ps.read_parquet(tmp_path / "in", time="ts", schema=SCHEMA, partitions={"k": pl.String})
    assert run(stream, tmp_path, [path]).table()["k"].to_list() == ["other"]


@pytest.mark.parametrize("form", ["parquet", "csv", "ndjson", "arrow"])
@pytest.mark.parametrize("instances", [1, 2])
def test_late_rows_have_all_columns(tmp_path: Path, form: str, instances: int) -> None:
    folder = tmp_path / "in" / "year=2024"
    paths = [
        write(frame, folder / f"{number}.{form}")
        for number, frame in enumerate([rows(10, 11), rows(20, 5, 21, 6), rows(30)])
    ]
    stream = getattr(ps, f"read_{form}")(
        tmp_path / "in", time="ts", schema=SCHEMA, partitions={"year": pl.Int64}
    )
    done = run(stream.select("x"), tmp_path, paths, instances=instances)
    late = read_side_output(done.driver.root, "late")[0].drop("epoch")
    assert late.equals(rows(5, 6).with_columns(year=pl.lit(2024, pl.Int64)))


@pytest.mark.parametrize("late", ["all", "needed"])
def test_files_without_late_rows_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    again: list[str] = []

    def reading(self: folder.Folder, path: str, *args: Any, **options: Any) -> ReadFile:
        again.append(Path(path).name)
        return read(self, path, *args, **options)

    read = folder.Folder.read
    monkeypatch.setattr(folder.Folder, "read", reading)
    paths = [
        write(frame, tmp_path / "in" / f"{number}.parquet")
        for number, frame in enumerate([rows(10, 11), rows(20, 5), rows(30)])
    ]
    stream = ps.read_parquet(tmp_path / "in", time="ts", schema=SCHEMA, late=late)
    done = run(stream.select("x"), tmp_path, paths)
    found = read_side_output(done.driver.root, "late")[0].drop("epoch")
    assert found.columns == (["k", "x", "ts"] if late == "all" else ["x", "ts"])
    assert again == (["1.parquet"] if late == "all" else [])


def test_late_rows_of_a_test_stream_can_be_replayed() -> None:
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    with TestStream(stream.select("x").write_memory()) as test:
        test.add(rows(10, 1).to_dicts())
        (late,) = test.late().values()
        assert late.drop("epoch").equals(rows(1))
        test.expect_reference()


def test_a_column_that_the_query_does_not_read_may_be_anything(tmp_path: Path) -> None:
    odd = rows(10, 5).with_columns(k=pl.lit(2.5))
    path = write(odd, tmp_path / "in" / "0.parquet")
    less = write(rows(20, 6).drop("k"), tmp_path / "in" / "1.parquet")
    stream = ps.read_parquet(tmp_path / "in", time="ts", schema=SCHEMA)
    done = run(stream.select("x"), tmp_path, [path, less])
    assert done.table()["x"].to_list() == [10, 20]
    late = read_side_output(done.driver.root, "late")[0]
    assert late["k"].to_list() == [None, None]
    assert late["x"].to_list() == [5, 6]


@pytest.mark.parametrize("form", ["parquet", "csv", "ndjson", "arrow"])
def test_columns_that_come_and_go(tmp_path: Path, form: str) -> None:
    """More columns are passed over; a column less is a refused file (in JSON: nulls)."""
    more = write(rows(2).with_columns(new=pl.lit(1)), tmp_path / "in" / f"1.{form}")
    less = write(rows(3).drop("x"), tmp_path / "in" / f"2.{form}")
    last = write(rows(4).select("ts", "x", "k"), tmp_path / "in" / f"3.{form}")
    stream = getattr(ps, f"read_{form}")(tmp_path / "in", time="ts", schema=SCHEMA)
    done = run(stream, tmp_path, [more, less, last])
    assert done.driver.last is not None
    if form == "ndjson":
        assert done.table()["x"].to_list() == [2, None, 4]
        return
    assert done.table()["x"].to_list() == [2, 4]
    assert done.driver.last.file_totals == {"seen": 3, "read": 2, "refused": 1, "waiting": 0}
    assert read_side_output(done.driver.root, "dead")[0]["reason"].to_list() == [
        "the file has no column 'x'"
    ]


@pytest.mark.parametrize("form", ["parquet", "csv", "ndjson", "arrow"])
def test_names_that_differ_in_case(tmp_path: Path, form: str) -> None:
    """They are two columns, in files and in rows of the program."""
    frame = rows(1, 2).with_columns(X=pl.col("x") * 10)
    path = write(frame, tmp_path / "in" / f"1.{form}")
    schema = SCHEMA | {"X": pl.Int64}
    stream = getattr(ps, f"read_{form}")(tmp_path / "in", time="ts", schema=schema)
    done = run(stream.select("x", "X"), tmp_path, [path])
    assert done.table().rows() == [(1, 10), (2, 20)]
    given = ps.from_rows(frame, time="ts").select("x", "X")
    with TestStream(given.write_memory()) as test:
        test.add(frame.to_dicts())
        assert test.rows() == [{"x": 1, "X": 10}, {"x": 2, "X": 20}]


def test_sources_with_one_name_have_names_of_their_own() -> None:
    streams = [ps.from_rows([], schema=SCHEMA, time="ts", name=n) for n in ("a", "b", "a", "a")]
    query = compile_query(streams[0].union(*streams[1:]).write_memory().sinks)
    assert list(query.source_names.values()) == ["a", "b", "a #2", "a #3"]


def test_a_plan_without_files_tries_none() -> None:
    assert EpochPlan(epoch=0, checkpoint="c").again == ()
    assert partition_values(ps_files("/d"), "/d/a.csv").width == 0


def ps_files(path: str) -> Any:
    from penstock.query.nodes import Files

    return Files(path=path, format="csv")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "one.parquet")
    with pytest.raises(QueryError, match="is a file; give the folder that it is in"):
        ps.read_parquet(tmp_path / "one.parquet", time="a")
