"""Aggregate functions: merging the partials of any split gives the value over all rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.columns import ORDER
from penstock.operators.windows.functions import parts_of
from penstock.query.aggregates import Call, result_type
from penstock.testing.compare import close
from penstock.testing.reference.folds import fold

INT, FLOAT, SPAN, TEXT = pl.Int64(), pl.Float64(), pl.Duration("us"), pl.String()
VALUES: dict[pl.DataType, st.SearchStrategy[Any]] = {
    INT: st.none() | st.integers(-50, 50) | st.sampled_from([2**63 - 1, -(2**63), 2**62]),
    pl.UInt64(): st.none() | st.integers(0, 2**64 - 1),
    pl.Decimal(38, 3): st.none() | st.integers(-(10**34), 10**34).map(lambda n: Decimal(n) / 8),
    FLOAT: st.none()
    | st.integers(-200, 200).map(lambda n: n / 8)
    | st.sampled_from([0.0, -0.0, float("nan")]),
    SPAN: st.none() | st.integers(-(10**7), 10**7).map(lambda n: timedelta(microseconds=n)),
    TEXT: st.none() | st.sampled_from(["", "a", "b", "ü"]),
    pl.Boolean(): st.none() | st.booleans(),
}
NUMBERS = [INT, FLOAT]
WHOLE = [pl.UInt64(), pl.Decimal(38, 3)]
CASES: list[tuple[str, float, pl.DataType]] = [
    *[(function, 0.0, dtype) for dtype in VALUES
      for function in ("count", "size", "min", "max", "first", "last", "distinct")],
    *[(function, 0.0, dtype) for dtype in (*NUMBERS, *WHOLE, SPAN, pl.Boolean())
      for function in ("sum", "mean")],
    *[(function, ddof, dtype) for dtype in NUMBERS for function in ("var", "std")
      for ddof in (0.0, 1.0, 2.0)],
]  # fmt: skip


def merged(call: Call, groups: Sequence[Sequence[pl.DataFrame]]) -> Any:
    """Return a call's value: partials of frames, merged in groups, then all together."""
    parts = parts_of(0, call)

    def joined(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        return pl.concat(frames).group_by(pl.lit(0).alias("g")).agg(parts.merge).drop("g")

    def partial(frame: pl.DataFrame) -> pl.DataFrame:
        return frame.group_by(pl.lit(0).alias("g")).agg(parts.partial).drop("g")

    whole = joined([joined([partial(frame) for frame in group]) for group in groups])
    return whole.select(parts.finish).item()


def frame_of(values: Sequence[Any], dtype: pl.DataType) -> pl.DataFrame:
    frame = pl.DataFrame({"v": values}, schema={"v": dtype})
    places = pl.int_range(pl.len(), dtype=pl.Int64)
    return frame.with_columns(*[(places * (i == 0)).alias(name) for i, name in enumerate(ORDER)])


@pytest.mark.parametrize(("function", "parameter", "dtype"), CASES, ids=str)
@settings(max_examples=max(5, settings().max_examples // 10))
@given(data=st.data())
def test_any_split_gives_the_value_of_the_whole(
    function: str, parameter: float, dtype: pl.DataType, data: st.DataObject
) -> None:
    values = data.draw(st.lists(VALUES[dtype], min_size=1, max_size=12))
    call = Call(function=function, argument=pl.col("v"), parameter=parameter, dtype=dtype)
    rows = [frame_of(values, dtype)[i : i + 1] for i in range(len(values))]
    order = data.draw(st.permutations(range(len(values))))
    groups: dict[tuple[int, int], list[pl.DataFrame]] = {}
    for i in order:
        groups.setdefault((data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))), []).append(
            rows[i]
        )
    outer: dict[int, list[pl.DataFrame]] = {}
    for (group, _), frames in groups.items():
        outer.setdefault(group, []).append(pl.concat(frames))
    try:
        expected = fold(call, [((i, 0, 0), value) for i, value in enumerate(values)])
        wanted = pl.Series([expected], dtype=result_type(call)).item()
    except (OverflowError, TypeError):  # it fits no value of the type
        with pytest.raises(pl.exceptions.InvalidOperationError, match="does not fit"):
            merged(call, list(outer.values()))
        return
    assert close(merged(call, list(outer.values())), wanted)


@given(values=st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=50), q=st.floats(0, 1))
def test_quantile_sketches_are_within_one_percent(values: list[int], q: float) -> None:
    call = Call(function="approx_quantile", argument=pl.col("v"), parameter=q, dtype=INT)
    frame = frame_of(values, INT)
    found = merged(call, [[frame[:3]], [frame[3:7], frame[7:]]])
    assert found == pytest.approx(fold(call, [((0, 0, 0), v) for v in values]), rel=0.0101)


def test_a_quantile_sketch_does_not_grow_with_merges() -> None:
    call = Call(function="approx_quantile", argument=pl.col("v"), parameter=0.9, dtype=INT)
    parts = parts_of(0, call)
    given = [[(7 * i) % 100 - 20, i % 13] for i in range(1000)]
    grown = frame_of(given[0], INT).select(parts.partial).select(pl.all().implode())
    for values in given[1:]:
        fresh = frame_of(values, INT).select(parts.partial).select(pl.all().implode())
        both = pl.concat([grown, fresh]).with_columns(pl.lit(0).alias("k"))
        grown = both.group_by("k").agg(parts.merge).drop("k")
    everything = [value for values in given for value in values]
    distinct = frame_of(everything, INT).select(parts.partial).height
    assert grown["__p0"].list.len().item() == distinct <= len(set(everything))
    assert grown["__p0"].list.eval(pl.element().struct.field("n")).list.sum().item() == 2000
    assert grown.select(parts.finish).item() == merged(call, [[frame_of(everything, INT)]])


@given(values=st.lists(st.integers(0, 500), max_size=300))
def test_distinct_sketches_merge_to_the_sketch_of_all(values: list[int]) -> None:
    call = Call(function="approx_distinct", argument=pl.col("v"), dtype=INT)
    frame = frame_of([None, *values], INT)
    found = merged(call, [[frame[:90]], [frame[90:91], frame[91:]]])
    assert found == merged(call, [[frame]])
    assert found == pytest.approx(len(set(values)), rel=0.05, abs=1)


@pytest.mark.parametrize("function", ["sum", "count", "mean", "first", "distinct", "max"])
def test_a_literal_counts_once(function: str) -> None:
    call = Call(function=function, argument=pl.lit(7), dtype=pl.Int32())
    frame = frame_of([1, 2, 3], INT)
    once = {"count": 1, "distinct": 1, "mean": 7.0}.get(function, 7)
    assert merged(call, [[frame[:1]], [frame[1:2], frame[2:]]]) == once
