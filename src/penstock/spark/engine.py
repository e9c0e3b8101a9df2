"""Spark as the engine of this process: what a query reaches when it is explained or started.

PySpark is loaded when the first query is started, so that queries can be built without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.query.engine import StartOptions
from penstock.query.nodes import Sink
from penstock.sinks.registry import register
from penstock.spark.foreach_batch import ForeachBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.handle import Query


class SparkEngine:
    """Explains queries, and starts them on Spark."""

    def __init__(self) -> None:
        """Make the sinks known that need Spark."""
        register("foreach_batch", ForeachBatch())

    def explain(
        self, sinks: tuple[Sink, ...], *, strategy: str, instances: int | str, mermaid: bool
    ) -> str:
        """Return how a query would run; with ``"auto"`` after a sample run."""
        from penstock.compiler import compile_query, explain
        from penstock.driver.sizing.sizes import explain_sized

        if isinstance(instances, str):
            return explain_sized(sinks, instances, strategy=strategy, mermaid=mermaid)
        query = compile_query(sinks, strategy=strategy, instances=instances)
        return explain(query, mermaid=mermaid)

    def start(self, sinks: tuple[Sink, ...], spark: SparkSession, options: StartOptions) -> Query:
        """Start a query on a Spark session."""
        from penstock.spark.start import start

        return start(sinks, spark, options)
