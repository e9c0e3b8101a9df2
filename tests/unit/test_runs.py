"""Waiting rows: nothing is lost, few frames, and only what leaves or is new is touched."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.stores.runs import FANOUT, Run, add_run, take_below

batches = st.lists(
    st.tuples(st.lists(st.integers(-20, 20), max_size=12), st.integers(-5, 25)), max_size=12
)


def joined(frames: Sequence[pl.DataFrame]) -> Run:
    return Run.of(pl.concat(frames), "t")


@given(batches=batches)
def test_rows_leave_once_and_when_they_should(batches: list[tuple[list[int], int]]) -> None:
    runs: tuple[Run, ...] = ()
    waiting: list[int] = []
    for times, frontier in batches:
        if times:
            runs = add_run(runs, Run.of(pl.DataFrame({"t": times}), "t"), joined)
        before = [run.rows.clone() for run in runs]
        taken, rest = take_below(runs, "t", frontier)
        assert all(a.equals(b.rows) for a, b in zip(before, runs, strict=True))
        waiting += times
        left = sorted(t for t in waiting if t < frontier)
        waiting = [t for t in waiting if t >= frontier]
        assert sorted(t for frame in taken for t in frame["t"]) == left
        assert sorted(t for run in rest for t in run.rows["t"]) == sorted(waiting)
        for run in rest:
            assert run.rows["t"].is_sorted()
            assert (run.low, run.high) == (run.rows["t"].min(), run.rows["t"].max())
        runs = rest


def test_frames_are_few_and_rows_are_merged_few_times() -> None:
    merged = 0

    def counted(frames: Sequence[pl.DataFrame]) -> Run:
        nonlocal merged
        merged += sum(frame.height for frame in frames)
        return joined(frames)

    runs: tuple[Run, ...] = ()
    epochs, rows = 1_000, 10
    for epoch in range(1, epochs + 1):
        runs = add_run(runs, Run.of(pl.DataFrame({"t": [epoch] * rows}), "t"), counted)
        assert len(runs) <= (FANOUT - 1) * (1 + np.log2(epoch) / 2)
    assert sum(run.rows.height for run in runs) == epochs * rows
    assert merged <= epochs * rows * (1 + np.log2(epochs) / 2)


def test_a_small_rest_does_not_keep_the_memory_of_all() -> None:
    run = Run.of(pl.DataFrame({"t": np.arange(100_000)}), "t")
    ((below,), (rest,)) = take_below([run], "t", 99_990)
    assert (below.height, rest.rows.height) == (99_990, 10)
    assert rest.rows.to_arrow().get_total_buffer_size() < 1_000
