"""Which types of Spark the columns of `foreach_batch` have.

Law: a column's type in Spark depends on its type here alone, not on whether an epoch has rows. A
type for which Spark has no other is refused when the query is built. No pyspark here: types of
Spark are in the words of its SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

_PLAIN: dict[pl.DataType, tuple[pl.DataType, str]] = {
    pl.Int8(): (pl.Int8(), "tinyint"),
    pl.Int16(): (pl.Int16(), "smallint"),
    pl.Int32(): (pl.Int32(), "int"),
    pl.Int64(): (pl.Int64(), "bigint"),
    pl.Int128(): (pl.Decimal(38, 0), "decimal(38,0)"),
    pl.UInt8(): (pl.Int16(), "smallint"),
    pl.UInt16(): (pl.Int32(), "int"),
    pl.UInt32(): (pl.Int64(), "bigint"),
    pl.UInt64(): (pl.Decimal(20, 0), "decimal(20,0)"),
    pl.UInt128(): (pl.Decimal(38, 0), "decimal(38,0)"),
    pl.Float16(): (pl.Float32(), "float"),
    pl.Float32(): (pl.Float32(), "float"),
    pl.Float64(): (pl.Float64(), "double"),
    pl.Boolean(): (pl.Boolean(), "boolean"),
    pl.String(): (pl.String(), "string"),
    pl.Null(): (pl.String(), "string"),
    pl.Binary(): (pl.Binary(), "binary"),
    pl.Date(): (pl.Date(), "date"),
}
_NO_TIME = "Spark reads no times of day from files; cast it to text"


def hand_over(dtype: pl.DataType) -> tuple[pl.DataType, str] | None:
    """Return the type in which a column is handed to Spark, and what Spark calls it.

    >>> hand_over(pl.UInt8()), hand_over(pl.Datetime("ns", "Asia/Tokyo"))
    ((Int16, 'smallint'), (Datetime(time_unit='us', time_zone='Asia/Tokyo'), 'timestamp'))
    >>> hand_over(pl.List(pl.UInt64))[1], hand_over(pl.Time())
    ('array<decimal(20,0)>', None)
    """
    if dtype in _PLAIN:
        return _PLAIN[dtype]
    if isinstance(dtype, pl.Decimal):
        return dtype, f"decimal({dtype.precision},{dtype.scale})"
    if isinstance(dtype, pl.Datetime):
        kind = "timestamp_ntz" if dtype.time_zone is None else "timestamp"
        return pl.Datetime("us", dtype.time_zone), kind
    if isinstance(dtype, pl.Duration):
        return pl.Duration("us"), "interval day to second"
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return pl.String(), "string"
    return _hand_over_nested(dtype)


def _hand_over_nested(dtype: pl.DataType) -> tuple[pl.DataType, str] | None:
    if isinstance(dtype, pl.List | pl.Array):
        inner = hand_over(_instance(dtype.inner))
        return inner and (pl.List(inner[0]), f"array<{inner[1]}>")
    if isinstance(dtype, pl.Struct):
        fields = {field.name: hand_over(_instance(field.dtype)) for field in dtype.fields}
        known = {name: found for name, found in fields.items() if found is not None}
        words = ",".join(f"{quote(name)}:{word}" for name, (_, word) in known.items())
        types = {name: kind for name, (kind, _) in known.items()}
        return (pl.Struct(types), f"struct<{words}>") if len(known) == len(fields) else None
    return None


def _instance(dtype: Any) -> pl.DataType:
    found: pl.DataType = dtype() if isinstance(dtype, type) else dtype
    return found


def quote(name: str) -> str:
    """Return a name as Spark's SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def casts_for_spark(schema: Mapping[str, pl.DataType]) -> tuple[dict[str, pl.Expr], list[str]]:
    """Return the columns that must be cast before Spark gets them, and what is wrong with others.

    >>> casts, problems = casts_for_spark({"n": pl.UInt8(), "x": pl.Int64(), "t": pl.Time()})
    >>> list(casts), problems[0]
    (['n'], "foreach_batch: column 't' is Time; Spark reads no times of day from files; cast it to \
text, as in CAST(t AS VARCHAR)")
    """
    casts, problems = {}, []
    for name, dtype in schema.items():
        found = hand_over(dtype)
        if found is None:
            problems.append(f"foreach_batch: column {name!r} is {dtype}; {_remedy(name, dtype)}")
        elif found[0] != dtype:
            casts[name] = pl.col(name).cast(found[0])
    return casts, problems


def _remedy(name: str, dtype: pl.DataType) -> str:
    if dtype == pl.Time():
        return f"{_NO_TIME}, as in CAST({name} AS VARCHAR)"
    if dtype.is_nested():
        return "Spark has no type for what is in it; cast that, or leave the column out"
    return "Spark has no such type; leave the column out"
