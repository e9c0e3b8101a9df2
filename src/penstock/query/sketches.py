"""The approximate aggregates, as Polars expressions that the decomposer knows again.

Polars has no mergeable quantile, so ``approx_quantile`` is written as a quantile over a marked
column.
"""

from __future__ import annotations

import polars as pl

QUANTILE_MARK = "__approx_quantile"


def approx_quantile(column: str | pl.Expr, q: float) -> pl.Expr:
    """Return the q-quantile of a column within 1 % of its value, from a mergeable sketch.

    >>> import penstock as ps
    >>> p99 = ps.approx_quantile("latency", 0.99)
    """
    if not 0 <= q <= 1:
        raise ValueError(f"q must be between 0 and 1; q={q!r}")
    expression = pl.col(column) if isinstance(column, str) else column
    return expression.alias(QUANTILE_MARK).quantile(q)


def approx_distinct(column: str | pl.Expr) -> pl.Expr:
    """Return the number of distinct values within about 2 %, from a mergeable sketch.

    >>> import penstock as ps
    >>> callees = ps.approx_distinct("dst")
    """
    expression = pl.col(column) if isinstance(column, str) else column
    return expression.approx_n_unique()
