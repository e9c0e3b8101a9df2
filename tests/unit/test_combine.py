"""Combining by runs of panes gives what grouping all at once gives."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from penstock.operators.stores.chunks import PANE
from penstock.operators.windows import combine
from penstock.operators.windows.functions import parts_of
from penstock.query.aggregates import Call


@pytest.mark.parametrize("panes", [[0, 0, 1, 1, 2], [2, 2, 0, 1, 2], [3, 0, 3, 0, 3]])
def test_runs(panes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"k{i % 7}", pane, i) for pane in panes for i in range(400)]
    frame = pl.DataFrame(rows, schema=["k", PANE, "x"], orient="row")
    calls = [Call(function="len"), Call(function="mean", argument=pl.col("x"), dtype=pl.Int64())]
    partials = [parts_of(i, call) for i, call in enumerate(calls)]
    whole = combine.group_rows(frame, ["k"], partials).sort("k", PANE)
    monkeypatch.setattr(combine, "_LONG_RUN", 100)
    assert combine._long_runs(frame) is not None
    by_runs = combine.group_rows(frame, ["k"], partials)
    assert by_runs.select("k", PANE).is_unique().all()
    assert_frame_equal(by_runs.sort("k", PANE), whole)


def test_short_runs_are_not_taken_apart() -> None:
    frame = pl.DataFrame({"k": ["a"] * 50_000, PANE: [i % 2 for i in range(50_000)]})
    assert combine._long_runs(frame) is None
