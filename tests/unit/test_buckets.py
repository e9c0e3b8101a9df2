"""Buckets: sets of them behave like sets, and every bucket has one owner."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.hashing import BUCKET, bucket_of
from penstock.exchange.balancer import split_by_key, spread
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


keys = st.lists(st.sampled_from(["a", "b", None, "", "ü"]), max_size=30)


@given(names=keys, instances=st.integers(1, 7))
def test_rows_go_to_the_owner_of_their_bucket(names: list[str | None], instances: int) -> None:
    rows = pl.DataFrame(
        {"k": names, "n": range(len(names))}, schema={"k": pl.String, "n": pl.Int64}
    )
    owners = BucketMap.even(64, instances)
    parts = split_by_key(rows, ["k"], owners)
    assert sorted(n for part in parts for n in part["n"]) == list(range(len(names)))
    for instance, part in enumerate(parts):
        buckets = part.select(bucket_of(["k"], 64, part.schema))[BUCKET]
        assert all(owners.owners[bucket] == instance for bucket in buckets)


@given(rows=st.integers(0, 50), instances=st.integers(1, 9))
def test_spread_keeps_all_rows_in_order(rows: int, instances: int) -> None:
    parts = spread(pl.DataFrame({"n": range(rows)}, schema={"n": pl.Int64}), instances)
    assert len(parts) == instances
    assert [n for part in parts for n in part["n"]] == list(range(rows))


def test_hashes_never_change() -> None:
    frame = pl.DataFrame(
        {"k": ["a", None], "n": [1, None], "d": pl.Series([5, None], dtype=pl.Duration("us"))}
    )
    schema = frame.schema
    assert frame.select(bucket_of(["k"], 1024, schema)).to_series().to_list() == [603, 880]
    assert frame.select(bucket_of(["k", "n"], 1024, schema)).to_series().to_list() == [40, 569]
    assert frame.select(bucket_of(["d"], 1024, schema)).to_series().to_list()[1] == 880
