"""Expressions that fail on purpose: a row without a value, and the reason in plain words.

Polars has no expression that raises. A text that is cast to a number raises with the text in its
complaint, so the text is the reason. Law: what a dead letter says is the reason, and nothing of how
it got there.
"""

from __future__ import annotations

import re

import polars as pl

_MARK = "penstock: "
_TOLD = re.compile(rf'\["{_MARK}(.*?)"', re.DOTALL)


def fail_where(condition: pl.Expr, reason: str) -> pl.Expr:
    """Return an expression that is null, and fails with a reason where a condition holds.

    >>> frame = pl.DataFrame({"x": [1, -1]})
    >>> try:
    ...     frame.select(fail_where(pl.col("x") < 0, "x is negative"))
    ... except pl.exceptions.PolarsError as error:
    ...     told_by(error)
    'x is negative'
    """
    said = pl.when(condition).then(pl.lit(_MARK + reason)).otherwise(pl.lit(None, pl.String))
    return said.cast(pl.Int8)


def told_by(error: BaseException) -> str | None:
    """Return the reason that `fail_where` gave; None if the error has another cause."""
    told = _TOLD.search(str(error))
    return told[1] if told else None
