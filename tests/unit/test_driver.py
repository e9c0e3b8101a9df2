"""The driver beside another one: whatever it is asked for, it notices that it was overtaken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.base.errors import CheckpointError, FencedError
from penstock.compiler import compile_query
from penstock.testing.runner import LocalRun, frame_splits, run_stages

SCHEMA: dict[str, Any] = {"k": pl.String, "ts": pl.Datetime("us")}


def run_on(folder: Path) -> LocalRun:
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    counted = stream.aggregate(by="k", window=ps.tumbling("1 minute"), n="count(*)")
    return LocalRun(compile_query(counted.write_memory().sinks), folder)


def batch(minute: int) -> dict[int, list[pl.DataFrame]]:
    row = {"k": "a", "ts": ps.at(f"2024-01-01 00:{minute:02d}:00")}
    return {0: [pl.DataFrame([row], schema=SCHEMA)]}


def ask_for(run: LocalRun, epoch: int) -> None:
    run.driver.run_epoch(
        epoch, lambda query, plan: run_stages(query, plan, frame_splits(query, batch(epoch)))
    )


def test_an_epoch_that_does_not_follow_is_refused(tmp_path: Path) -> None:
    run = run_on(tmp_path)
    ask_for(run, 0)
    for epoch in (2, 5):
        with pytest.raises(CheckpointError, match=rf"epoch {epoch} does not follow epoch 0"):
            ask_for(run, epoch)


@pytest.mark.parametrize("epoch", [1, 2, 3], ids=["committed", "next", "beyond"])
def test_a_driver_that_was_overtaken_is_fenced(tmp_path: Path, epoch: int) -> None:
    first, second = run_on(tmp_path), run_on(tmp_path)
    ask_for(first, 0)
    second = run_on(tmp_path)
    ask_for(first, 1)
    with pytest.raises(FencedError, match="stop one of the two for good"):
        ask_for(second, epoch)
    ask_for(first, 2)
    assert first.driver.last is not None
    assert first.driver.last.totals["read"] == 3


def test_two_that_run_the_same_epoch_at_once(tmp_path: Path) -> None:
    first, second = run_on(tmp_path), run_on(tmp_path)

    def in_between(then: Callable[[], None]) -> None:
        def execute(query: Any, plan: Any) -> Any:
            reports = run_stages(query, plan, frame_splits(query, batch(0)))
            then()
            return reports

        first.driver.run_epoch(0, execute)

    with pytest.raises(FencedError, match="another driver"):
        in_between(lambda: ask_for(second, 0))
    ask_for(second, 1)
    assert second.driver.last is not None
    assert second.driver.last.totals["read"] == 2
