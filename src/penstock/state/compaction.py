"""Compaction: which segments to merge so that an operator has few.

Segments are put into tiers, each four times the size of the one below; four of a tier become one.
Law: an operator with n rows of live state has O(log n) segments, and a row is rewritten O(log n)
times in all.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.plan.epoch import SegmentRef

FANOUT = 4


def choose(refs: Sequence[SegmentRef]) -> tuple[SegmentRef, ...]:
    """Return the segments to merge now, or none.

    >>> def ref(rows):
    ...     return SegmentRef(name=str(rows), rows=rows, bytes=0, sha256="", until=0, live=())
    >>> [r.rows for r in choose([ref(9), ref(1000), ref(8), ref(10), ref(11)])]
    [9, 8, 10, 11]
    """
    tiers: dict[int, list[SegmentRef]] = {}
    for ref in refs:
        tiers.setdefault((max(ref.rows, 1).bit_length() - 1) // 2, []).append(ref)
    for tier in sorted(tiers):
        if len(tiers[tier]) >= FANOUT:
            return tuple(tiers[tier])
    return ()
