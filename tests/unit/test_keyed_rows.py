"""Rows by key: the store against a dict."""

from __future__ import annotations

from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.stores import keyed_rows
from penstock.operators.stores.key_runs import KeyRun
from penstock.operators.stores.keyed_rows import KeyedRows

SCHEMA: dict[str, pl.DataType] = {"k": pl.String(), "g": pl.Int64(), "x": pl.Int64()}
Key = tuple[str | None, int | None]
keys = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0, 1, 2, 3, None]))
changes = st.lists(
    st.lists(st.tuples(keys, st.lists(st.integers(0, 9), max_size=3)), max_size=8), max_size=12
)


def frame(rows: list[tuple[Key, int]]) -> pl.DataFrame:
    return pl.DataFrame([(*key, x) for key, x in rows], schema=SCHEMA, orient="row")


def found(store: KeyedRows, wanted: list[Key]) -> dict[Key, list[int]]:
    rows = store.find(frame([(key, 0) for key in wanted]))
    grouped: dict[Key, list[int]] = {}
    for k, g, x in rows.rows():
        grouped.setdefault((k, g), []).append(x)
    return grouped


@given(changes=changes, wanted=st.lists(keys, max_size=6), few=st.sampled_from([0, 4, 1024]))
def test_a_store_is_a_dict_of_lists(
    changes: list[list[tuple[Key, list[int]]]], wanted: list[Key], few: int
) -> None:
    store, model = KeyedRows.empty(["k", "g"], SCHEMA), dict[Key, list[int]]()
    history = []
    with patch.object(keyed_rows, "_FEW", few):
        for change in changes:
            new = dict(change)
            rows = frame([(key, x) for key, values in new.items() for x in values])
            store = store.replace(frame([(key, 0) for key in new]), rows)
            model = {key: values for key, values in (model | new).items() if values}
            history.append((store, model))
    for then, expected in history:  # a store that was replaced is as it was
        assert found(then, wanted) == {k: v for k, v in expected.items() if k in wanted}
        assert sorted(then.everything().rows(), key=str) == sorted(
            ((*k, x) for k, values in expected.items() for x in values), key=str
        )
        assert then.live == sum(map(len, expected.values()))


def test_without_key_columns_all_rows_are_of_one_key() -> None:
    store = KeyedRows.empty([], {"x": pl.Int64()})
    nothing, some = pl.DataFrame({"x": []}, {"x": pl.Int64}), pl.DataFrame({"x": [3, 1]})
    assert store.find(nothing).height == 0
    store = store.replace(some, some)
    assert store.find(nothing)["x"].to_list() == [3, 1]
    assert store.replace(nothing, nothing).find(some).height == 0


def ints(values: range, x: int = 0) -> pl.DataFrame:
    return pl.DataFrame({"k": values, "x": [x] * len(values)}, {"k": pl.Int64, "x": pl.Int64})


def test_the_cost_of_a_change_does_not_grow_with_the_store() -> None:
    touched = {}
    for many in (1_000, 64_000):
        store = KeyedRows.empty(["k"], {"k": pl.Int64(), "x": pl.Int64()})
        store = store.replace(ints(range(many)), ints(range(many)))
        heights: list[int] = []
        index = KeyRun.of

        def counted(start: int, keys: pl.DataFrame) -> KeyRun:
            heights.append(keys.height)  # noqa: B023
            return index(start, keys)  # noqa: B023

        with patch.object(KeyRun, "of", counted):
            for epoch in range(64):
                some = ints(range(10 * (epoch % 10), 10 * (epoch % 10 + 1)), epoch)
                store = store.replace(some, some)
                assert store.find(some)["x"].unique().to_list() == [epoch]
        touched[many] = sum(heights)
        assert len(store.blocks) <= 6
    assert touched[64_000] <= 2 * touched[1_000]


@pytest.mark.parametrize("rows_each", [1, 7])
def test_memory_follows_the_rows_that_count(rows_each: int) -> None:
    store = KeyedRows.empty(["k"], {"k": pl.Int64(), "x": pl.Int64()})
    for epoch in range(50):
        keys = ints(range(1_000 * epoch, 1_000 * (epoch + 1)))
        store = store.replace(keys, pl.concat([keys] * rows_each))
        store = store.replace(ints(range(1_000 * (epoch - 1), 1_000 * epoch)))
        assert store.live == 1_000 * rows_each
        assert sum(block.rows.height for block in store.blocks) <= 2 * store.live + 1024
    assert sum(block.keys.height for block in store.blocks) <= 10_000
