"""Panes: windows are disjoint unions of nodes, and close once, exactly when they should."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.base.times import FINISHED, NOT_STARTED
from penstock.operators.windows.panes import Panes
from penstock.query.windows import TimeWindow

windows = st.builds(
    lambda every, more, unit: TimeWindow(size_us=(every + more) * unit, every_us=every * unit),
    every=st.integers(1, 12),
    more=st.integers(0, 40),
    unit=st.sampled_from([1, 7, 1_000_000]),
)
panes_of = windows.map(Panes.of)
numbers = st.integers(-100, 100)


@given(panes=panes_of, window=numbers, level=st.integers(0, 6))
def test_the_nodes_of_a_window_are_disjoint_and_cover_it(
    panes: Panes, window: int, level: int
) -> None:
    nodes = panes.nodes_of(window, level)
    covered = [pane for lv, node in nodes for pane in range(node << lv, (node + 1) << lv)]
    start = window * panes.step
    assert sorted(covered) == list(range(start, start + panes.per_window))


@given(panes=panes_of, pane=numbers)
def test_a_pane_is_in_the_windows_from_first_to_last(panes: Panes, pane: int) -> None:
    first, last = panes.first_window(pane), panes.last_window(pane)
    holding = [
        window
        for window in range(first - 3, last + 4)
        if window * panes.step <= pane < window * panes.step + panes.per_window
    ]
    assert holding == list(range(first, last + 1))


@given(window=windows, time=st.integers(-(10**9), 10**9))
def test_a_time_is_in_exactly_one_pane_of_each_of_its_windows(
    window: TimeWindow, time: int
) -> None:
    panes = Panes.of(window)
    pane = time // panes.width_us
    starts = [
        w * window.every_us for w in range(panes.first_window(pane), panes.last_window(pane) + 1)
    ]
    assert all(start <= time < start + window.size_us for start in starts)
    assert not starts[0] - window.every_us + window.size_us > time
    assert starts[-1] + window.every_us > time


@given(panes=panes_of, watermark=st.integers(-(10**9), 10**9))
def test_the_last_closed_window_is_the_last_that_ended(panes: Panes, watermark: int) -> None:
    last = panes.last_closed(watermark)
    end = (last * panes.step + panes.per_window) * panes.width_us
    assert end <= watermark < end + panes.step * panes.width_us


@given(
    panes=panes_of,
    filled=st.sets(numbers),
    marks=st.lists(st.integers(-200, 200), max_size=5),
)
def test_every_window_with_rows_closes_once(
    panes: Panes, filled: set[int], marks: list[int]
) -> None:
    times = [NOT_STARTED, *sorted(mark * panes.width_us for mark in marks), FINISHED]
    closed = [
        window
        for before, now in zip(times, times[1:], strict=False)  # noqa: RUF007  # pairs of marks
        for window in panes.closing(sorted(filled), before, now)
    ]
    holding = {
        w for pane in filled for w in range(panes.first_window(pane), panes.last_window(pane) + 1)
    }
    assert closed == sorted(holding)
