"""Combining rows to partials per group and pane, before the shuffle.

Law: the partials of a frame are those of its rows in any order. Rows in time order are common, and
then a pane's rows stand together; grouping each pane by the key alone is twice as fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from penstock.operators.stores.chunks import PANE
from penstock.operators.windows.parts import Parts, partial_names, partials_for
from penstock.query.aggregates import Call

_LONG_RUN = 20_000
"""Runs of fewer rows than this are not worth a group-by of their own."""


def columns_for(calls: Sequence[Call]) -> tuple[list[pl.Expr], list[Call]]:
    """Return the expressions that calls need, each once, and the calls over their columns.

    >>> calls = [Call(function=f, argument=pl.col("x") + 1) for f in ("sum", "count")]
    >>> columns, over = columns_for(calls)
    >>> len(columns), str(over[1].argument)
    (1, 'col("__x0")')
    """
    columns: dict[str, pl.Expr] = {}

    def column(expression: pl.Expr | None) -> pl.Expr | None:
        if expression is None:
            return None
        text = str(expression)
        if text not in columns:
            columns[text] = expression.alias(f"__x{len(columns)}")
        return pl.col(columns[text].meta.output_name())

    over = [
        c if c.constant else replace(c, argument=column(c.argument), keep=column(c.keep))
        for c in calls
    ]
    return list(columns.values()), over


def group_rows(frame: pl.DataFrame, by: Sequence[str], parts: Sequence[Parts]) -> pl.DataFrame:
    """Return partials per group and pane."""
    partials, after = partials_for(frame, parts)
    panes = _long_runs(frame) if by else None
    if panes is None:
        grouped = frame.lazy().group_by(*by, PANE).agg(partials).collect()
    else:
        grouped = pl.concat([
            pl.concat([frame[start : start + length] for start, length in runs])
            .group_by(by)
            .agg(partials)
            .with_columns(pl.lit(pane, dtype=pl.Int64).alias(PANE))
            for pane, runs in panes.items()
        ])  # fmt: skip
    return grouped.with_columns(after).select(*by, PANE, *partial_names(parts))


def _long_runs(frame: pl.DataFrame) -> dict[int, list[tuple[int, int]]] | None:
    """Return where the rows of each pane are, if they stand in few long runs; else None."""
    if frame.height < _LONG_RUN:
        return None
    runs = frame[PANE].rle()
    if runs.len() * _LONG_RUN > frame.height:
        return None
    panes: dict[int, list[tuple[int, int]]] = {}
    start = 0
    for pane, length in zip(
        runs.struct.field("value").to_list(), runs.struct.field("len").to_list(), strict=True
    ):
        panes.setdefault(pane, []).append((start, length))
        start += length
    return panes
