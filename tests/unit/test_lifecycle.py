"""The life of a checkpoint: starts that go on, the finish, and starts after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.base.config import Config
from penstock.base.errors import CheckpointError, FinishedError, RefusedLimitError
from penstock.compiler import compile_query
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.testing.runner import LocalRun, frame_splits, run_stages

SCHEMA: dict[str, Any] = {"k": pl.String, "s": pl.String, "ts": pl.Datetime("us")}


def query() -> CompiledQuery:
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    number = stream.map(n="cast(s as bigint)")
    counted = number.aggregate(by="k", window=ps.tumbling("1 hour"), n="count(*)", total="sum(n)")
    return compile_query(counted.write_memory().sinks)


def day(number: int, *, text: str = "1", rows: int = 24) -> dict[int, list[pl.DataFrame]]:
    """Return a day's rows: one at each hour."""
    found = [
        {"k": "a", "s": text, "ts": ps.at(f"2024-01-{number + 1:02d} {i % 24:02d}:30:00")}
        for i in range(rows)
    ]
    return {0: [pl.DataFrame(found, schema=SCHEMA)]}


def ask_for(run: LocalRun, epoch: int, batch: dict[int, list[pl.DataFrame]]) -> None:
    run.driver.run_epoch(
        epoch, lambda query, plan: run_stages(query, plan, frame_splits(query, batch))
    )


def not_again(query: CompiledQuery, plan: EpochPlan) -> list[TaskReport]:
    raise AssertionError(f"epoch {plan.epoch} must not run")


def test_daily_starts_close_what_is_complete_and_go_on(tmp_path: Path) -> None:
    written = 0
    for number in range(5):
        run = LocalRun(query(), tmp_path)
        run.epoch(day(number))
        written += run.table().height
        assert written == 24 * (number + 1) - 1, "all hours but the last one are complete"
        assert run.driver.last is not None
        assert run.driver.last.totals["read"] == 24 * (number + 1)
    run = LocalRun(query(), tmp_path)
    assert run.driver.finish(lambda q, p: run_stages(q, p, [])) is not None
    assert written + run.table().height == 5 * 24


def test_input_after_the_finish_is_an_error_and_never_ignored(tmp_path: Path) -> None:
    run = LocalRun(query(), tmp_path)
    run.epoch(day(0))
    run.finish()
    for again in (run, LocalRun(query(), tmp_path)):
        for epoch in (1, 2):  # Spark's next one has the number of the closing epoch
            with pytest.raises(FinishedError, match="available_now=True and without finish=True"):
                ask_for(again, epoch, day(1))
        with pytest.raises(FinishedError, match="use a new checkpoint"):
            again.driver.check_unfinished()
    assert issubclass(FinishedError, CheckpointError)


def test_a_query_without_any_input_is_finished_too(tmp_path: Path) -> None:
    run = LocalRun(query(), tmp_path)
    run.finish()
    with pytest.raises(FinishedError):
        ask_for(LocalRun(query(), tmp_path), 0, day(0))


def test_what_was_run_before_the_finish_may_be_asked_for_again(tmp_path: Path) -> None:
    run = LocalRun(query(), tmp_path)
    run.epoch(day(0))
    run.epoch(day(1))
    run.finish()
    again = LocalRun(query(), tmp_path)
    assert again.driver.run_epoch(1, not_again).replayed, "Spark's commit was lost"
    assert again.driver.finish(not_again) is None
    assert again.driver.run_epoch(2, not_again, final=True).replayed
    with pytest.raises(CheckpointError):
        ask_for(again, 0, day(0))


def test_a_committed_epoch_is_not_taken_for_the_closing_one(tmp_path: Path) -> None:
    run = LocalRun(query(), tmp_path)
    run.epoch(day(0))
    with pytest.raises(CheckpointError, match="does not follow"):
        run.driver.run_epoch(0, not_again, final=True)


def test_the_limit_of_refused_rows_is_told_as_it_was_set(tmp_path: Path) -> None:
    run = LocalRun(query(), tmp_path, Config(fsync=False, maxRefusedRows=10))
    run.epoch(day(0, text="no number", rows=8))
    with pytest.raises(RefusedLimitError, match="refused=11, limit=10 "):
        run.epoch(day(1, text="no number", rows=8))


def test_a_checkpoint_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    place = tmp_path / "file" / "checkpoint"
    with pytest.raises(CheckpointError, match=f"'{place}': it cannot be read or written: .*give a"):
        LocalRun(query(), place)
