"""Cost follows the change: rows that a kernel looks at in an epoch, with few and with many kept."""

from __future__ import annotations

from unittest.mock import patch

import polars as pl
import pytest

import penstock as ps
from penstock.base.columns import TIME
from penstock.base.times import NOT_STARTED
from penstock.operators.stores.chunks import PANE
from penstock.operators.stores.runs import Run
from penstock.operators.windows.aggregate import AggregateKernel, PaneState
from penstock.query.nodes import Aggregate
from penstock.query.windows import TimeWindow

SCHEMA = {"k": pl.Int64, "x": pl.Int64, "ts": pl.Datetime("us")}
ROWS = 100
EPOCHS = 64


def kernel_of(window: TimeWindow) -> AggregateKernel:
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    node = stream.aggregate(by="k", window=window, n="count(*)", m="avg(x)")._node
    assert isinstance(node, Aggregate)
    return AggregateKernel(node, 1, ordered=False)


def partials(kernel: AggregateKernel, keys: range, second: int) -> pl.DataFrame:
    rows = pl.DataFrame({"k": keys, "x": keys}, schema={"k": pl.Int64, "x": pl.Int64})
    timed = rows.with_columns(pl.lit(second * 1_000_000, dtype=pl.Int64).alias(TIME))
    return kernel.combine(kernel.prepare(timed.lazy()).collect())


@pytest.mark.parametrize(
    "window", [ps.tumbling("1 day"), ps.sliding("1 day", every="1 hour")], ids=str
)
def test_rows_merged_do_not_depend_on_the_keys_kept(window: TimeWindow) -> None:
    touched = {}
    for kept in (1_000, 64_000):
        kernel = kernel_of(window)
        state: PaneState = kernel.restore([], NOT_STARTED)
        state = kernel.advance(state, [partials(kernel, range(kept), 0)], 0).state
        heights: list[int] = []
        merge, sort = AggregateKernel.merge, Run.of

        def merged(self: AggregateKernel, frame: pl.DataFrame, node: str = PANE) -> pl.DataFrame:
            heights.append(frame.height)  # noqa: B023
            return merge(self, frame, node)  # noqa: B023

        def sorted_(rows: pl.DataFrame, column: str) -> Run:
            heights.append(rows.height)  # noqa: B023
            return sort(rows, column)  # noqa: B023

        with patch.object(AggregateKernel, "merge", merged), patch.object(Run, "of", sorted_):
            for epoch in range(1, EPOCHS):
                keys = range(ROWS * (epoch % 10), ROWS * (epoch % 10 + 1))
                done = kernel.advance(state, [partials(kernel, keys, epoch)], epoch)
                state = done.state
                assert len(state.open) <= 12
                assert len(state.keys.runs) == 1
        touched[kept] = sum(heights)
    assert touched[64_000] <= 1.5 * touched[1_000]
    assert touched[64_000] <= 10 * ROWS * EPOCHS


def test_keys_of_closed_windows_are_forgotten() -> None:
    kernel = kernel_of(ps.sliding("10 minutes", every="1 minute"))
    state: PaneState = kernel.restore([], NOT_STARTED)
    most = 0
    for minute in range(100):
        keys = range(1_000 * minute, 1_000 * (minute + 1))
        done = kernel.advance(state, [partials(kernel, keys, 60 * minute)], 60_000_000 * minute)
        state = done.state
        most = max(most, state.keys.height)
    assert 11_000 <= most <= 40_000, "of 100 000 keys, 11 000 are in use at a time"
