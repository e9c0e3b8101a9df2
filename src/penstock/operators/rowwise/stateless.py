"""Stateless operators over frames, and the search for rows that cannot be computed.

Law: a row that makes an expression or a user's function fail is refused with the reason, and every
other row comes out as if the bad row had not been there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import polars as pl

from penstock.base.columns import ORDER
from penstock.operators.rowwise.lookup import look_up
from penstock.query.enrich import Lookup
from penstock.query.expressions import first_line
from penstock.query.failing import told_by
from penstock.query.nodes import Apply, Explode, Filter, Map, Node, Sink, Spread, Union

Step = Callable[[pl.DataFrame], pl.DataFrame]
CAREFUL = pl.QueryOptFlags.none()
"""Compute everything that is written, where it is written: a row that fails must not be missed."""
FAILURES = (Exception, pl.exceptions.PanicException)
"""What an expression may raise; Polars panics over times that are too far away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Rows that an operator could not compute, as they came to it."""

    operator: str
    reason: str
    row: pl.DataFrame


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
    result = node.function(given)
    if not isinstance(result, pl.DataFrame):
        raise TypeError(
            f"apply {node.name} must return a Polars DataFrame; it returned {type(result).__name__}"
        )
    if result.height != frame.height:
        raise ValueError(
            f"apply {node.name} must return one row for each row; "
            f"it got {frame.height} and returned {result.height}"
        )
    missing = [name for name in node.schema if name not in result.columns]
    if missing:
        raise ValueError(f"apply {node.name} did not return the declared columns {missing}")
    declared = result.select(pl.col(name).cast(dtype) for name, dtype in node.schema.items())
    return declared.hstack(frame.select(hidden)) if hidden else declared


def refuse_failing(
    step: Step,
    frame: pl.DataFrame,
    operator: str,
    limit: int,
) -> tuple[list[pl.DataFrame], list[Refusal]]:
    """Run a step over a frame; where it raises, find the rows to blame by halving.

    Args:
        step: A function that treats each row on its own.
        frame: The rows.
        operator: What to call the step in the reasons.
        limit: How many refusals to find at most before giving up the search.

    >>> def strict(f): return f.select(pl.col("x").cast(pl.Int64))
    >>> good, bad = refuse_failing(strict, pl.DataFrame({"x": ["1", "z", "3"]}), "map", 10)
    >>> pl.concat(good)["x"].to_list(), bad[0].row["x"].to_list()
    ([1, 3], ['z'])
    """
    good: list[pl.DataFrame] = []
    bad: list[Refusal] = []
    pending = [frame]
    while pending and len(bad) <= limit:
        part = pending.pop()
        try:
            good.append(step(part))
        except FAILURES as error:  # whatever a user's code raises is the row's reason
            if part.height <= 1:
                reason = told_by(error) or f"{type(error).__name__}: {first_line(error)}"
                bad.append(Refusal(operator=operator, reason=reason, row=part))
            else:
                half = part.height // 2
                pending += [part[half:], part[:half]]
    return good, bad
