"""One epoch as one Spark job: the stages of a compiled query as stages of an RDD.

Laws: a task always reads its input to the end (Spark ends the worker process of one that does not,
and with it the cache), and an error that Penstock raises in a task reaches the driver as itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext, cloudpickle

from penstock.base import errors
from penstock.base.errors import PenstockError, TaskError
from penstock.exchange.payload import Payload
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.plan.splits import Split
from penstock.sources.splits import again_splits, assign, make_scattered_splits
from penstock.spark.batches import rows_of_batches
from penstock.spark.homes import Homes, Keeper
from penstock.spark.sources import columns_sent, is_owned, split_of_row
from penstock.task.run import DRIVER, run_task
from penstock.task.worker import this_worker

if TYPE_CHECKING:
    from pyspark import RDD, Broadcast, SparkContext
    from pyspark.sql import DataFrame, Row

Addressed = tuple[int, bytes]


class SparkJobs:
    """Runs the epochs of a query on a Spark context; the query is sent to workers once."""

    def __init__(
        self,
        context: SparkContext,
        *,
        homes: Homes | None = None,
        slots_by_host: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        """Prepare to run epochs.

        Args:
            context: Spark.
            homes: Remembers where instances ran.
            slots_by_host: Tells how many tasks each live host can run at the same time; none in
                local mode, where all is one host.
        """
        self.context, self.slots_by_host = context, slots_by_host
        self.homes, self.keeper = homes or Homes(), Keeper(context)
        self._sent: tuple[CompiledQuery, Broadcast[bytes], str] | None = None

    def run(
        self,
        query: CompiledQuery,
        plan: EpochPlan,
        batch: DataFrame | None,
        more: Sequence[Split] = (),
    ) -> list[TaskReport]:
        """Carry out the plan of one epoch.

        Args:
            query: The compiled query.
            plan: The plan.
            batch: The epoch's part of the query's streaming DataFrame; None for no input.
            more: Splits of the epoch that are not in it.
        """
        code, slots = self._send(query), self.slots_by_host()
        sizes = [*query.stage_sizes, 1]
        rdd: Any  # its elements change from stage to stage
        if query.scattered and batch is not None:
            rdd, start = _scatter(code, plan, batch, sizes[1]), 1
        else:
            rdd, start = (
                self._splits(query, batch, [*again_splits(plan.again), *more], code, slots),
                0,
            )
        for stage in range(start, len(sizes) - 1):
            if stage > 0:
                hosts = self.homes.choose_hosts(query, stage, slots)
                rdd = self.keeper.keep_to(rdd.partitionBy(sizes[stage], int), hosts).values()
            run = _stage_task(code, plan, stage, sizes[stage + 1])
            rdd = rdd.mapPartitionsWithIndex(run)
        reports = [_report(Payload.unpack(data)) for _, data in rdd.collect()]
        self.homes.saw(query, reports)
        return reports

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

    def _splits(
        self,
        query: CompiledQuery,
        splits: DataFrame | None,
        more: Sequence[Split],
        code: Callable[[], CompiledQuery],
        slots: Mapping[str, int],
    ) -> RDD[Any]:
        """Return the splits of the epoch as packed payloads, one partition per scan task."""
        tasks = query.stage_sizes[0]
        if splits is None and not more:
            return self.context.parallelize([], tasks)
        rows = self._rows(query, splits, more)
        if tasks == 1:
            rows = self.keeper.keep_to(rows, self.homes.choose_hosts(query, 0, slots))
        dispatched = rows.mapPartitions(_assigner(code, query.subqueries[0].instances))
        return (dispatched if tasks == 1 else dispatched.partitionBy(tasks, int)).values()

    def _rows(
        self, query: CompiledQuery, splits: DataFrame | None, more: Sequence[Split]
    ) -> RDD[Any]:
        """Return the splits of the epoch, in one partition if there is one scan task."""
        alone = query.stage_sizes[0] == 1
        packed = any(not source.reader.native for _, source in query.sources)
        if splits is None:
            return self.context.parallelize(more, 1)
        rows: RDD[Any] = (splits.repartition(1) if packed and alone else splits).rdd
        if more:
            others = self.context.parallelize(more, 1)
            rows = self.context.union([rows.map(split_of_row), others])
        return rows.coalesce(1) if alone else rows


def _loader(broadcast: Broadcast[bytes], digest: str) -> Callable[[], CompiledQuery]:
    def load() -> CompiledQuery:
        return this_worker().query(digest, lambda: _unpack(broadcast.value))

    return load


def _unpack(blob: bytes) -> CompiledQuery:
    """Return the query that the driver has sent.

    Raises:
        TaskError: It needs a module that this worker does not have.
    """
    try:
        found: CompiledQuery = cloudpickle.loads(blob)
    except ImportError as error:
        reason = (
            f"{error}: a function or class of the query is in a module that Spark's workers cannot "
            "import; send it with spark.sparkContext.addPyFile(...), install it where they run, or "
            "define it in the file of the query"
        )
        raise TaskError(where="a Python worker of Spark", reason=reason) from error
    return found


def _assigner(
    code: Callable[[], CompiledQuery],
    instances: int,
) -> Callable[[Iterable[Row | Split]], Iterator[Addressed]]:
    def run(rows: Iterable[Row | Split]) -> Iterator[Addressed]:
        found = [row if isinstance(row, Split) else split_of_row(row) for row in rows]

        def work() -> list[Payload]:
            query = code()
            return assign(query, [s for s in found if is_owned(query, s)], instances)

        for payload in _or_error(work):
            yield payload.task, payload.pack()

    return run


def _or_error(work: Callable[[], Iterable[Payload]]) -> list[Payload]:
    """Return what some work sends, or the error that Penstock raised in it, for the driver."""
    try:
        return list(work())
    except PenstockError as error:
        facts = {"error": type(error).__name__, "fields": error.fields}
        return [Payload(kind="error", stage=DRIVER, task=0, facts=facts)]


def _scatter(
    code: Callable[[], CompiledQuery], plan: EpochPlan, batch: DataFrame, following: int
) -> RDD[Addressed]:
    """Return what the first stage sends on, run in the partitions in which Spark has the rows."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        task = context.partitionId()

        def work() -> list[Payload]:
            query = code()
            ((number, _),) = query.sources
            splits = make_scattered_splits(
                number, task, rows_of_batches(batches, columns_sent(query, number))
            )
            return run_task(query, plan, 0, task, [], splits, worker=this_worker())

        sent = _address(work, 0, following)
        addressed = [{"target": target, "data": data} for target, data in sent]
        yield pa.RecordBatch.from_pylist(addressed, schema=_ADDRESSED)

    return batch.mapInArrow(run, "target int, data binary").rdd.map(_pair)


_ADDRESSED = pa.schema([("target", pa.int32()), ("data", pa.binary())])


def _pair(row: Row) -> Addressed:
    return row["target"], bytes(row["data"])


def _stage_task(
    code: Callable[[], CompiledQuery], plan: EpochPlan, stage: int, following: int
) -> Callable[[int, Iterable[bytes]], Iterator[Addressed]]:
    def run(task: int, inbox: Iterable[bytes]) -> Iterator[Addressed]:
        payloads = [Payload.unpack(data) for data in inbox]

        def work() -> list[Payload]:
            return run_task(code(), plan, stage, task, payloads, worker=this_worker())

        return _address(work, stage, following)

    return run


def _address(
    work: Callable[[], Iterable[Payload]], stage: int, following: int
) -> Iterator[Addressed]:
    """Run a task and give what it sends an address among the tasks of the next stage."""
    for payload in _or_error(work):
        target = payload.task if payload.stage == stage + 1 else payload.task % following
        yield target, payload.pack()


def _report(payload: Payload) -> TaskReport:
    if payload.kind == "error":
        kind = getattr(errors, payload.facts["error"], TaskError)
        raise kind(**payload.facts["fields"])
    return TaskReport.from_json(payload.body)
