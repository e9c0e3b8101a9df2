"""Segments: immutable Arrow IPC files of state rows, sorted by bucket.

The sorted bucket column is the index: an owner finds its rows by binary search. Law: a segment
belongs to an operator, not to an instance; whoever owns a bucket reads its rows from it.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from penstock.operators.hashing import BUCKET, bucket_of
from penstock.operators.kernel import UNTIL
from penstock.plan.buckets import BucketSet
from penstock.plan.epoch import SegmentRef
from penstock.state.files import read_checked, write_new


def write_segment(
    folder: Path,
    epoch: int,
    rows: pl.DataFrame,
    *,
    keys: Sequence[str],
    buckets: int,
    live: BucketSet,
    fsync: bool = True,
) -> SegmentRef:
    """Write state rows of the ``live`` buckets as a new segment; its name is never used again."""
    ordered = rows.with_columns(bucket_of(keys, buckets, rows.schema)).sort(BUCKET)
    buffer = io.BytesIO()
    ordered.write_ipc(buffer, compression="uncompressed")
    data = buffer.getvalue()
    name = f"{epoch:012d}-{uuid.uuid4().hex}.arrow"
    digest = write_new(folder / name, data, fsync=fsync)
    until = ordered[UNTIL].max()
    assert isinstance(until, int)
    return SegmentRef(
        name=name,
        rows=rows.height,
        bytes=len(data),
        sha256=digest,
        until=until,
        live=live.ranges,
    )


def read_segment(folder: Path, ref: SegmentRef, buckets: BucketSet) -> pl.DataFrame:
    """Return the rows of some buckets, as far as the segment still counts for them."""
    data = read_checked(folder / ref.name, size=ref.bytes, sha256=ref.sha256)
    frame = pl.read_ipc(io.BytesIO(data))
    wanted = (ref.buckets & buckets).ranges
    column = frame[BUCKET]
    parts = []
    for low, high in wanted:
        first, last = column.search_sorted(low), column.search_sorted(high)
        parts.append(frame[int(first) : int(last)])
    return pl.concat(parts).drop(BUCKET) if parts else frame.clear().drop(BUCKET)
