"""Dedup: the first row of each key, for some time or for ever."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import penstock as ps
from penstock.base.columns import POSITION, SOURCE, TIME
from penstock.base.errors import CheckpointError, QueryError
from penstock.base.times import NOT_STARTED
from penstock.driver.inspect import read_state
from penstock.files.place import place_of
from penstock.operators.keyed.dedup import DedupKernel
from penstock.query.dedup import Dedup
from penstock.query.stream import Stream
from penstock.testing import TestStream

SCHEMA = {"k": pl.Int64, "x": pl.Int64, "ts": pl.Datetime("us")}
FIRST = datetime(2024, 1, 1)


def at(second: float) -> datetime:
    return FIRST + timedelta(seconds=second)


def rows(*given: tuple[int | None, float]) -> list[dict[str, Any]]:
    return [{"k": k, "x": i, "ts": at(second)} for i, (k, second) in enumerate(given)]


def source(**options: Any) -> Stream:
    return ps.from_rows([], schema=SCHEMA, time="ts", **options)


@pytest.mark.parametrize("cuts", [1, 2, 3, 7])
def test_a_row_is_measured_against_the_last_that_was_kept(cuts: int) -> None:
    """At 0 kept, at 4 dropped, at 6 dropped since it is 6 after 0, at 10 kept, at 12 dropped."""
    given = rows((1, 0), (1, 4), (None, 5), (1, 6), (2, 6), (1, 10), (None, 5), (1, 12), (3, 40))
    made = source(delay="6s").dedup(by="k", within="10 seconds").write_memory(ordered=True)
    with TestStream(made, instances=2) as stream:
        for i in range(0, len(given), cuts):
            stream.add(given[i : i + cuts])
            stream.crash()
        stream.finish()
        stream.expect_reference()
        found = [(row["k"], row["ts"]) for row in stream.rows()]
    assert found == [(1, at(0)), (None, at(5)), (2, at(6)), (1, at(10)), (3, at(40))]


def test_a_note_of_an_earlier_row_does_not_end_that_of_a_later_one() -> None:
    with TestStream(source().dedup(by="k", within="10s").write_memory(ordered=True)) as stream:
        for second in (0, 10, 10.5, 12, 19, 20, 20.5):
            stream.add(rows((1, second)))
        stream.finish()
        stream.expect_reference()
        assert [row["ts"] for row in stream.rows()] == [at(0), at(10), at(20)]


def test_for_ever() -> None:
    with TestStream(source().dedup(by="k").write_memory(ordered=True)) as stream:
        stream.add(rows((1, 0), (1, 0), (2, 1)))
        stream.add(rows((1, 10**6), (2, 10**7), (3, 10**8)))
        stream.finish()
        stream.expect_reference()
        assert [row["k"] for row in stream.rows()] == [1, 2, 3]


def test_state_is_open(tmp_path: Path) -> None:
    made = source(delay="2s").dedup(by="k", within="10s").write_memory()
    with TestStream(made, tmp_path) as stream:
        stream.add(rows((1, 0), (2, 3), (1, 4), (1, 5)))
        root = place_of(tmp_path) / "penstock"
        assert read_state(root, "dedup-0").to_dicts() == [
            {"k": 1, "__kept": at(0), "__waiting": 2},
            {"k": 2, "__kept": None, "__waiting": 1},
        ]
        stream.add(rows((3, 60)))
        assert read_state(root)["k"].to_list() == [3]
    with pytest.raises(CheckpointError, match="dedup-0 within_us was 10000000 and is now 5000000"):
        TestStream(source(delay="2s").dedup(by="k", within="5s").write_memory(), tmp_path)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"by": "q"}, "dedup by: unknown column 'q'"),
        ({"by": "k", "within": "0s"}, "dedup: within must be positive"),
        ({"by": "k", "within": "1 month"}, "dedup: unknown unit 'month'"),
    ],
)
def test_mistakes(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(QueryError, match=problem):
        source().dedup(**options).write_memory()


def kernel_of(within: str | None) -> DedupKernel:
    node = source().dedup(by="k", within=within)._node
    assert isinstance(node, Dedup)
    return DedupKernel(node, 1, ordered=False)


def arriving(keys: Any, times: Any) -> pl.DataFrame:
    frame = pl.DataFrame({"k": keys, "x": 0, TIME: times}).with_row_index(POSITION)
    types = {"k": pl.Int64, "x": pl.Int64, TIME: pl.Int64, POSITION: pl.Int64}
    place = [pl.col(TIME).cast(pl.Datetime("us")).alias("ts"), pl.lit(0, pl.Int32).alias(SOURCE)]
    return frame.cast(types).with_columns(place)  # type: ignore[arg-type]


@pytest.mark.parametrize("within", [None, 1, 50, 10_000])
def test_many_rows_against_a_loop(within: int | None) -> None:
    """Keys of all sizes: one has half of the rows."""
    random = np.random.default_rng(7)
    keys = np.where(random.random(60_000) < 0.5, 0, random.zipf(1.3, 60_000) % 10_000)
    times = np.sort(random.integers(0, 300_000, 60_000))
    kernel = kernel_of(None if within is None else f"{within} us")
    state, found = kernel.restore([], NOT_STARTED), []
    for part in np.array_split(np.arange(60_000), 7):
        fresh = kernel.prepare(arriving(keys[part], times[part]).lazy()).collect()
        done = kernel.advance(state, [fresh], int(times[part][-1]))
        state = done.state
        found.append(done.results)
    found.append(kernel.advance(state, [], 1 << 62).results)
    expected: list[tuple[int, int]] = []
    last: dict[int, int] = {}
    for key, time in zip(keys.tolist(), times.tolist(), strict=True):
        if key not in last or (within is not None and time - last[key] >= within):
            last[key] = time
            expected.append((time, key))
    assert sorted(pl.concat(found).select(TIME, "k").rows()) == sorted(expected)


def test_a_key_is_forgotten_when_it_can_stop_no_row_any_more() -> None:
    kernel = kernel_of("10 us")
    state, kept = kernel.restore([], NOT_STARTED), []
    for time in range(0, 1000, 20):
        fresh = kernel.prepare(arriving(range(time, time + 20), [time] * 20).lazy()).collect()
        done = kernel.advance(state, [fresh], time + 1)
        state = done.state
        kept.append(done.kept)
        assert state.kept.live == 20
        assert sum(run.rows.height for run in state.ending) == 20
    assert kernel.compact(kept, state.watermark).height == 20
    assert kernel.restore(kept, state.watermark).kept.live == 20
