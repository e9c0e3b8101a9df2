"""Whole queries: streams with their sinks, ready to run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.durations import Duration
from penstock.query import nodes
from penstock.query.engine import Instances, StartOptions, the_engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.control.elastic import Elastic
    from penstock.spark.handle import Query


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
        return the_engine().explain(
            self.sinks, strategy=strategy, instances=instances, mermaid=mermaid
        )

    def start(
        self,
        spark: SparkSession,
        *,
        checkpoint: str | Path,
        name: str | None = None,
        available_now: bool = False,
        every: Duration | None = None,
        finish: bool = False,
        instances: Instances | None = None,
        strategy: str | None = None,
        elastic: Elastic | None = None,
    ) -> Query:
        """Start the query on Spark.

        Args:
            spark: The Spark session to run on.
            checkpoint: The folder of the query's state; a restart from it goes on where it ended.
            name: The query's name in Spark.
            available_now: Process what is there in as many epochs as the sources ask for, then
                end.
            every: Start an epoch this often; as fast as possible unless given.
            finish: With ``available_now``: the input is complete for good, so at its end close all
                windows. Without it what is not complete stays open, and a later start goes on.
            instances: How many instances each subquery has, or a number for some of them.
                ``"auto"`` measures what rows cost on the first rows of the sources, at the first
                start; after that a query is as large as it was. So it is with ``elastic`` unless
                a number is given.
            strategy: How to split the query; see `explain`.
            elastic: The rules by which it fits itself to its load, made by ``ps.elastic``.

        Returns:
            The handle of the running query.

        Raises:
            QueryError: An option is wrong, or the folder of a source does not exist.
            CheckpointError: The checkpoint cannot be used for this query, or is damaged.
            FinishedError: The query was finished, and input that goes on is asked for.
            OutputError: The folder of a sink belongs to another query.
        """
        options = StartOptions(
            checkpoint=checkpoint,
            name=name,
            available_now=available_now,
            every=every,
            finish=finish,
            instances=instances,
            strategy=strategy,
            elastic=elastic,
        )
        return the_engine().start(self.sinks, spark, options)
