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
from functools import cache, reduce
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.base.errors import QueryError
from penstock.exchange.payload import to_bytes
from penstock.files.place import Place, named_by_hash, sha256
from penstock.plan.compiled import CompiledQuery
from penstock.query.nodes import Files, Frame, Rows, Source
from penstock.sources.admission import event_times
from penstock.sources.formats import EXTENSIONS
from penstock.sources.partitions import below
from penstock.sources.splits import Split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SPLIT_SCHEMA = (
    "source int, part bigint, seq bigint, path string, rows bigint, highest bigint, body binary"
)
_BINARY_FILE = "path string, modificationTime timestamp, length bigint, content binary"
_ROWS_PER_SPLIT = 250_000


def frame_schema(frame: DataFrame) -> dict[str, pl.DataType]:
    """Return the schema of a Spark DataFrame in Polars types.

    A ``timestamp`` has the zone of the session, or UTC if Polars does not know that zone; a
    ``timestamp_ntz`` has none.

    Raises:
        QueryError: A column has a type that Arrow or Polars does not have.
    """
    found, problems = {}, []
    zone = _known(frame.sparkSession.conf.get("spark.sql.session.timeZone"))
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
def _known(zone: str | None) -> str:
    """Return a zone of Spark's if Polars knows it, else UTC: the instants are the same."""
    try:
        pl.Series([0], dtype=pl.Datetime("us", zone)).dt.hour()
    except pl.exceptions.PolarsError:
        return "UTC"
    return zone or "UTC"


WAKE = -1
"""The source number of files that only wake the query."""


def stream_of_splits(
    spark: SparkSession, query: CompiledQuery, rows_folder: str, wake_folder: str
) -> DataFrame:
    """Return the streaming DataFrame of all sources of a query.

    It is a DataFrame of splits; for a scattered query it is the user's rows as they are. With files
    comes a folder whose new files wake the query, so that it tries files again.
    """
    if query.scattered:
        return _needed_columns(query, *query.sources[0])
    frames = [
        _splits_of(spark, query, number, source, rows_folder) for number, source in query.sources
    ]
    if reads_files(query):
        frames.append(_listed(spark, WAKE, wake_folder, "[!._]*", None))
    return reduce(lambda left, right: left.unionAll(right), frames)


def reads_files(query: CompiledQuery) -> bool:
    """Return whether a query reads files of the user's."""
    return any(isinstance(source.reader, Files) for _, source in query.sources)


def source_folders(frame: DataFrame) -> list[int]:
    """Return the number under which Spark keeps the log of each streaming source of a DataFrame.

    Spark reads a source that stands in a DataFrame twice once, and logs its offsets twice.
    """
    plan: Any = frame._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    found: list[Any] = []
    numbers = []
    for leaf in (leaves.apply(i) for i in range(leaves.size())):
        if leaf.isStreaming():
            same = next((i for i, other in enumerate(found) if leaf.equals(other)), None)
            numbers.append(len(found) if same is None else same)
            found += [leaf] if same is None else []
    return numbers


def _splits_of(
    spark: SparkSession, query: CompiledQuery, number: int, source: Source, rows_folder: str
) -> DataFrame:
    reader = source.reader
    if isinstance(reader, Frame):
        columns = source.schema if source.late_whole else query.columns_read(number)
        pack = _packer(number, source, dict(columns))
        return _needed_columns(query, number, source).mapInArrow(pack, SPLIT_SCHEMA)
    if isinstance(reader, Rows):
        return _file_splits(spark, number, f"{rows_folder}/{number}", "arrow", None)
    assert isinstance(reader, Files)
    return _file_splits(spark, number, reader.path, reader.format, reader.max_files_per_epoch)


def _needed_columns(query: CompiledQuery, number: int, source: Source) -> DataFrame:
    assert isinstance(source.reader, Frame)
    assert source.reader.frame is not None
    columns = source.schema if source.late_whole else query.columns_read(number)
    return source.reader.frame.select(*[f"`{c}`" for c in columns])


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
    return _listed(spark, number, path, f"[!._]*{{{endings}}}", limit)


def _listed(
    spark: SparkSession, number: int, path: str, names: str, limit: int | None
) -> DataFrame:
    """Return the files of a folder as splits.

    Folders are looked through at every depth, since otherwise a folder ``k=v`` makes Spark take
    the files beside it for a mistake; `belongs` drops what is too deep.
    """
    stream = (
        spark.readStream.format("binaryFile")
        .schema(_BINARY_FILE)
        .option("pathGlobFilter", names)
        .option("recursiveFileLookup", "true")
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

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        part = context.partitionId() if context else 0
        for seq, frame in enumerate(_gathered(batches, schema)):
            highest = event_times(source, frame).highest
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
    table = pa.Table.from_batches(batches).select(list(schema))
    types = [_readable(kind) for kind in table.schema.types]
    if types != table.schema.types:
        table = table.cast(pa.schema(zip(table.column_names, types, strict=True)))
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame.cast(pl.Schema(schema))


def _readable(kind: pa.DataType) -> pa.DataType:
    """Return a type of Arrow in which zones that Polars does not know are UTC."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, _known(kind.tz))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_readable(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_readable(field.type)) for field in kind])
    return kind


def belongs(query: CompiledQuery, split: Split) -> bool:
    """Return whether a split is for the query: a file in its folder, and not only below it."""
    if split.source == WAKE:
        return False
    source = query.nodes[split.source]
    reader = source.reader if isinstance(source, Source) else None
    if split.path is None or not isinstance(reader, Files) or reader.partitions:
        return True
    relative = below(reader.path, split.path)
    return relative is None or "/" not in relative


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
