"""The stable hash: from key columns to buckets.

Law: the bucket of a key is the same on every machine, in every process and in every version, so
state that was written yesterday belongs to the same bucket today.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import polars_hash  # noqa: F401  # registers the nchash namespace

BUCKET = "__bucket"
_SEPARATOR, _NULL = "\x1f", "\x00null"


def stable_hash(text: pl.Expr) -> pl.Expr:
    """Return the 64-bit xxhash of a text expression."""
    hashed: pl.Expr = text.nchash.xxhash64()  # type: ignore[attr-defined]  # polars-hash adds it
    return hashed


def bucket_of(
    keys: Sequence[str], buckets: int, schema: Mapping[str, pl.DataType] | None = None
) -> pl.Expr:
    """Return the expression for the bucket of a row's key.

    Args:
        keys: The key columns.
        buckets: How many buckets there are.
        schema: The types of the columns, for those that have no text of their own.

    >>> pl.DataFrame({"k": ["a", None, "b"]}).select(bucket_of(["k"], 1024)).to_series().to_list()
    [603, 880, 923]
    """
    if not keys:
        return pl.lit(0, dtype=pl.Int32).alias(BUCKET)
    texts = [_text(key, (schema or {}).get(key)).fill_null(_NULL) for key in keys]
    text = texts[0] if len(texts) == 1 else pl.concat_str(texts, separator=_SEPARATOR)
    return (stable_hash(text) % buckets).cast(pl.Int32).alias(BUCKET)


def key_columns(keys: Sequence[str], schema: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    """Return the keys as they are hashed: 0.0 and -0.0 are one key and must have one text."""
    return [
        pl.when(pl.col(key) == 0).then(pl.lit(0.0, dtype=dtype)).otherwise(pl.col(key)).alias(key)
        if (dtype := schema[key]).is_float()
        else pl.col(key)
        for key in keys
    ]


def _text(key: str, dtype: pl.DataType | None) -> pl.Expr:
    if isinstance(dtype, pl.Duration):
        return pl.col(key).to_physical().cast(pl.String)
    if dtype == pl.Binary:
        return pl.col(key).bin.encode("hex")
    return pl.col(key).cast(pl.String)
