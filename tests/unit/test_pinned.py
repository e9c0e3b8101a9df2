"""Pinned meaning: what would make old state mean something else is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.base.errors import CheckpointError
from penstock.compiler import compile_query
from penstock.driver.pinned import meaning, pin
from penstock.files.place import place_of
from penstock.query.stream import Sinks, Stream
from penstock.testing import TestStream

SCHEMA: dict[str, Any] = {"k": pl.String, "x": pl.Int64, "unused": pl.Int64, "ts": pl.Datetime}


def rows(**options: Any) -> Stream:
    schema = options.pop("schema", SCHEMA)
    return ps.from_rows([], schema=schema, time="ts", **options)


def counted(stream: Stream, **options: Any) -> Stream:
    settings: dict[str, Any] = {"by": "k", "window": ps.tumbling("1 minute"), "n": "sum(x)"}
    settings |= options
    return stream.aggregate(**settings)


def twice(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("x") * 2)


def thrice(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("x") * 3)


def as_first(function: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[..., pl.DataFrame]:
    function.__name__ = function.__qualname__ = "step"
    return function


def opened(folder: Path, query: Sinks, *, buckets: int = 1024, time_zone: str = "UTC") -> None:
    compiled = compile_query(query.sinks, buckets=buckets)
    pin(place_of(folder, fsync=False), meaning(compiled, time_zone), "word")


SOURCE = rows()
FIRST = counted(SOURCE.filter("x > 0"))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (counted(rows().filter("x > 1")), "aggregate-0 input"),
        (counted(rows()), "aggregate-0 input"),
        (counted(rows().map(x="x + 1").filter("x > 0")), "aggregate-0 input"),
        (
            counted(rows().filter("x > 0"), n="max(x)"),
            r"aggregate-0 values: 'n' was sum\(x\) and is now max\(x\); use",
        ),
        (
            counted(rows().filter("x > 0"), n="sum(x)", m=pl.col("x").mean()),
            r"aggregate-0 values: 'm' is new, x.mean\(\); use",
        ),
        (counted(rows().filter("x > 2")), r"was 'source 0 > filter x > 0' and is now '.* x > 2'"),
        (counted(rows().filter("x > 0"), by="x"), "aggregate-0 by"),
        (counted(rows().filter("x > 0"), window=ps.tumbling("2 minutes")), "aggregate-0 window"),
        (
            counted(rows(delay="1 second").filter("x > 0")),
            "source 0 delay was '0s' and is now '1s'",
        ),
        (
            counted(rows(schema=SCHEMA | {"x": pl.Int32}).filter("x > 0")),
            r"source 0 columns was \{.*Int64",
        ),
        (counted(FIRST.select("k", "n", x="n"), n="sum(n)"), "aggregate-1 by"),
    ],
)
def test_a_changed_meaning_is_refused_by_name(tmp_path: Path, changed: Stream, named: str) -> None:
    opened(tmp_path, FIRST.write_memory())
    with pytest.raises(CheckpointError, match=rf"another query: .*{named}"):
        opened(tmp_path, changed.write_memory())


def test_buckets_and_time_zone_are_pinned(tmp_path: Path) -> None:
    opened(tmp_path, FIRST.write_memory())
    with pytest.raises(CheckpointError, match="buckets was 1024 and is now 512"):
        opened(tmp_path, FIRST.write_memory(), buckets=512)
    with pytest.raises(CheckpointError, match="time zone was 'UTC' and is now 'Europe/Berlin'"):
        opened(tmp_path, FIRST.write_memory(), time_zone="Europe/Berlin")


def test_the_code_of_a_function_before_an_aggregate_is_pinned(tmp_path: Path) -> None:
    schema = {"k": pl.String, "x": pl.Int64, "unused": pl.Int64, "ts": pl.Datetime}
    opened(tmp_path, counted(rows().apply(as_first(twice), schema=schema)).write_memory())
    opened(tmp_path, counted(rows().apply(as_first(twice), schema=schema)).write_memory())
    with pytest.raises(CheckpointError, match="aggregate-0 input"):
        opened(tmp_path, counted(rows().apply(as_first(thrice), schema=schema)).write_memory())


@pytest.mark.parametrize(
    "compatible",
    [
        FIRST.filter("n > 10").write_memory(),
        FIRST.map(m="n + 1").write_memory(),
        FIRST.write_memory("a").also(FIRST.write_memory("b")),
        FIRST.write_memory().also(SOURCE.select("unused", "ts").write_memory("raw")),
        counted(
            rows(schema={n: t for n, t in SCHEMA.items() if n != "unused"}).filter("x > 0")
        ).write_memory(),
    ],
)
def test_what_comes_after_the_state_may_change(tmp_path: Path, compatible: Sinks) -> None:
    opened(tmp_path, FIRST.write_memory())
    opened(tmp_path, compatible)
    opened(tmp_path, FIRST.write_memory())


def test_a_new_ordered_sink_is_let_in_and_pinned_from_then_on(tmp_path: Path) -> None:
    opened(tmp_path, FIRST.write_memory())
    opened(tmp_path, FIRST.write_memory().also(FIRST.write_memory("o", ordered=True)))
    with pytest.raises(CheckpointError, match="sink-0 target was 'memory o' and is now None"):
        opened(tmp_path, FIRST.write_memory())


def at(second: int) -> dict[str, Any]:
    return {"k": "a", "x": 1, "unused": 0, "ts": ps.at(f"2024-01-01 00:{second // 60:02d}:00")}


def test_an_unpublished_epoch_goes_where_it_was_meant_to_go(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    with TestStream(FIRST.write_parquet(one), tmp_path / "c") as stream:
        stream.add([at(0)])
        stream._run.die_in(stream._batch([at(120)], 1), committed=True)
    both = FIRST.write_parquet(other).also(FIRST.write_parquet(one))
    with TestStream(both, tmp_path / "c") as stream:
        assert [row["n"] for row in stream.rows(str(one))] == [1]
        assert stream.rows(str(other)) == []
        stream.add([at(240)])
        assert len(stream.rows(str(one))) == 2
        assert len(stream.rows(str(other))) == 1


def meaning_of(stream: Stream) -> dict[str, Any]:
    return meaning(compile_query(stream.write_memory().sinks))


def test_before_the_first_commit_a_query_may_be_mended(tmp_path: Path) -> None:
    root = place_of(tmp_path, fsync=False)
    first, other = (
        meaning(compile_query(s.write_memory().sinks)) for s in (FIRST, counted(SOURCE))
    )
    began = pin(root, first, None)
    assert pin(root, first, None) == began
    mended = pin(root, other, None)
    assert mended != began
    with pytest.raises(CheckpointError, match="another query"):
        pin(root, first, mended)


def test_what_a_driver_has_committed_counts_even_if_another_pinned_later(tmp_path: Path) -> None:
    root = place_of(tmp_path, fsync=False)
    first, other = (
        meaning(compile_query(s.write_memory().sinks)) for s in (FIRST, counted(SOURCE))
    )
    began = pin(root, first, None)
    pin(root, other, None)  # while the other has not committed yet
    assert pin(root, first, began) == began
    with pytest.raises(CheckpointError, match="another query"):
        pin(root, other, began)
