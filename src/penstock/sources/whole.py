"""Late rows with all columns of their source, so that they can be read again by the same query."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from penstock.sources.exact import fit
from penstock.sources.formats import Schema


def read_whole_rows(
    found: Sequence[pl.DataFrame], known: pl.DataFrame, schema: Schema
) -> pl.DataFrame:
    """Return late rows in a source's schema.

    A value that the query does not read and that its type does not have is null, and so is one that
    cannot be read any more.

    Args:
        found: The rows with all the columns that could be had.
        known: The same rows with the columns that the query reads.
        schema: The columns of the source.

    >>> wide = pl.DataFrame({"x": [1], "note": [7], "more": ["?"]})
    >>> read_whole_rows([wide], wide.select("x"), {"x": pl.Int64(), "note": pl.String()}).rows()
    [(1, '7')]
    """
    parts = [_fit_columns(frame, schema) for frame in found]
    rows = pl.concat([pl.DataFrame(schema=dict(schema)), *parts])
    if rows.height != known.height:  # the file has changed or gone since
        rows = _fit_columns(known, schema)
    return rows.with_columns(known.get_columns())


def _fit_columns(frame: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    return pl.DataFrame(
        [
            fit(frame[name], dtype, parse=frame.schema[name] == pl.String).values.alias(name)
            if name in frame.columns
            else pl.Series(name, [None] * frame.height, dtype=dtype)
            for name, dtype in schema.items()
        ]
    )
