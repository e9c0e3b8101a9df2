"""Compaction: which segments to merge so that an operator has few.

Segments are put into tiers, each four times the size of the one below; when a tier has enough of
them, they become one. How many are enough depends on what merging is good for: where the last merge
halved the rows, because the same groups come again and again, four; where it did not, sixteen,
since then a merge only rewrites. Law: an operator with n rows of live state has O(log n) segments,
and a row is rewritten O(log n) times in all.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.plan.epoch import SegmentRef

EAGER = 4
LAZY = 16


def choose(refs: Sequence[SegmentRef]) -> tuple[SegmentRef, ...]:
    """Return the segments to merge now, or none.

    >>> def ref(rows, merged_rows=0):
    ...     return SegmentRef(name=str(rows), rows=rows, bytes=0, sha256="", until=0, live=(),
    ...                       merged_rows=merged_rows)
    >>> few = [ref(9), ref(1000), ref(8), ref(10), ref(11)]
    >>> [r.rows for r in choose(few)]
    [9, 8, 10, 11]
    >>> choose([*few, ref(100, merged_rows=100)])
    ()
    """
    tiers: dict[int, list[SegmentRef]] = {}
    for ref in refs:
        tiers.setdefault((max(ref.rows, 1).bit_length() - 1) // 2, []).append(ref)
    enough = EAGER if _shrinks(refs) else LAZY
    for tier in sorted(tiers):
        if len(tiers[tier]) >= enough:
            return tuple(tiers[tier])
    return ()


def _shrinks(refs: Sequence[SegmentRef]) -> bool:
    """Return whether the last merge was worth it; the first one is made to find out."""
    merged = [ref for ref in refs if ref.merged_rows]
    return not merged or 2 * merged[-1].rows <= merged[-1].merged_rows
