"""Segments: an owner reads its buckets' rows, all of them and no others; damage is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from penstock.base.errors import CheckpointError
from penstock.base.hashing import BUCKET, bucket_of
from penstock.files.place import place_of
from penstock.operators.kernel import UNTIL
from penstock.plan.buckets import BucketMap, BucketSet
from penstock.state.segments import read_segment, write_segment

BUCKETS = 16
ROWS = pl.DataFrame({"k": [f"key{i % 23}" for i in range(100)], "v": range(100), UNTIL: range(100)})
ALL = BucketSet(((0, BUCKETS),))


def written(folder: Path, live: BucketSet = ALL):  # type: ignore[no-untyped-def]
    place = place_of(folder, fsync=False)
    return write_segment(place, 3, ROWS, bucket=bucket_of(["k"], BUCKETS), live=live)


@pytest.mark.parametrize("instances", [1, 2, 5, 16])
def test_owners_share_a_segment_without_loss(tmp_path: Path, instances: int) -> None:
    ref = written(tmp_path)
    owners = BucketMap.even(BUCKETS, instances)
    parts = [read_segment(place_of(tmp_path), ref, owners.owned_by(i)) for i in range(instances)]
    assert pl.concat(parts).sort("v").equals(ROWS)
    assert (ref.rows, ref.until, ref.buckets) == (100, 99, ALL)


def test_a_segment_counts_only_for_its_live_buckets(tmp_path: Path) -> None:
    live = BucketSet(((2, 5), (9, 10)))
    ref = replace(written(tmp_path), live=live.ranges)
    rows = ROWS.with_columns(bucket_of(["k"], BUCKETS, ROWS.schema))
    expected = rows.filter(pl.col(BUCKET).is_in(list(live))).drop(BUCKET)
    assert read_segment(place_of(tmp_path), ref, ALL).sort("v").equals(expected)
    nothing = read_segment(place_of(tmp_path), ref, BucketSet(((12, 14),)))
    assert nothing.is_empty()
    assert nothing.schema == ROWS.schema


def test_owners_of_scattered_buckets_lose_no_row(tmp_path: Path) -> None:
    alone = ROWS.unique("k", keep="first", maintain_order=True)  # buckets with one row, and gaps
    place = place_of(tmp_path, fsync=False)
    ref = write_segment(place, 3, alone, bucket=bucket_of(["k"], BUCKETS), live=ALL)
    scattered = BucketMap(owners=tuple(b % 3 for b in range(BUCKETS)), instances=3)
    parts = [read_segment(place, ref, scattered.owned_by(i)) for i in range(3)]
    assert pl.concat(parts).sort("v").equals(alone)


def test_damage_is_noticed_before_anything_is_parsed(tmp_path: Path) -> None:
    ref = written(tmp_path)
    path = tmp_path / ref.name
    whole = path.read_bytes()
    for wrong in (whole[:-1], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:], b""):
        path.write_bytes(wrong)
        with pytest.raises(CheckpointError, match="damaged"):
            read_segment(place_of(tmp_path), ref, ALL)
    path.unlink()
    with pytest.raises(CheckpointError, match="missing"):
        read_segment(place_of(tmp_path), ref, ALL)


def test_names_are_never_used_twice(tmp_path: Path) -> None:
    assert written(tmp_path).name != written(tmp_path).name
