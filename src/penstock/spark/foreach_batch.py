"""Results for a function of the user's: ``foreach_batch``.

Law: the function is called at least once for every epoch, in order, and gets the same rows with the
same epoch number if it is called again after a crash, as with Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from penstock.plan.epoch import SinkPlan, StagedFile
from penstock.query.nodes import Sink
from penstock.query.spark_types import hand_over
from penstock.sinks.sink import Committed, Opening, OpenSink, SinkKind
from penstock.sinks.staged import read_staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class ForeachBatch(SinkKind):
    """Calls a function with a DataFrame of each epoch's results."""

    def name(self, sink: Sink) -> str:
        """Return the function's name; what it does may change from run to run."""
        return f"{sink.kind} {getattr(sink.target, '__qualname__', 'function')}"

    def open(self, sink: Sink, opening: Opening) -> Batches:
        """Get ready to make DataFrames on the query's session."""
        session = cast("SparkSession", opening.session)
        return Batches(opening.plan(sink), session, sink.target, sink.schema)


class Batches(OpenSink):
    """Gives epochs to one function."""

    def __init__(
        self,
        plan: SinkPlan,
        session: SparkSession,
        function: Callable[[Any, int], None],
        schema: Mapping[str, pl.DataType],
    ) -> None:
        """Keep the function and what its DataFrames look like."""
        super().__init__(plan)
        self.session, self.function = session, function
        self.schema = spark_schema(schema)

    def publish(self, committed: Committed) -> None:
        """Call the function with an epoch, with or without rows."""
        self.function(self._frame(committed.files), committed.epoch)

    def _frame(self, files: tuple[StagedFile, ...]) -> DataFrame:
        if not files:
            return self.session.createDataFrame([], self.schema)
        frames = [read_staged(file) for file in files]  # verified before Spark parses them
        local = [file.path for file in files if "://" not in file.path]
        if len(local) == len(files):
            return self.session.read.schema(self.schema).parquet(*local)
        return self.session.createDataFrame(pl.concat(frames).to_arrow(), self.schema)


def spark_schema(schema: Mapping[str, pl.DataType]) -> StructType:
    """Return the schema of the DataFrames that the function gets, with or without rows."""
    from pyspark.sql.types import DataType, StructField, StructType

    fields = []
    for name, dtype in schema.items():
        found = hand_over(dtype)
        assert found is not None  # refused when the query was built
        fields.append(StructField(name, DataType.fromDDL(found[1])))
    return StructType(fields)
