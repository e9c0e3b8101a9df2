"""Key tables: equal keys and only equal keys share a code, before and after pruning."""

from __future__ import annotations

from unittest.mock import patch

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.stores.chunks import PANE
from penstock.operators.stores.keys import CODE, KeyTable
from penstock.operators.windows import combine
from penstock.operators.windows.combine import group_rows
from penstock.operators.windows.parts import one_column

SCHEMA: dict[str, pl.DataType] = {"k": pl.String(), "n": pl.Int64()}
pairs = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0, 1, None])), max_size=12
)


def frame_of(rows: list[tuple[str | None, int | None]]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    return frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("row"))


@given(batches=st.lists(pairs, max_size=4))
def test_codes_stand_for_keys(batches: list[list[tuple[str | None, int | None]]]) -> None:
    table = KeyTable.empty(SCHEMA)
    coded: list[pl.DataFrame] = []
    for batch in batches:
        table, rows = table.encode(frame_of(batch))
        coded.append(rows.sort("row"))
    for batch, rows in zip(batches, coded, strict=True):
        assert table.decode(rows).select("k", "n").rows() == batch
    codes: dict[tuple[str | None, int | None], int] = {}
    for batch, rows in zip(batches, coded, strict=True):
        for key, code in zip(batch, rows[CODE], strict=True):
            assert codes.setdefault(key, code) == code
    assert len(set(codes.values())) == len(codes)


@given(rows=pairs, kept=st.integers(0, 12))
def test_pruning_keeps_the_keys_that_are_used(
    rows: list[tuple[str | None, int | None]], kept: int
) -> None:
    table, coded = KeyTable.empty(SCHEMA).encode(frame_of(rows))
    frames = [coded.filter(pl.col("row") < kept), coded.filter(pl.col("row") >= 10)]
    small, recoded = table.prune(frames)
    left = [key for i, key in enumerate(rows) if i < kept or i >= 10]
    assert small.height == len(set(left))
    for before, after in zip(frames, recoded, strict=True):
        assert small.decode(after).equals(table.decode(before))


def test_a_table_without_keys_has_one_code() -> None:
    table, coded = KeyTable.empty({}).encode(pl.DataFrame({"v": [1, 2]}))
    assert coded[CODE].to_list() == [0, 0]
    assert table.decode(coded).columns == ["v"]


@given(panes=st.lists(st.integers(0, 3), max_size=40), run=st.sampled_from([1, 2, 10**6]))
def test_runs_of_panes_are_grouped_like_any_rows(panes: list[int], run: int) -> None:
    frame = pl.DataFrame(
        {
            "k": [f"k{i % 3}" for i in range(len(panes))],
            PANE: sorted(panes),
            "v": range(len(panes)),
        },
        schema={"k": pl.String, PANE: pl.Int64, "v": pl.Int64},
    )
    total = one_column("s", pl.col("v").sum(), pl.Expr.sum)
    whole = frame.group_by("k", PANE).agg(total.partial)
    with patch.object(combine, "_LONG_RUN", run):
        found = group_rows(frame, ["k"], [total])
    assert found.sort("k", PANE).equals(whole.sort("k", PANE))
