"""The stable hash: from key columns to buckets.

Law: the bucket of a key is the same on every machine, in every process and in every version, so
state that was written yesterday belongs to the same bucket today.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import polars_hash  # noqa: F401  # registers the nchash namespace

BUCKET = "__bucket"
_SEPARATOR, _NULL = "\x1f", "\x00null"


def stable_hash(text: pl.Expr) -> pl.Expr:
    """Return the 64-bit xxhash of a text expression."""
    hashed: pl.Expr = text.nchash.xxhash64()  # type: ignore[attr-defined]  # polars-hash adds it
    return hashed


def bucket_of(keys: Sequence[str], buckets: int) -> pl.Expr:
    """Return the expression for the bucket of a row's key.

    >>> pl.DataFrame({"k": ["a", None, "b"]}).select(bucket_of(["k"], 1024)).to_series().to_list()
    [603, 880, 923]
    """
    if not keys:
        return pl.lit(0, dtype=pl.Int32).alias(BUCKET)
    texts = [pl.col(key).cast(pl.String).fill_null(_NULL) for key in keys]
    text = texts[0] if len(texts) == 1 else pl.concat_str(texts, separator=_SEPARATOR)
    return (stable_hash(text) % buckets).cast(pl.Int32).alias(BUCKET)
