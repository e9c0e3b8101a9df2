"""Buckets: sets of them behave like sets, and every bucket has one owner."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.hashing import bucket_of
from penstock.plan.buckets import BucketMap, BucketSet

some = st.sets(st.integers(0, 40))


@given(left=some, right=some)
def test_bucket_sets_behave_like_sets(left: set[int], right: set[int]) -> None:
    a, b = BucketSet.of(left), BucketSet.of(right)
    assert list(a) == sorted(left)
    assert list(a & b) == sorted(left & right)
    assert list(a - b) == sorted(left - right)
    assert (a == b) == (left == right)
    assert bool(a) == bool(left)
    assert {n for n in range(42) if n in a} == left
    assert all(low < high for low, high in (a & b).ranges)


@given(buckets=st.integers(1, 200), instances=st.integers(1, 50))
def test_an_even_map_gives_every_bucket_one_owner(buckets: int, instances: int) -> None:
    owners = BucketMap.even(buckets, instances)
    parts = [list(owners.owned_by(i)) for i in range(instances)]
    assert sorted(bucket for part in parts for bucket in part) == list(range(buckets))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_bucket_without_an_owner_is_refused() -> None:
    with pytest.raises(ValueError, match="every bucket needs an owner among 2 instances"):
        BucketMap(owners=(0, 2), instances=2)


def test_hashes_never_change() -> None:
    frame = pl.DataFrame(
        {"k": ["a", None], "n": [1, None], "d": pl.Series([5, None], dtype=pl.Duration("us"))}
    )
    schema = frame.schema
    assert frame.select(bucket_of(["k"], 1024, schema)).to_series().to_list() == [603, 880]
    assert frame.select(bucket_of(["k", "n"], 1024, schema)).to_series().to_list() == [40, 569]
    assert frame.select(bucket_of(["d"], 1024, schema)).to_series().to_list()[1] == 880
