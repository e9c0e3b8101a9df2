"""Sealed panes: what is closed is found without a look at all panes."""

from __future__ import annotations

from unittest.mock import patch

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.times import FINISHED, NOT_STARTED
from penstock.operators.stores import chunks as operators_chunks
from penstock.operators.stores.chunks import PANE, Chunk, add_rows, has_rows, rows_of
from penstock.operators.stores.levels import Nodes
from penstock.operators.windows.panes import Panes

groups = st.lists(st.sets(st.integers(0, 5), min_size=1), max_size=8)


def chunks_of(groups: list[set[int]]) -> tuple[Chunk, ...]:
    """Return chunks in which each group's panes are higher than those of the one before."""
    chunks: tuple[Chunk, ...] = ()
    for i, group in enumerate(groups):
        chunks = add_rows(chunks, pl.DataFrame({PANE: [pane + 6 * i for pane in group]}))
    return chunks


@given(groups=groups, wanted=st.lists(st.integers(-3, 50)))
def test_rows_of_some_nodes(groups: list[set[int]], wanted: list[int]) -> None:
    chunks = chunks_of(groups)
    filled = {pane + 6 * i for i, group in enumerate(groups) for pane in group}
    rows = rows_of(chunks, wanted)
    assert ([] if rows is None else sorted(rows[PANE])) == sorted(filled & set(wanted))
    for low in wanted:
        assert has_rows(chunks, low, low + 4) == bool(filled & set(range(low, low + 4)))


@given(groups=groups, before=st.integers(-10, 60), more=st.integers(0, 200))
def test_the_windows_that_close_are_the_same_either_way(
    groups: list[set[int]], before: int, more: int
) -> None:
    for panes in (Panes(width_us=1, per_window=5, step=2), Panes(width_us=1, per_window=4, step=4)):
        nodes = Nodes(panes=panes, depth=0, merge=lambda frame, _: frame)
        chunks = chunks_of(groups)
        filled = [pane for chunk in chunks for pane in chunk.nodes]
        found = nodes._find_closing(chunks, before, before + more)
        assert found == panes.closing(filled, before, before + more)


def test_few_windows_are_found_without_a_look_at_all_panes() -> None:
    panes = Panes(width_us=1, per_window=1000, step=1)
    nodes = Nodes(panes=panes, depth=0, merge=lambda frame, _: frame)
    chunks = (Chunk.of(pl.DataFrame({PANE: range(500)})),)
    with patch.object(Panes, "closing", side_effect=AssertionError("looked at all panes")):
        assert nodes._find_closing(chunks, 1100, 1100) == []
        assert nodes._find_closing(chunks, 1100, 1102) == [101, 102]


def test_a_leap_over_all_time_looks_at_panes_only() -> None:
    panes = Panes(width_us=1, per_window=2, step=1)
    nodes = Nodes(panes=panes, depth=0, merge=lambda frame, _: frame)
    assert nodes._find_closing(chunks_of([{0, 5}]), NOT_STARTED, FINISHED) == [-1, 0, 4, 5]


def test_a_frame_has_few_pieces_however_many_were_added() -> None:
    chunks: tuple[Chunk, ...] = ()
    for i in range(300):
        chunks = add_rows(chunks, pl.DataFrame({PANE: [i]}))
        assert sum(chunk.rows.n_chunks() for chunk in chunks) <= 3 * operators_chunks._MANY
    assert len(chunks) <= 9
