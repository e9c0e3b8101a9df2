"""Whole queries: streams with their sinks, ready to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.query import nodes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.runtime.spark.handle import Query


class Sinks:
    """A whole query: one or more sinks, ready to be explained or started."""

    def __init__(self, sinks: tuple[nodes.Sink, ...]) -> None:
        """Hold the sinks; made by the sink methods of a stream."""
        self.sinks = sinks

    def __repr__(self) -> str:
        """Return what the query writes.

        >>> import penstock as ps
        >>> ps.from_rows([{"a": 1, "ts": ps.at("2024-01-01")}], time="ts").write_memory()
        <Query, not started: write memory results>
        """
        return f"<Query, not started: {'; '.join(sink.title for sink in self.sinks)}>"

    def also(self, *others: Sinks) -> Sinks:
        """Return one query that also feeds the sinks of others, in the same epochs."""
        return Sinks((*self.sinks, *[sink for other in others for sink in other.sinks]))

    def explain(
        self,
        *,
        strategy: str = "operator-set-cloud",
        instances: int | str = 1,
        mermaid: bool = False,
    ) -> str:
        """Return how the query runs: its operators, subqueries, stages and shuffles.

        Args:
            strategy: How it is split.
            instances: How many instances each subquery has; ``"auto"`` measures what rows cost and
                shares an instance for each core of this machine among the subqueries.
            mermaid: As a Mermaid flowchart.
        """
        from penstock.compiler import compile_query, explain

        if not isinstance(instances, str):
            query = compile_query(self.sinks, strategy=strategy, instances=instances)
            return explain(query, mermaid=mermaid)
        from penstock.runtime.sizes import explain_sized

        return explain_sized(self.sinks, instances, strategy=strategy, mermaid=mermaid)

    def start(self, spark: SparkSession, **options: Any) -> Query:
        """Start the query on Spark; see `penstock.runtime.spark.start.start` for the options."""
        from penstock.runtime.spark.start import start

        return start(self.sinks, spark, **options)
