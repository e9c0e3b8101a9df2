"""Sinks that need Spark or the terminal: ``foreach_batch``, memory, console."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl
from rich.console import Console

from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import StagedFile
from penstock.query.nodes import Sink
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
        local = [file.path for file in files if "://" not in file.path]
        if files and len(local) == len(files):
            for file in files:
                read_staged(file)  # verified before Spark parses it
            frame = self.spark.read.parquet(*local)
        else:
            empty = pl.DataFrame(schema=dict(node.schema))
            rows = pl.concat([empty, *[read_staged(file) for file in files]])
            frame = self.spark.createDataFrame(rows.to_arrow())
        node.target(frame, epoch)
