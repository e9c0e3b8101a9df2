"""Sources on Spark: every source as one streaming DataFrame of splits.

Structured Streaming owns the offsets. A folder is a stream of file names, never of rows; a
streaming DataFrame is packed into Arrow batches. All sources of a query are united into one
DataFrame, so an epoch takes all of them at one point. Law: a row of this DataFrame is one split,
whole.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import reduce
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import QueryError
from penstock.exchange.payload import to_bytes
from penstock.plan.compiled import CompiledQuery
from penstock.query.nodes import Files, Frame, Rows, Source
from penstock.sources.admission import event_time
from penstock.sources.formats import EXTENSIONS
from penstock.sources.splits import Split
from penstock.state.files import Place, named_by_hash, sha256

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SPLIT_SCHEMA = (
    "source int, part bigint, seq bigint, path string, rows bigint, highest bigint, body binary"
)
_BINARY_FILE = "path string, modificationTime timestamp, length bigint, content binary"
_ROWS_PER_SPLIT = 250_000


def frame_schema(frame: DataFrame) -> dict[str, pl.DataType]:
    """Return the schema of a Spark DataFrame in Polars types; times are UTC without a zone.

    Raises:
        QueryError: A column has a type that Arrow or Polars does not have.
    """
    found, problems = {}, []
    for field in frame.schema.fields:
        try:
            arrow = to_arrow_schema(StructType([field]), timezone="UTC")
            found[field.name] = _plain(pl.DataFrame(arrow.empty_table()).schema[field.name])
        except Exception as error:  # Spark and Polars each have errors of their own for this
            reason = str(error).strip().splitlines()[0]
            problems.append(f"from_spark: column {field.name!r} cannot be read: {reason}")
    if problems:
        raise QueryError(problems=problems)
    return found


def _plain(dtype: pl.DataType) -> pl.DataType:
    return pl.Datetime("us") if isinstance(dtype, pl.Datetime) else dtype


def stream_of_splits(spark: SparkSession, query: CompiledQuery, rows_folder: str) -> DataFrame:
    """Return the streaming DataFrame of all sources of a query.

    It is a DataFrame of splits; for a scattered query it is the user's rows as they are.
    """
    if query.scattered:
        return _needed_columns(query, *query.sources[0])
    frames = [
        _splits_of(spark, query, number, source, rows_folder) for number, source in query.sources
    ]
    return reduce(lambda left, right: left.unionAll(right), frames)


def _splits_of(
    spark: SparkSession, query: CompiledQuery, number: int, source: Source, rows_folder: str
) -> DataFrame:
    reader = source.reader
    if isinstance(reader, Frame):
        pack = _packer(number, source, needed_schema(query, number, source))
        return _needed_columns(query, number, source).mapInArrow(pack, SPLIT_SCHEMA)
    if isinstance(reader, Rows):
        return _file_splits(spark, number, f"{rows_folder}/{number}", "arrow", None)
    assert isinstance(reader, Files)
    return _file_splits(spark, number, reader.path, reader.format, reader.max_files_per_epoch)


def needed_schema(query: CompiledQuery, number: int, source: Source) -> dict[str, pl.DataType]:
    """Return the columns of a source that a query reads."""
    needed = query.required[number] | {source.time}
    return {name: dtype for name, dtype in source.schema.items() if name in needed}


def _needed_columns(query: CompiledQuery, number: int, source: Source) -> DataFrame:
    assert isinstance(source.reader, Frame)
    assert source.reader.frame is not None
    return source.reader.frame.select(*[f"`{c}`" for c in needed_schema(query, number, source)])


def write_rows(query: CompiledQuery, rows_folder: Place) -> None:
    """Write the rows of the program to files, once, so that a restart reads the same."""
    for number, source in query.sources:
        folder = rows_folder / str(number)
        if isinstance(source.reader, Rows) and not _has_rows(folder):
            buffer = io.BytesIO()
            source.reader.rows.write_ipc(buffer, compression="uncompressed")
            data = buffer.getvalue()
            with suppress(FileExistsError):  # another driver wrote the same
                (folder / named_by_hash("rows", sha256(data), ".arrow")).write_new(data)


def _has_rows(folder: Place) -> bool:
    return any(entry.name.startswith("rows-") for entry in folder.list())


def spark_uri(place: Place) -> str:
    """Return a place as Spark names it."""
    return str(place).replace("s3://", "s3a://", 1)


def _file_splits(
    spark: SparkSession,
    number: int,
    path: str,
    form: str,
    limit: int | None,
) -> DataFrame:
    endings = ",".join(e for ending in EXTENSIONS[form] for e in (ending, ending.upper()))
    stream = (
        spark.readStream.format("binaryFile")
        .schema(_BINARY_FILE)
        .option("pathGlobFilter", f"[!._]*{{{endings}}}")
    )
    if limit is not None:
        stream = stream.option("maxFilesPerTrigger", limit)
    return stream.load(path).selectExpr(
        f"{number} as source",
        "unix_micros(modificationTime) as part",
        "cast(0 as bigint) as seq",
        "path",
        "cast(null as bigint) as rows",
        "cast(null as bigint) as highest",
        "cast(null as binary) as body",
    )


def _packer(
    number: int,
    source: Source,
    schema: Mapping[str, pl.DataType],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that packs rows of Spark into splits, inside a Spark task."""
    types = pa.schema(
        [
            ("source", pa.int32()),
            ("part", pa.int64()),
            ("seq", pa.int64()),
            ("path", pa.string()),
            ("rows", pa.int64()),
            ("highest", pa.int64()),
            ("body", pa.binary()),
        ]
    )
    time = event_time(source)

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        part = context.partitionId() if context else 0
        for seq, frame in enumerate(_gathered(batches, schema)):
            highest = frame.select(time).to_series().max()
            row = {
                "source": number,
                "part": part,
                "seq": seq,
                "path": None,
                "rows": frame.height,
                "highest": highest,
                "body": to_bytes(frame),
            }
            yield pa.RecordBatch.from_pylist([row], schema=types)

    return pack


def _gathered(
    batches: Iterator[pa.RecordBatch],
    schema: Mapping[str, pl.DataType],
) -> Iterator[pl.DataFrame]:
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
    frame = pl.from_arrow(pa.Table.from_batches(batches))
    assert isinstance(frame, pl.DataFrame)
    return frame.select(
        _converted(frame.schema[name], name, dtype) for name, dtype in schema.items()
    )


def _converted(found: pl.DataType, name: str, dtype: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if isinstance(found, pl.Datetime) and found.time_zone is not None:
        column = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    return column.cast(dtype)


def split_of_row(row: Row) -> Split:
    """Return the split of a row of the streaming DataFrame."""
    fields: dict[str, Any] = row.asDict()
    path = fields["path"]
    body = fields["body"]
    place = (fields["part"], path) if path is not None else (fields["part"], fields["seq"])
    return Split(
        source=fields["source"],
        ordinal=place,
        path=path,
        body=bytes(body) if body is not None else b"",
        rows=fields["rows"],
        highest=fields["highest"],
    )
