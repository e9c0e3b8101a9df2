"""Rows as text, for dead letters: a JSON object each, with all that a row holds."""

from __future__ import annotations

import polars as pl
import polars.selectors as cs


def row_texts(rows: pl.DataFrame) -> list[str]:
    """Return each row as a JSON object.

    JSON has no bytes and no infinite numbers: bytes are written in hexadecimal, and a column with a
    number that is not finite as texts.

    >>> row_texts(pl.DataFrame({"k": [b"ab", None], "x": [1.5, float("nan")]}))
    ['{"k":"6162","x":"1.5"}', '{"k":null,"x":"NaN"}']
    """
    if not rows.height or not rows.width:
        return ["{}"] * rows.height
    finite = rows.select(cs.float().is_finite().all()).to_dicts()
    plain = rows.with_columns(
        cs.binary().bin.encode("hex"),
        *[pl.col(name).cast(pl.String) for all_ in finite for name in all_ if not all_[name]],
        *[
            pl.col(name).map_elements(str, return_dtype=pl.String)
            for name, dtype in rows.schema.items()
            if dtype.is_nested() and "Binary" in str(dtype)
        ],
    )
    texts: list[str] = plain.select(pl.struct(pl.all()).struct.json_encode()).to_series().to_list()
    return texts
