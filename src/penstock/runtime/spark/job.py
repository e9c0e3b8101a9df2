"""One epoch as one Spark job: the stages of a compiled query as stages of an RDD.

Laws: a task always reads its input to the end (Spark ends the worker process of one that does not,
and with it the cache), and an error that Penstock raises in a task reaches the driver as itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from penstock import errors
from penstock.errors import PenstockError, TaskError
from penstock.exchange.payload import Payload
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.query.nodes import Frame
from penstock.runtime.task import DRIVER, run_task
from penstock.sources.spark import split_of_row
from penstock.sources.splits import assign

if TYPE_CHECKING:
    from pyspark import RDD, Broadcast, SparkContext
    from pyspark.sql import DataFrame, Row

Addressed = tuple[int, bytes]
_QUERIES: dict[str, CompiledQuery] = {}


class SparkJobs:
    """Runs the epochs of a query on a Spark context; the query is sent to workers once."""

    def __init__(self, context: SparkContext) -> None:
        """Prepare to run epochs."""
        self.context = context
        self._sent: tuple[CompiledQuery, Broadcast[bytes], str] | None = None

    def run(
        self, query: CompiledQuery, plan: EpochPlan, splits: DataFrame | None
    ) -> list[TaskReport]:
        """Carry out the plan of one epoch.

        Args:
            query: The compiled query.
            plan: The plan.
            splits: The epoch's part of the streaming DataFrame of splits; None for no input.
        """
        code = self._send(query)
        rdd = self._first(query, splits, code)
        sizes = query.stage_sizes
        for stage in range(len(sizes)):
            if stage > 0:
                rdd = rdd.partitionBy(sizes[stage], int).values()
            following = sizes[stage + 1] if stage + 1 < len(sizes) else 1
            rdd = rdd.mapPartitionsWithIndex(_stage_task(code, plan, stage, following))
        return [_report(Payload.unpack(data)) for _, data in rdd.collect()]

    def close(self) -> None:
        """Give back what was sent to workers."""
        if self._sent is not None:
            self._sent[1].destroy()
            self._sent = None

    def _send(self, query: CompiledQuery) -> Callable[[], CompiledQuery]:
        if self._sent is None or self._sent[0] is not query:
            self.close()
            blob: bytes = cloudpickle.dumps(query)  # type: ignore[no-untyped-call]  # has no types
            digest = hashlib.sha256(blob).hexdigest()
            self._sent = query, self.context.broadcast(blob), digest
        _, broadcast, digest = self._sent
        return _loader(broadcast, digest)

    def _first(
        self, query: CompiledQuery, splits: DataFrame | None, code: Callable[[], CompiledQuery]
    ) -> RDD[Any]:
        """Return the splits of the epoch as packed payloads, one partition per scan task."""
        tasks = query.stage_sizes[0]
        if splits is None:
            return self.context.parallelize([], tasks)
        framed = any(isinstance(source.reader, Frame) for _, source in query.sources)
        if tasks == 1:
            rows = splits.repartition(1).rdd if framed else splits.rdd.coalesce(1)
            return rows.mapPartitions(_assigner(code, 1)).values()
        dispatched = splits.rdd.mapPartitions(_assigner(code, query.subqueries[0].instances))
        return dispatched.partitionBy(tasks, int).values()


def _loader(broadcast: Broadcast[bytes], digest: str) -> Callable[[], CompiledQuery]:
    def load() -> CompiledQuery:
        if digest not in _QUERIES:
            _QUERIES.clear()
            _QUERIES[digest] = cloudpickle.loads(broadcast.value)
        return _QUERIES[digest]

    return load


def _assigner(
    code: Callable[[], CompiledQuery],
    instances: int,
) -> Callable[[Iterable[Row]], Iterator[Addressed]]:
    def run(rows: Iterable[Row]) -> Iterator[Addressed]:
        splits = [split_of_row(row) for row in rows]
        for payload in assign(code(), splits, instances):
            yield payload.task, payload.pack()

    return run


def _stage_task(
    code: Callable[[], CompiledQuery],
    plan: EpochPlan,
    stage: int,
    following: int,
) -> Callable[[int, Iterable[bytes]], Iterator[Addressed]]:
    def run(task: int, inbox: Iterable[bytes]) -> Iterator[Addressed]:
        payloads = [Payload.unpack(data) for data in inbox]
        try:
            sent = run_task(code(), plan, stage, task, payloads)
        except PenstockError as error:
            sent = [
                Payload(
                    kind="error",
                    stage=DRIVER,
                    task=0,
                    facts={"error": type(error).__name__, "fields": error.fields},
                )
            ]
        for payload in sent:
            target = payload.task if payload.stage == stage + 1 else payload.task % following
            yield target, payload.pack()

    return run


def _report(payload: Payload) -> TaskReport:
    if payload.kind == "error":
        kind = getattr(errors, payload.facts["error"], TaskError)
        raise kind(**payload.facts["fields"])
    return TaskReport.from_json(payload.body)
