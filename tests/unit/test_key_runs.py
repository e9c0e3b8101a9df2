"""Key tables find keys by hash: as a dict would, with collisions, and in few runs."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.stores import key_runs
from penstock.operators.stores import keys as operators_keys
from penstock.operators.stores.key_runs import MISSING, Hashes, KeyRun, hash_keys
from penstock.operators.stores.keys import CODE, KeyTable

SCHEMA: dict[str, pl.DataType] = {"k": pl.String(), "y": pl.Float64()}
Key = tuple[str | None, float | None]
texts = st.sampled_from(["a", "b", "", "a much longer key than fits in place", None])
floats = st.sampled_from([0.0, 1.5, float("inf"), float("nan"), None])
batches = st.lists(st.lists(st.tuples(texts, floats), max_size=15), max_size=8)


def frame_of(keys: list[Key]) -> pl.DataFrame:
    return pl.DataFrame(keys, schema=SCHEMA, orient="row").with_row_index("row")


def no_hash(keys: pl.DataFrame) -> Hashes:
    return np.zeros(keys.height, dtype=np.uint64)


def poor_hash(keys: pl.DataFrame) -> Hashes:
    """Return one of three hashes, the highest and the lowest among them."""
    few: Hashes = np.array([0, 1, 2**64 - 1], dtype=np.uint64)
    return few.take((hash_keys(keys) % np.uint64(3)).astype(np.int64))


@given(
    batches=batches,
    times=st.sampled_from([0, 4, 10**9]),
    hashed=st.sampled_from([hash_keys, no_hash, poor_hash]),
)
def test_a_table_is_a_dict(batches: list[list[Key]], times: int, hashed: object) -> None:
    codes: dict[str, int] = {}
    table = KeyTable.empty(SCHEMA)
    with (
        patch.object(operators_keys, "_TIMES", times),
        patch.object(operators_keys, "hash_keys", hashed),
        patch.object(key_runs, "hash_keys", hashed),
    ):
        for batch in batches:
            before = table.height
            grown, coded = table.encode(frame_of(batch))
            assert table.height == before, "the old table has changed"
            table = grown
            for key, code in zip(batch, coded.sort("row")[CODE], strict=True):
                assert codes.setdefault(repr(key), code) == code
            assert repr(table.decode(coded.sort("row")).select("k", "y").rows()) == repr(batch)
    assert sorted(codes.values()) == list(range(table.height))


@pytest.mark.parametrize(
    "values",
    [[1, None, 3], [True, False, None], [b"a", None], [2**62, -1], ["x", None, "null"]],
    ids=str,
)
def test_keys_of_other_types(values: list[object]) -> None:
    keys = pl.DataFrame({"k": values})
    run = KeyRun.of(7, keys)
    assert run.find(keys, hash_keys(keys)).tolist() == list(range(7, 7 + len(values)))
    assert run.find(keys.clear(), hash_keys(keys.clear())).tolist() == []


def test_a_key_that_is_not_there_is_missing_even_if_its_hash_is() -> None:
    with patch.object(key_runs, "hash_keys", no_hash):
        run = KeyRun.of(0, pl.DataFrame({"k": ["a", "b", "c"]}))
    wanted = pl.DataFrame({"k": ["c", "z", "a"]})
    assert run.find(wanted, no_hash(wanted)).tolist() == [2, MISSING, 0]
    other = np.full(3, 5, dtype=np.uint64)
    assert run.find(wanted, other).tolist() == [MISSING] * 3


def numbered(start: int, stop: int) -> pl.DataFrame:
    return pl.DataFrame({"k": range(start, stop)}, schema={"k": pl.Int64})


def test_runs_are_few_and_keys_are_copied_few_times() -> None:
    copied = 0
    joined = KeyRun.followed_by

    def counted(run: KeyRun, other: KeyRun) -> KeyRun:
        nonlocal copied
        copied += run.height + other.height
        return joined(run, other)

    table = KeyTable.empty({"k": pl.Int64()})
    batches, rows = 500, 20
    with patch.object(KeyRun, "followed_by", counted):
        for i in range(batches):
            table, _ = table.encode(numbered(rows * i, rows * (i + 1)))
            assert len(table.runs) <= 1 + np.log2(i + 1)
    assert table.height == batches * rows
    assert copied < table.height * 4 * np.log2(batches)
    _, coded = table.encode(numbered(0, table.height))
    assert coded[CODE].n_unique() == table.height


def test_a_lookup_touches_what_it_looks_for() -> None:
    """The keys that are compared are as many as are looked up, with few keys and with many."""
    for height in (1_000, 100_000):
        table, _ = KeyTable.empty({"k": pl.Int64()}).encode(numbered(0, height))
        compared: list[int] = []
        same = KeyRun._is_same

        def counted(run: KeyRun, keys: pl.DataFrame, rows: object, places: object) -> object:
            compared.append(len(rows))  # type: ignore[arg-type]  # noqa: B023
            return same(run, keys, rows, places)  # type: ignore[arg-type]  # noqa: B023

        with (
            patch.object(KeyRun, "_is_same", counted),
            patch.object(KeyTable, "_join", side_effect=AssertionError("joined the whole table")),
        ):
            after, _ = table.encode(numbered(0, 200))
        assert after is table
        assert sum(compared) == 200


def test_a_table_in_which_all_keys_are_used_is_not_pruned() -> None:
    table, _ = KeyTable.empty({"k": pl.Int64()}).encode(numbered(0, 10_000))
    assert not table.is_overgrown(dropped=0)
    assert not table.is_overgrown(dropped=4_999)
    assert table.is_overgrown(dropped=5_000)
