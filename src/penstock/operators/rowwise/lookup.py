"""Lookup: columns from a table that stands still.

Law: a row comes out once at most, whatever the table, since no two of its rows have one key.
"""

from __future__ import annotations

import io
from typing import Literal

import polars as pl

from penstock.query.enrich import Lookup


def look_up(node: Lookup, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return rows with the columns of the table; without a match nulls, or no row."""
    how: Literal["left", "inner"] = "left" if node.how == "left" else "inner"
    return rows.join(node.table.lazy(), on=list(node.on), how=how)


def table_bytes(node: Lookup) -> bytes:
    """Return the content of a table, the same for rows in any order."""
    buffer = io.BytesIO()
    columns = sorted(node.table.columns)
    node.table.select(columns).sort(list(node.on)).rechunk().write_ipc(buffer)
    return buffer.getvalue()
