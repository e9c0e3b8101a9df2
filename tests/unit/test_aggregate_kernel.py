"""The aggregate kernel on partials of several upstream tasks."""

from __future__ import annotations

import polars as pl
import pytest

import penstock as ps
from penstock.base.columns import TIME
from penstock.base.times import NOT_STARTED
from penstock.operators.windows.aggregate import AggregateKernel
from penstock.query.nodes import Aggregate
from penstock.query.windows import TimeWindow

SCHEMA = {"k": pl.Int64, "x": pl.Int64, "ts": pl.Datetime("us")}
SECOND = 1_000_000


def kernel_of(window: TimeWindow) -> AggregateKernel:
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    node = stream.aggregate(by="k", window=window, n="count(*)", total="sum(x)")._node
    assert isinstance(node, Aggregate)
    return AggregateKernel(node, 1, ordered=False)


def partials(kernel: AggregateKernel, x: int) -> pl.DataFrame:
    rows = pl.DataFrame({"k": [1, 2], "x": [x, x], TIME: [SECOND, SECOND]})
    return kernel.combine(kernel.prepare(rows.lazy()).collect())


@pytest.mark.parametrize(
    "window", [ps.tumbling("10 seconds"), ps.sliding("20 seconds", every="10 seconds")], ids=str
)
@pytest.mark.parametrize("epochs", [1, 2])
def test_what_several_tasks_sent_for_a_group_becomes_one_result(
    window: TimeWindow, epochs: int
) -> None:
    kernel = kernel_of(window)
    state = kernel.restore([], NOT_STARTED)
    for _ in range(epochs):
        sent = [partials(kernel, 1), partials(kernel, 10)]
        state = kernel.advance(state, sent, SECOND).state
    done = kernel.advance(state, [], 10 * SECOND)
    found = done.results.select("k", "n", "total").sort("k").rows()
    assert found == [(k, 2 * epochs, 11 * epochs) for k in (1, 2)]
