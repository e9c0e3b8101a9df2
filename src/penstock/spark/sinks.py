"""Sinks that need Spark or the terminal: ``foreach_batch``, memory, console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import polars as pl
from pyspark.sql.types import DataType, StructField, StructType
from rich.console import Console

from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import StagedFile
from penstock.query.nodes import Sink
from penstock.query.spark_types import handed_over
from penstock.sinks.staging import read_staged
from penstock.sinks.tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkPublisher:
    """Gives the rows of committed epochs to the sinks that are not folders."""

    def __init__(self, query: CompiledQuery, spark: SparkSession) -> None:
        """Prepare the sinks of a query."""
        self.query, self.spark = query, spark
        self.console = Console()
        self.tables = Tables(
            {sink.target: sink.schema for _, sink in query.sinks if sink.kind == "memory"}
        )

    def __call__(self, sink: int, epoch: int, files: Sequence[StagedFile]) -> None:
        """Publish one epoch for one sink."""
        node = self.query.nodes[sink]
        assert isinstance(node, Sink)
        if node.kind == "memory":
            self.tables.put(node.target, epoch, files)
        elif node.kind == "console":
            self._print(node, epoch, files)
        else:
            self._call(node, epoch, files)

    def _print(self, node: Sink, epoch: int, files: Sequence[StagedFile]) -> None:
        frames = [read_staged(file) for file in files]
        rows = pl.concat([pl.DataFrame(schema=dict(node.schema)), *frames])
        self.console.print(f"epoch {epoch}: {rows.height} row{'s' if rows.height != 1 else ''}")
        if rows.height:
            with pl.Config(tbl_rows=node.target, tbl_hide_dataframe_shape=True):
                self.console.print(str(rows.head(node.target)), markup=False, highlight=False)

    def _call(self, node: Sink, epoch: int, files: Sequence[StagedFile]) -> None:
        schema = spark_schema(node.schema)
        local = [file.path for file in files if "://" not in file.path]
        frames = [read_staged(file) for file in files]  # verified before Spark parses them
        if not files:
            frame = self.spark.createDataFrame([], schema)
        elif len(local) == len(files):
            frame = self.spark.read.schema(schema).parquet(*local)
        else:
            frame = self.spark.createDataFrame(pl.concat(frames).to_arrow(), schema)
        node.target(frame, epoch)


def spark_schema(schema: Mapping[str, pl.DataType]) -> StructType:
    """Return the schema of the DataFrames that ``foreach_batch`` gets, with or without rows."""
    fields = []
    for name, dtype in schema.items():
        found = handed_over(dtype)
        assert found is not None  # refused when the query was built
        fields.append(StructField(name, DataType.fromDDL(found[1])))
    return StructType(fields)
