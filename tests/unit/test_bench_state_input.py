"""The input of the state benchmark, and what becomes of an engine that fails."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from bench import state
from bench.engines.state import StateJob
from bench.measure import EngineError, Ran
from bench.state_input import DAY, StateInput, expected
from bench.state_report import StateRow, table


def test_every_epoch_has_as_many_keys(tmp_path: Path) -> None:
    source = StateInput(keys=500, epochs=4, rows_per_epoch=100)
    epochs = list(source.measured())
    assert [frame["key"].n_unique() for frame in epochs] == [100] * 4
    assert not epochs[0]["key"].sort().equals(epochs[1]["key"].sort())
    assert pl.concat(source.preload())["key"].n_unique() == 500
    times = pl.concat([*source.preload(), *epochs])["ts"]
    assert times.dt.date().unique().to_list() == [DAY.date()]
    assert all(frame["ts"].max() == times.max() for frame in epochs)
    source.write(tmp_path)
    wanted = expected(tmp_path)
    assert wanted["rows"].sum() == 900
    assert wanted["key"].is_sorted()


def test_more_rows_than_keys_are_refused() -> None:
    with pytest.raises(ValueError, match="rows_per_epoch=10"):
        StateInput(keys=5, epochs=1, rows_per_epoch=10)


def test_an_engine_that_fails_gets_a_row_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(job: StateJob, module: str, *, limit_seconds: float) -> Ran:
        raise EngineError(job.engine, job.name, 1, "x\njava.lang.OutOfMemoryError: heap\ny")

    monkeypatch.setattr(state, "run_process", fail)
    (row,) = state.run(keys=[20], engines=["native-hdfs"], epochs=1, log=lambda _: None)
    assert row.failed == "java.lang.OutOfMemoryError: heap"
    assert row.epoch_ms_p50 is None


def test_the_table_has_a_row_for_each_figure() -> None:
    rows = [
        StateRow(
            engine="a", keys=10, epoch_ms_p50=2.0, bytes_written=4.0, epochs=1, rows_per_epoch=1
        ),
        StateRow(engine="a", keys=99, epochs=1, rows_per_epoch=1, failed="no memory"),
    ]
    assert table(rows).row_count == 2
