"""Sources on Spark: every source as one streaming DataFrame of splits.

Structured Streaming owns the offsets. A source that Penstock reads is a stream of file names, never
of rows; one that Spark reads is packed into Arrow batches. All sources of a query are united into
one DataFrame, so an epoch takes all of them at one point. Law: a row of it is one split, whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.exchange.payload import to_bytes
from penstock.files.place import Place
from penstock.plan.compiled import CompiledQuery
from penstock.plan.splits import Split
from penstock.query.nodes import Source
from penstock.sources.admission import event_times
from penstock.sources.reader import Listing
from penstock.sources.registry import reader_of
from penstock.spark.batches import gather_rows
from penstock.spark.frame import SparkReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

_ROW = pa.schema(
    [("source", pa.int32()), ("came_us", pa.int64()), ("path", pa.string()), ("split", pa.binary())]
)
"""A split: a file that Spark has listed, or one that is encoded."""
_BINARY_FILE = "path string, modificationTime timestamp, length bigint, content binary"
WAKE = -1
"""The source number of files that only wake the query."""


def stream_of_splits(
    spark: SparkSession, query: CompiledQuery, home: str, wake_folder: str
) -> DataFrame:
    """Return the streaming DataFrame of all sources of a query.

    It is a DataFrame of splits; for a scattered query it is the user's rows as they are. With files
    comes a folder whose new files wake the query, so that it tries files again.

    Args:
        spark: Spark.
        query: The compiled query.
        home: Where sources keep what they need in the checkpoint, each in a folder of its own.
        wake_folder: The folder whose files wake the query.
    """
    if query.scattered:
        return _stream(query, *query.sources[0])
    frames = [_splits_of(spark, query, number, source, home) for number, source in query.sources]
    if tries_again(query):
        wake = Listing(folder=wake_folder, endings=("",))
        frames.append(_list(spark, WAKE, wake))
    return reduce(lambda left, right: left.unionAll(right), frames)


def tries_again(query: CompiledQuery) -> bool:
    """Return whether a query has sources whose files are tried again."""
    return any(reader_of(source).patience_us is not None for _, source in query.sources)


def prepare_sources(query: CompiledQuery, home: Place) -> None:
    """Let the sources write what they need in the checkpoint, each to a folder of its own."""
    for number, source in query.sources:
        reader_of(source).prepare(home / str(number))


def columns_sent(query: CompiledQuery, number: int) -> dict[str, pl.DataType]:
    """Return the columns that Spark brings to tasks of a source that it reads."""
    source = query.nodes[number]
    assert isinstance(source, Source)
    return dict(source.schema) if source.late_whole else query.columns_read(number)


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
    spark: SparkSession, query: CompiledQuery, number: int, source: Source, home: str
) -> DataFrame:
    listing = reader_of(source).list_in(f"{home}/{number}")
    if listing is not None:
        return _list(spark, number, listing)
    pack = _packer(number, source, columns_sent(query, number))
    return _stream(query, number, source).mapInArrow(pack, from_arrow_schema(_ROW))


def _stream(query: CompiledQuery, number: int, source: Source) -> DataFrame:
    reader = reader_of(source)
    assert isinstance(reader, SparkReader), "a source that is not listed is one that Spark reads"
    return reader.stream(columns_sent(query, number))


def spark_uri(place: Place) -> str:
    """Return a place as Spark names it."""
    return str(place).replace("s3://", "s3a://", 1)


def _list(spark: SparkSession, number: int, listing: Listing) -> DataFrame:
    """Return the files of a folder as splits.

    Folders are looked through at every depth, since otherwise a folder ``k=v`` makes Spark take
    the files beside it for a mistake; `is_owned` drops what is too deep.
    """
    endings = ",".join(e for ending in listing.endings for e in (ending, ending.upper()))
    stream = (
        spark.readStream.format("binaryFile")
        .schema(_BINARY_FILE)
        .option("pathGlobFilter", f"[!._]*{{{endings}}}")
        .option("recursiveFileLookup", "true")
    )
    if listing.limit is not None:
        stream = stream.option("maxFilesPerTrigger", listing.limit)
    return stream.load(listing.folder).selectExpr(
        f"{number} as source",
        "unix_micros(modificationTime) as came_us",
        "path",
        "cast(null as binary) as split",
    )


def _packer(
    number: int, source: Source, schema: Mapping[str, pl.DataType]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that packs rows of Spark into splits, inside a Spark task."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        part = context.partitionId() if context else 0
        for seq, frame in enumerate(gather_rows(batches, schema)):
            split = Split(
                source=number,
                ordinal=(part, seq),
                rows=frame.height,
                highest=event_times(source, frame).highest,
                body=to_bytes(frame),
            )
            yield pa.RecordBatch.from_pylist([{"split": split.encode()}], schema=_ROW)

    return pack


def is_owned(query: CompiledQuery, split: Split) -> bool:
    """Return whether a split is for the query: one of a source, and input in its reader's eyes."""
    if split.source == WAKE:
        return False
    source = query.nodes[split.source]
    assert isinstance(source, Source)
    return reader_of(source).owns(split)


def split_of_row(row: Row) -> Split:
    """Return the split of a row of the streaming DataFrame."""
    fields: dict[str, Any] = row.asDict()
    if fields["split"] is not None:
        return Split.decode(bytes(fields["split"]))
    path, came_us = fields["path"], fields["came_us"]
    return Split(source=fields["source"], ordinal=(came_us, path), path=path, came_us=came_us)
