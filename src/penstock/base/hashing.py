"""The stable hash: from key columns to buckets.

Law: the bucket of a key is the same on every machine, in every process and in every version, so
state that was written yesterday belongs to the same bucket today.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import polars_hash  # noqa: F401  # registers the nchash namespace

BUCKET = "__bucket"
_SEPARATOR, _ITEM, _NULL = "\x1f", "\x1e", "\x00null"


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
    texts = [_text(pl.col(key), (schema or {}).get(key)).fill_null(_NULL) for key in keys]
    text = texts[0] if len(texts) == 1 else pl.concat_str(texts, separator=_SEPARATOR)
    return (stable_hash(text) % buckets).cast(pl.Int32).alias(BUCKET)


def key_columns(keys: Sequence[str], schema: Mapping[str, pl.DataType]) -> list[pl.Expr]:
    """Return the keys as they are hashed: 0.0 and -0.0 are one key and must have one text."""
    return [_without_minus_zero(pl.col(key), schema[key]).alias(key) for key in keys]


def _without_minus_zero(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if "Float" not in str(dtype):
        return value
    if isinstance(dtype, pl.List):
        inner = instance_of(dtype.inner)
        return value.list.eval(_without_minus_zero(pl.element(), inner))
    if isinstance(dtype, pl.Struct):
        fields = [
            _without_minus_zero(value.struct.field(f.name), instance_of(f.dtype)).alias(f.name)
            for f in dtype.fields
        ]
        return pl.when(value.is_not_null()).then(pl.struct(fields))
    return pl.when(value == 0).then(pl.lit(0.0, dtype=dtype)).otherwise(value)


def _text(value: pl.Expr, dtype: pl.DataType | None) -> pl.Expr:
    """Return the text that a key is hashed by; keys that differ may share one, equal ones must."""
    if isinstance(dtype, pl.List):
        items = _text(pl.element(), instance_of(dtype.inner)).fill_null(_NULL)
        return value.list.eval(items).list.join(_ITEM)
    if isinstance(dtype, pl.Struct):
        fields = [
            _text(value.struct.field(f.name), instance_of(f.dtype)).fill_null(_NULL)
            for f in dtype.fields
        ]
        return pl.when(value.is_not_null()).then(pl.concat_str(fields, separator=_ITEM))
    if isinstance(dtype, pl.Duration):
        return value.to_physical().cast(pl.String)
    if dtype == pl.Binary:
        return value.bin.encode("hex")
    return value.cast(pl.String)


def instance_of(dtype: Any) -> pl.DataType:
    """Return a type that was given as a class or as an instance."""
    found: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return found
