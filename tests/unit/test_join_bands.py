"""Bands: the pairs that two searches find are those that a look at all pairs finds."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.columns import TIME
from penstock.operators.pairs import results as pairs
from penstock.operators.pairs.results import ranges_in_blocks
from penstock.operators.stores import bands
from penstock.operators.stores.bands import Band, add_band, add_latest, drop_until, near
from penstock.operators.stores.key_runs import Hashes, hash_keys

Item = tuple[str | None, int]
items = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", None]), st.integers(-50, 50) | st.integers(0, 1 << 50)
    ),
    min_size=1,
    max_size=30,
)


def mixed_up(keys: pl.DataFrame) -> Hashes:
    """Return hashes of which there are only two."""
    return hash_keys(keys) << np.uint64(63)


def band_of(rows: Sequence[Item], *, by_time: bool = False) -> Band:
    frame = pl.DataFrame(rows, schema={"k": pl.String, TIME: pl.Int64}, orient="row")
    return Band.of(frame, ["k"], by_time=by_time)


@given(
    left=items,
    right=items,
    within=st.sampled_from([1, 2, 10, 60, 1 << 51]),
    bits=st.sampled_from([3, 40]),
    same=st.booleans(),
    block=st.sampled_from([1, 4, 1000]),
)
def test_near_rows(
    left: list[Item], right: list[Item], within: int, bits: int, same: bool, block: int
) -> None:
    with (
        patch.object(bands, "TIME_BITS", bits),
        patch.object(bands, "hash_keys", mixed_up if same else hash_keys),
        patch.object(pairs, "BLOCK", block),
    ):
        one, two = band_of(left), band_of(right)
        found = [
            (*one.rows.row(int(i)), *two.rows.row(int(j)))
            for li, ri in near(one, two, within)
            for i, j in zip(li, ri, strict=True)
        ]
    assert sorted(found) == sorted(
        (*a, *b)
        for a in left
        for b in right
        if a[0] == b[0] is not None and abs(a[1] - b[1]) < within
    )


@given(
    left=st.sets(st.integers(0, 60), min_size=1),
    keys=st.lists(st.sampled_from(["a", "b"]), min_size=61, max_size=61),
    wanted=st.integers(1, 4),
    bits=st.sampled_from([3, 40]),
    same=st.booleans(),
)
def test_last_rows(left: set[int], keys: list[str], wanted: int, bits: int, same: bool) -> None:
    mine = [(keys[t], t) for t in left]
    theirs = [(keys[t], t) for t in range(61) if t not in left] or [("a", 61)]
    with (
        patch.object(bands, "TIME_BITS", bits),
        patch.object(bands, "hash_keys", mixed_up if same else hash_keys),
    ):
        offered, asking = band_of(mine), band_of(theirs)
        found = [
            (*asking.rows.row(int(i)), *offered.rows.row(int(j)))
            for a, o in offered.last(asking, np.full(asking.height, wanted))
            for i, j in zip(a, o, strict=True)
        ]
    assert sorted(found) == sorted(
        (*b, *a)
        for b in theirs
        for a in sorted((a for a in mine if a[0] == b[0] and a[1] < b[1]), key=lambda a: a[1])[
            -wanted:
        ]
    )


@given(rows=items, after=st.integers(-60, 60))
def test_rows_up_to_a_time_go(rows: list[Item], after: int) -> None:
    later = [row for row in rows if row[1] > after]
    kept = drop_until([band_of(rows, by_time=True)], after)
    found = [row for band in kept for row in band.rows.rows()]
    assert sorted(map(str, [row for row in found if row[1] > after])) == sorted(map(str, later))
    assert len(found) <= max(2 * len(later), 0)
    for band in kept:
        assert sorted(map(str, band.between(after, 1 << 60).rows())) == sorted(map(str, later))


def test_bands_stay_few_and_sorted() -> None:
    kept: tuple[Band, ...] = ()
    for i in range(100):
        kept = add_band(kept, band_of([(str(i % 7), i)]), -1)
        assert len(kept) <= 12
    assert sum(band.height for band in kept) == 100
    assert all((np.diff(band.slots.astype(object)) >= 0).all() for band in kept)


def test_the_last_rows_of_a_key_stay() -> None:
    kept: tuple[Band, ...] = ()
    for i in range(200):
        kept = add_latest(kept, band_of([("ab"[i % 2], i)]), 3)
        assert len(kept) <= 5
    rows = sorted(t for band in kept for _, t in band.rows.rows())
    assert set(rows) >= set(range(194, 200))
    assert len(rows) <= 3 * 2 * len(kept)


@pytest.mark.parametrize("block", [1, 2, 3, 7, 100])
def test_ranges_are_cut_into_blocks(block: int) -> None:
    low, high = np.array([0, 5, 5, 2]), np.array([4, 5, 9, 3])
    with patch.object(pairs, "BLOCK", block):
        found = list(ranges_in_blocks(low, high))
    assert max(i.size for i, _ in found) <= block
    made = [(int(a), int(b)) for i, j in found for a, b in zip(i, j, strict=True)]
    assert made == [(0, 0), (0, 1), (0, 2), (0, 3), (2, 5), (2, 6), (2, 7), (2, 8), (3, 2)]
