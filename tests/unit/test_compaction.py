"""Compaction: few segments, and each row is rewritten few times."""

from __future__ import annotations

from math import log2

from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.epoch import SegmentRef
from penstock.state.compaction import EAGER, LAZY, choose


def ref(name: int, rows: int, merged_rows: int = 0) -> SegmentRef:
    return SegmentRef(
        name=str(name),
        rows=rows,
        bytes=0,
        sha256="",
        until=0,
        live=((0, 1),),
        merged_rows=merged_rows,
    )


@given(
    deltas=st.lists(st.integers(1, 5000), max_size=200),
    groups=st.sampled_from([100, 10_000, 10**9]),
)
def test_segments_stay_few_and_rewrites_rare(deltas: list[int], groups: int) -> None:
    """Merging gives at most as many rows as there are groups."""
    live: list[SegmentRef] = []
    rewritten = 0
    for number, delta in enumerate(deltas):
        rows = min(delta, groups)
        chosen = choose(live)
        live.append(ref(number, rows))
        if chosen:
            assert len(chosen) >= EAGER
            before = sum(r.rows for r in chosen)
            rewritten += before
            live = [r for r in live if r not in chosen]
            live.append(ref(10_000 + number, min(before, groups), before))
        total = sum(r.rows for r in live)
        tiers = log2(total) / 2 + 1
        assert len(live) <= LAZY * tiers + 1
    total = sum(deltas)
    if total:
        assert rewritten <= total * (log2(total) / 2 + 1)


def test_few_segments_are_left_alone() -> None:
    assert choose([ref(i, 10) for i in range(EAGER - 1)]) == ()


def test_merging_that_saves_nothing_is_put_off() -> None:
    useless = [ref(0, 40, 40), *[ref(i, 10) for i in range(1, LAZY)]]
    assert choose(useless) == ()
    assert len(choose([*useless, ref(LAZY, 10)])) == LAZY
    useful = [ref(0, 10, 40), *[ref(i, 10) for i in range(1, EAGER)]]
    assert len(choose(useful)) == EAGER
