"""The worker's cache: the merged state of an operator's buckets after the last epoch.

An entry is named by the segments that it stands for. Segment names are never reused, so an entry
that fits is right, whichever attempt, driver or epoch left it there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from penstock.plan.buckets import BucketSet
from penstock.plan.epoch import SegmentRef

Key = tuple[str, str, BucketSet, int, tuple[tuple[str, BucketSet], ...]]
_ENTRIES: OrderedDict[Key, Any] = OrderedDict()
_LIMIT = 64


def cache_key(
    checkpoint: str, operator: str, buckets: BucketSet, watermark: int, refs: Sequence[SegmentRef]
) -> Key:
    """Return the name of the state that some segments make up for some buckets."""
    parts = tuple(
        sorted(
            ((ref.name, ref.buckets & buckets) for ref in refs if ref.buckets & buckets),
            key=lambda part: part[0],
        )
    )
    return checkpoint, operator, buckets, watermark, parts


def get(key: Key) -> Any | None:
    """Return a cached state, or None."""
    if key in _ENTRIES:
        _ENTRIES.move_to_end(key)
        return _ENTRIES[key]
    return None


def put(key: Key, state: Any) -> None:
    """Keep a state; of each operator's buckets the two newest stay, for a task that is repeated."""
    same = [known for known in _ENTRIES if known[:3] == key[:3]]
    for known in same[:-1]:
        del _ENTRIES[known]
    _ENTRIES[key] = state
    while len(_ENTRIES) > _LIMIT:
        _ENTRIES.popitem(last=False)


def clear() -> None:
    """Forget everything, as a new worker process would."""
    _ENTRIES.clear()
