"""The values of an aggregation over windows that were found row by row: sessions and counts.

A window here is a number in a frame, with its times; which rows it has is the kernel's business.
Laws: the values are those that a time window with the same rows would give; a window for which an
expression fails is refused with the reason, and every other window comes out as if it had not been.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from penstock.base.columns import TIME
from penstock.base.hashing import key_columns
from penstock.operators.kernel import empty_results, place_results
from penstock.operators.rowwise.blame import FAILURES, Refusal, refuse_failing
from penstock.operators.windows.combine import columns_for
from penstock.operators.windows.functions import parts_of
from penstock.operators.windows.parts import Parts
from penstock.query.aggregates import Call
from penstock.query.nodes import Aggregate

WINDOW = "__window"
"""The number of a window in a frame."""
START, END = "__start", "__end"
"""What a result shows as its window's start and end; its event time is the end."""
KEY = "__key"
"""The number of a key in a frame."""
_SLOT = "__slot"


class WindowValues:
    """The expressions of one aggregate operator: what is sent, merged and written.

    Attributes:
        parts: The parts of each call; None where rows are kept.
        over: The calls over the columns that `prepare` makes.
        merges: The expressions that merge the partials of a group.
        told_apart: The columns that give rows at the same place an order.
        runs: Whether kept rows come window by window, sorted by ``WINDOW``, never one alone.
    """

    def __init__(self, node: Aggregate, operator: int, ordered: bool) -> None:
        """Take an aggregate node apart; `operator` tells it apart in the order of results."""
        self.node, self.operator, self.ordered = node, operator, ordered
        self.by = list(node.by)
        self.runs = False
        self.parts: list[Parts] | None = None
        self.columns: list[pl.Expr] = []
        self.over: list[Call] = []
        if node.aggregation.calls is not None:
            self.columns, self.over = columns_for(node.aggregation.calls)
            self.parts = [parts_of(i, call) for i, call in enumerate(self.over)]
        self.merges = [e for parts in self.parts or () for e in parts.merge]
        schema = node.inputs[0].schema
        kept = [c for c in schema if c in node.aggregation.reads]
        self.told_apart = [name for name in kept if not schema[name].is_nested()]
        self.kept = [pl.col(name) for name in kept if name not in self.by]

    def prepare(self, rows: pl.LazyFrame, hidden: Sequence[str | pl.Expr]) -> pl.LazyFrame:
        """Return keys, hidden columns, and arguments or the columns that are kept."""
        keys = key_columns(self.by, self.node.schema)
        return rows.select(*keys, *hidden, *(self.kept if self.parts is None else self.columns))

    def finish(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, tuple[Refusal, ...]]:
        """Return result rows, and the windows for which an expression failed.

        Args:
            rows: Merged partials, one row for each window, or all rows of each window; with keys,
                ``WINDOW``, ``START`` and ``END``. Kept rows are in stream order.
        """
        try:
            return self._results(rows), ()
        except FAILURES:  # the search below finds the windows to blame
            pass

        def step(part: pl.DataFrame) -> pl.DataFrame:
            return self._results(rows.join(part, on=WINDOW, how="semi"))

        windows = rows.select(*self.by, START, END, WINDOW).unique(WINDOW, maintain_order=True)
        good, bad = refuse_failing(step, windows, self.node.title, windows.height, self.node)
        shown = [*self.by, "window_start", "window_end"]
        refusals = [replace(r, row=r.row.with_columns(self._times()).select(shown)) for r in bad]
        return pl.concat([self.no_results(), *good]), tuple(refusals)

    def no_results(self) -> pl.DataFrame:
        """Return no results, with the columns that results have."""
        return empty_results(self.node.schema, self.ordered)

    def _results(self, rows: pl.DataFrame) -> pl.DataFrame:
        node, outer = self.node, self.node.aggregation.outer
        values = [
            e.cast(node.schema[name]).alias(name)
            for name, e in zip(node.aggregation.names, outer, strict=True)
        ]
        if self.parts is None:
            shown = [pl.col(name).first() for name in (*self.by, START, END)]
            lazy = rows.lazy().group_by(self._groups(), maintain_order=True).agg(*shown, *values)
        else:
            finishes = [parts.finish for parts in self.parts]
            lazy = rows.lazy().with_columns(finishes).with_columns(values)
        timed = lazy.with_columns(*self._times(), pl.col(END).alias(TIME))
        return (
            place_results(timed, self.operator, self.ordered)
            .select(self.no_results().columns)
            .collect()
        )

    def _times(self) -> list[pl.Expr]:
        schema = self.node.schema
        return [
            pl.col(START).cast(schema["window_start"]).alias("window_start"),
            pl.col(END).cast(schema["window_end"]).alias("window_end"),
        ]

    def _groups(self) -> list[pl.Expr]:
        # A second key, if only a literal: Polars 2.1 takes groups of one sorted key for runs, which
        # is fast, and the variance of a run of one null for 0, which is wrong.
        return [pl.col(WINDOW), *([] if self.runs else [pl.lit(0).alias(_SLOT)])]


def by_key(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return rows key by key, in the order that they have, with the number of their key.

    To number the keys and sort by the number is several times as fast as to sort by text.

    >>> rows = by_key(pl.DataFrame({"k": ["b", None, "b"], "x": [3, 1, 2]}), ["k"])
    >>> rows.filter(pl.col("k") == "b")["x"].to_list(), rows[KEY].is_sorted()
    ([3, 2], True)
    """
    if not by:
        return rows.with_columns(pl.lit(0, dtype=pl.UInt32).alias(KEY))
    keys = rows.select(by).unique().with_row_index(KEY)
    numbered = rows.join(keys, on=by, how="left", nulls_equal=True, maintain_order="left")
    return numbered.sort(KEY, maintain_order=True)


def key_changes() -> pl.Expr:
    """Return whether a row, key by key, is the first of its key."""
    return (pl.col(KEY) != pl.col(KEY).shift()).fill_null(True)
