"""Segments: immutable Arrow IPC files of state rows, sorted by bucket.

The sorted bucket column is the index: an owner finds its rows by binary search. Law: a segment
belongs to an operator, not to an instance; whoever owns a bucket reads its rows from it.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import polars as pl

from penstock.base.errors import CheckpointError
from penstock.base.hashing import BUCKET
from penstock.files.place import Place
from penstock.operators.kernel import UNTIL
from penstock.plan.buckets import BucketSet
from penstock.plan.epoch import SegmentRef


def write_segment(
    folder: Place,
    epoch: int,
    rows: pl.DataFrame,
    *,
    bucket: pl.Expr,
    live: BucketSet,
    merged: Sequence[SegmentRef] = (),
) -> SegmentRef:
    """Write state rows of the ``live`` buckets as a new segment; its name is never used again."""
    ordered = rows.with_columns(bucket.alias(BUCKET)).sort(BUCKET)
    buffer = io.BytesIO()
    ordered.write_ipc(buffer, compression="lz4")
    data = buffer.getvalue()
    name = f"{epoch:012d}-{folder.files.unique()}.arrow"
    digest = (folder / name).write_new(data)
    until = ordered[UNTIL].max()
    assert isinstance(until, int)
    return SegmentRef(
        name=name,
        rows=rows.height,
        bytes=len(data),
        sha256=digest,
        until=until,
        live=live.ranges,
        merged=tuple(ref.name for ref in merged),
        merged_rows=sum(ref.rows for ref in merged),
        oldest=min((ref.oldest for ref in merged), default=epoch),
    )


def read_segment(
    folder: Place,
    ref: SegmentRef,
    buckets: BucketSet,
    known: dict[str, pl.DataFrame] | None = None,
) -> pl.DataFrame:
    """Return the rows of some buckets, as far as the segment still counts for them.

    Args:
        folder: Where the segment is.
        ref: The segment.
        buckets: The buckets.
        known: Segments that were read before, by path; one that has rows of others is added.

    Raises:
        CheckpointError: The file is missing or damaged.
    """
    path = f"{folder / ref.name}"
    frame = known.get(path) if known else None
    if frame is None:
        frame = read_frame(folder, ref)
        if known is not None and (ref.buckets - buckets):
            known[path] = frame
    wanted = np.array((ref.buckets & buckets).ranges, dtype=np.int64).reshape(-1, 2)
    places = np.searchsorted(frame[BUCKET].to_numpy(), wanted)
    parts = [frame[first:last] for first, last in places.tolist() if first < last]
    rows = pl.concat(parts, rechunk=len(parts) > 1) if parts else frame.clear()
    return rows.drop(BUCKET)


def read_frame(folder: Place, ref: SegmentRef) -> pl.DataFrame:
    """Return a segment as it is in its file: size, hash, Arrow and columns are checked, in turn.

    Raises:
        CheckpointError: The file is missing or damaged.
    """
    place = folder / ref.name
    data = place.read_checked(size=ref.bytes, digest=ref.sha256)
    try:
        frame = pl.read_ipc(io.BytesIO(data))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise CheckpointError(path=str(place), reason=f"not an Arrow file: {error}") from error
    if frame.height != ref.rows or not {BUCKET, UNTIL} <= set(frame.columns):
        raise CheckpointError(
            path=str(place), reason=f"not the segment that was written: {frame.schema}"
        )
    return frame
