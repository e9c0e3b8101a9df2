"""Splits by row group: several scan instances agree with one, also on what is late."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.compiler import compile_query
from penstock.plan.compiled import CompiledQuery
from penstock.plan.splits import Split
from penstock.sources.files import read_one
from penstock.sources.splits import assign
from penstock.testing.runner import LocalRun
from tests.spark.conftest import call_rows


@pytest.mark.parametrize("instances", [2, 5])
@pytest.mark.parametrize("statistics", [True, False])
def test_row_groups(tmp_path: Path, instances: int, statistics: bool) -> None:
    early = call_rows(0, 30)
    rows = pl.concat([call_rows(100, 50), early, call_rows(150, 20), call_rows(95, 8)])
    rows.write_parquet(tmp_path / "a.parquet", row_group_size=16, statistics=statistics)
    call_rows(165, 40).write_parquet(tmp_path / "b.parquet", statistics=statistics)
    stream = ps.read_parquet(tmp_path, time="ts", delay="70 seconds")
    outcomes = []
    for count in (1, instances):
        query = compile_query(stream.write_memory(ordered=True).sinks, instances=count)
        run = LocalRun(query, tmp_path / f"run{count}")
        done = run.files({0: [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]})
        run.finish()
        outcomes.append((run.table()["x"].to_list(), dict(done.counts)))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][1]["late"] == 30 + 4  # 0 to 29 below 149 - 70, then 95 to 98 below 169 - 70


def test_row_groups_are_dealt_in_turn(tmp_path: Path) -> None:
    """Every instance reads its part of one file, and small files do not all go to the same one."""
    large = tmp_path / "large.parquet"
    call_rows(0, 96).write_parquet(large, row_group_size=16)
    stream = ps.read_parquet(tmp_path, time="ts")
    query = compile_query(stream.write_memory().sinks, instances=3)
    assert _shares(query, [large], 3) == [2, 2, 2]
    small = [tmp_path / f"{i}.parquet" for i in range(60)]
    for path in small:
        call_rows(0, 4).write_parquet(path)
    assert min(_shares(query, small, 3)) > 10


def test_only_the_columns_that_are_needed_are_read(tmp_path: Path) -> None:
    """A column whose bytes are broken does no harm to a query that does not need it."""
    path = tmp_path / "a.parquet"
    call_rows(0, 32).write_parquet(path, row_group_size=16)
    data, metadata = bytearray(path.read_bytes()), pq.read_metadata(path)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        column = next(c for i in range(3) if (c := group.column(i)).path_in_schema == "src")
        start = column.dictionary_page_offset or column.data_page_offset
        data[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(data)
    schema = {"x": pl.Int64(), "ts": pl.Datetime("us")}
    assert read_one("parquet", str(path), schema, 10, (16, 16)).rows["x"].to_list() == [
        *range(16, 32)
    ]
    broken = read_one("parquet", str(path), schema | {"src": pl.String()}, 10, (16, 16))
    assert broken.rows.is_empty()
    assert len(broken.rejected) == 1


def _shares(query: CompiledQuery, paths: list[Path], instances: int) -> list[int]:
    """Return how many splits each instance has to read."""
    whole = [Split(source=0, ordinal=(0, path.name), path=str(path)) for path in paths]
    given = assign(query, whole, instances)
    mine = [payload.task for payload in given if Split.decode(payload.body).path is not None]
    return [mine.count(task) for task in range(instances)]
