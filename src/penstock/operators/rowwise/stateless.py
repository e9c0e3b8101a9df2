"""Stateless operators over frames.

Law: with `penstock.operators.rowwise.blame`, a row that makes an expression or a user's function
fail is refused with the reason, and every other row comes out as if it had not been there.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from penstock.base.columns import ORDER
from penstock.operators.rowwise.blame import foreign, mark_foreign
from penstock.operators.rowwise.lookup import look_up
from penstock.query.enrich import Lookup
from penstock.query.nodes import Apply, Explode, Filter, Map, Node, Sink, Spread, Union

CAREFUL = pl.QueryOptFlags.none()
"""Compute everything that is written, where it is written: a row that fails must not be missed."""


def transform(node: Node, frames: Sequence[pl.LazyFrame], columns: Sequence[str]) -> pl.LazyFrame:
    """Return what a stateless operator makes of its inputs.

    Args:
        node: A map, filter, union, explode, lookup, apply, spread or unordered sink.
        frames: One frame for each input that has rows here.
        columns: The columns that a union gives, in order; inputs may carry more.
    """
    if isinstance(node, Union):
        return pl.concat([frame.select(columns) for frame in frames])
    (frame,) = frames
    if isinstance(node, Map):
        return _map(node, frame)
    if isinstance(node, Filter):
        return frame.filter(node.predicate)
    if isinstance(node, Apply):
        return _apply(node, frame.collect(optimizations=CAREFUL)).lazy()
    if isinstance(node, Explode):
        return _explode(node, frame)
    if isinstance(node, Lookup):
        return look_up(node, frame)
    assert isinstance(node, Sink | Spread)
    return frame


def _map(node: Map, frame: pl.LazyFrame) -> pl.LazyFrame:
    expressions = [expression for _, expression in node.columns]
    if node.keep:
        return frame.with_columns(expressions)
    hidden = [name for name in ORDER if name in frame.collect_schema()]
    return frame.select(*expressions, *hidden)


def _explode(node: Explode, frame: pl.LazyFrame) -> pl.LazyFrame:
    rows = frame.filter(pl.col(node.column).list.len() > 0).explode(node.column)
    dtype = node.inputs[0].schema[node.column]
    assert isinstance(dtype, pl.List)
    return rows.unnest(node.column) if isinstance(dtype.inner, pl.Struct) else rows


def _apply(node: Apply, frame: pl.DataFrame) -> pl.DataFrame:
    hidden = [name for name in ORDER if name in frame.columns]
    given = frame.select(list(node.inputs[0].schema))
    with foreign():
        result = node.function(given)
    wrong = _complaint(node, given, result)
    if wrong is not None:
        raise mark_foreign(wrong)
    with foreign():
        declared = result.select(pl.col(name).cast(dtype) for name, dtype in node.schema.items())
    return declared.hstack(frame.select(hidden)) if hidden else declared


def _complaint(node: Apply, given: pl.DataFrame, result: object) -> Exception | None:
    """Return what is wrong with what a user's function returned, if anything is."""
    if not isinstance(result, pl.DataFrame):
        return TypeError(
            f"apply {node.name} must return a Polars DataFrame; it returned {type(result).__name__}"
        )
    if result.height != given.height:
        return ValueError(
            f"apply {node.name} must return one row for each row; "
            f"it got {given.height} and returned {result.height}"
        )
    missing = [name for name in node.schema if name not in result.columns]
    if missing:
        return ValueError(f"apply {node.name} did not return the declared columns {missing}")
    return None
