"""Rows of Spark in the types that a query knows: what a DataFrame's types are, and its batches.

Law: a value of Spark's is the same value here, whatever zones and types the two sides name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.base.errors import QueryError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS_PER_SPLIT = 250_000


def frame_schema(frame: DataFrame) -> dict[str, pl.DataType]:
    """Return the schema of a Spark DataFrame in Polars types.

    A ``timestamp`` has the zone of the session, or UTC if Polars does not know that zone; a
    ``timestamp_ntz`` has none.

    Raises:
        QueryError: A column has a type that Arrow or Polars does not have.
    """
    found, problems = {}, []
    zone = _find_known(frame.sparkSession.conf.get("spark.sql.session.timeZone"))
    for field in frame.schema.fields:
        try:
            arrow = to_arrow_schema(StructType([field]), timezone=zone)
            found[field.name] = pl.DataFrame(arrow.empty_table()).schema[field.name]
        except Exception as error:  # Spark and Polars each have errors of their own for this
            reason = str(error).strip().splitlines()[0]
            problems.append(f"from_spark: column {field.name!r} cannot be read: {reason}")
    if problems:
        raise QueryError(problems=problems)
    return found


@cache
def _find_known(zone: str | None) -> str:
    """Return a zone of Spark's if Polars knows it, else UTC: the instants are the same."""
    try:
        pl.Series([0], dtype=pl.Datetime("us", zone)).dt.hour()
    except pl.exceptions.PolarsError:
        return "UTC"
    return zone or "UTC"


def gather_rows(
    batches: Iterator[pa.RecordBatch], schema: Mapping[str, pl.DataType]
) -> Iterator[pl.DataFrame]:
    """Yield the rows that Spark hands to a task in frames that are worth a split."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            rows += batch.num_rows
        if rows >= _ROWS_PER_SPLIT:
            yield _frame(waiting, schema)
            waiting, rows = [], 0
    if waiting:
        yield _frame(waiting, schema)


def rows_of_batches(
    batches: Iterator[pa.RecordBatch], schema: Mapping[str, pl.DataType]
) -> pl.DataFrame:
    """Return all rows that Spark hands to a task, in the types that the query knows."""
    found = [batch for batch in batches if batch.num_rows]
    return _frame(found, schema) if found else pl.DataFrame(schema=dict(schema))


def _frame(batches: list[pa.RecordBatch], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    table = pa.Table.from_batches(batches).select(list(schema))
    types = [_make_readable(kind) for kind in table.schema.types]
    if types != table.schema.types:
        table = table.cast(pa.schema(zip(table.column_names, types, strict=True)))
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.cast(pl.Schema(schema))


def _make_readable(kind: pa.DataType) -> pa.DataType:
    """Return a type of Arrow in which zones that Polars does not know are UTC."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, _find_known(kind.tz))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_make_readable(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_make_readable(field.type)) for field in kind])
    return kind
