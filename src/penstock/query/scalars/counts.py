"""Functions that count: parts of times, lengths of texts and lists.

Law: they give integers of 64 bits, so that ``month(t) * 100`` and ``length(s) - 5`` have room.
"""

from __future__ import annotations

import polars as pl
from sqlglot import exp

from penstock.query.scalars.translate import Builder, Translator

_NAMES = (
    "array_length", "bit_count", "bit_length", "bitcount", "char_length", "character_length", "day",
    "dayofmonth", "dayofweek", "dayofyear", "hour", "length", "minute", "month", "octet_length",
    "quarter", "second", "week", "year",
)  # fmt: skip


def counted(t: Translator, node: exp.Expr) -> pl.Expr:
    """Return what Polars makes of a node, an integer of 64 bits if it is one."""
    made = t.as_polars_reads(node)
    dtype = t.dtype(made)
    return made if dtype is None or not dtype.is_integer() else made.cast(pl.Int64, strict=False)


NODES: dict[type[exp.Expr], Builder] = {}
CALLS: dict[str, Builder] = dict.fromkeys(_NAMES, counted)
