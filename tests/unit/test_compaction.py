"""Compaction: few segments, and each row is rewritten few times."""

from __future__ import annotations

from math import log2

from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.epoch import SegmentRef
from penstock.state.compaction import FANOUT, choose


def ref(name: int, rows: int) -> SegmentRef:
    return SegmentRef(name=str(name), rows=rows, bytes=0, sha256="", until=0, live=((0, 1),))


@given(deltas=st.lists(st.integers(1, 5000), max_size=200))
def test_segments_stay_few_and_rewrites_rare(deltas: list[int]) -> None:
    live: list[SegmentRef] = []
    rewritten = 0
    for number, rows in enumerate(deltas):
        live.append(ref(number, rows))
        chosen = choose(live)
        if chosen:
            assert len(chosen) >= FANOUT
            rewritten += sum(r.rows for r in chosen)
            live = [r for r in live if r not in chosen]
            live.append(ref(10_000 + number, sum(r.rows for r in chosen)))
        total = sum(r.rows for r in live)
        assert total == sum(deltas[: number + 1])
        tiers = log2(total) / 2 + 1
        assert len(live) <= FANOUT * tiers
    total = sum(deltas)
    if total:
        assert rewritten <= total * (log2(total) / 2 + 1)


def test_few_segments_are_left_alone() -> None:
    assert choose([ref(i, 10) for i in range(FANOUT - 1)]) == ()
