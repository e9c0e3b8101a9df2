"""Start a query on Spark: compile it, open its checkpoint, hand it to Structured Streaming."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.base.config import Config
from penstock.base.durations import parse_duration
from penstock.base.errors import CheckpointError, QueryError
from penstock.compiler import compile_query
from penstock.control.elastic import Elastic
from penstock.control.rules import parse_rules
from penstock.driver.again import Waker
from penstock.driver.driver import Driver
from penstock.driver.sizing.sizes import (
    choose_sizes,
    heads_kept,
    is_new,
    keep_first,
    sizes_to_begin_with,
)
from penstock.files.place import explain_os_errors, place_of
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.query.engine import StartOptions
from penstock.query.nodes import Sink
from penstock.sources.backlog import Backlog
from penstock.sources.registry import reader_of
from penstock.spark.failures import clear_error
from penstock.spark.handle import Query
from penstock.spark.homes import Homes
from penstock.spark.job import SparkJobs
from penstock.spark.passed_over import find_passed_over
from penstock.spark.progress import ProgressBook
from penstock.spark.resources import resources_of
from penstock.spark.session import use_this_python
from penstock.spark.sources import (
    prepare_sources,
    source_folders,
    spark_uri,
    stream_of_splits,
    tries_again,
)
from penstock.state.spark_log import keep_folders

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def start(sinks: tuple[Sink, ...], spark: SparkSession, options: StartOptions) -> Query:
    """Start a query; `penstock.query.sinks.Sinks.start` says what the options mean.

    Args:
        sinks: The sinks of the query.
        spark: The Spark session to run on.
        options: How it is started.

    Returns:
        The handle of the running query.
    """
    settings = _settings(spark)
    checkpoint = options.checkpoint
    instances = choose_sizes(options.instances, settings)
    config = Config.from_settings(
        settings,
        instances=instances if isinstance(instances, int) else None,
        strategy=options.strategy,
    )
    elastic = options.elastic or (parse_rules(config.elastic) if config.elastic else None)
    query = compile_query(sinks, strategy=config.strategy, buckets=config.buckets)
    _check_sources(query)
    sizes, heads = None, frozenset[int]()
    keep_sizes = not isinstance(instances, int | Mapping)
    with explain_os_errors(place_of(checkpoint)):
        new = is_new(checkpoint)
        if keep_sizes and not new:
            heads = heads_kept(checkpoint, query)
    if keep_sizes and new:
        slots = spark.sparkContext.defaultParallelism
        sizes = sizes_to_begin_with(sinks, config, elastic, slots, auto=instances == "auto")
    wanted = sizes.instances if sizes else instances
    query = compile_query(
        sinks,
        strategy=config.strategy,
        buckets=config.buckets,
        instances=wanted if isinstance(wanted, Mapping) else config.instances,
        heads=sizes.heads if sizes else heads,
    )
    use_this_python(spark.sparkContext)
    with _STARTING:
        _check_not_running(checkpoint)
        run = _Run(query, spark, checkpoint, config, keep_sizes=keep_sizes, elastic=elastic)
        if sizes is not None:
            keep_first(run.driver.root, sizes)
        handle = run.start(options)
        _RUNNING[_real(checkpoint)] = handle
    return handle


_STARTING = threading.Lock()
_RUNNING: weakref.WeakValueDictionary[str, Query] = weakref.WeakValueDictionary()
"""The queries that this process has started, by checkpoint."""


def _check_not_running(checkpoint: str | Path) -> None:
    """Check that no query of this process runs on a checkpoint.

    Spark would stop it in silence. A query of another process is fenced by the manifests.

    Raises:
        CheckpointError: One does.
    """
    running = _RUNNING.get(_real(checkpoint))
    if running is not None and running.isActive:
        named = f"query {running.name!r}" if running.name else "a query without a name"
        reason = (
            f"{named} (run {running.runId}) of this process runs on it; stop that one first, "
            "or give this one a checkpoint of its own"
        )
        raise CheckpointError(path=str(place_of(checkpoint)), reason=reason)


def _real(checkpoint: str | Path) -> str:
    place = str(place_of(checkpoint))
    return place if "://" in place else os.path.realpath(place)


def _settings(spark: SparkSession) -> dict[str, str]:
    found = dict(spark.sparkContext.getConf().getAll())
    return found | dict(spark.conf.getAll)


def _check_sources(query: CompiledQuery) -> None:
    problems = [p for _, source in query.sources for p in reader_of(source).find_problems()]
    if problems:
        raise QueryError(problems=problems)


def _check_spark_folder(spark: SparkSession, uri: str) -> None:
    """Check that Spark can keep its part of a checkpoint at a place; it has its own file systems.

    Raises:
        CheckpointError: It cannot.
    """
    jvm: Any = spark._jvm
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    try:
        jvm.org.apache.hadoop.fs.Path(uri).getFileSystem(hadoop)
    except Exception as error:  # whatever Java raises, the reason is the same
        raise CheckpointError(
            path=uri,
            reason=(
                "Spark has no file system for its part of the checkpoint (offsets and commits); "
                "for S3 give Spark the package org.apache.hadoop:hadoop-aws of its Hadoop version, "
                "or set spark.penstock.sparkFolder to a folder that lasts and that Spark can use"
            ),
        ) from error


class _Run:
    """One run of a query: what its epochs share."""

    def __init__(
        self,
        query: CompiledQuery,
        spark: SparkSession,
        checkpoint: str | Path,
        config: Config,
        *,
        keep_sizes: bool,
        elastic: Elastic | None,
    ) -> None:
        self.query, self.spark = query, spark
        self.handle: Query | None = None
        self.spark_folder = place_of(config.sparkFolder or checkpoint, fsync=config.fsync)
        _check_spark_folder(spark, spark_uri(self.spark_folder))
        homes = Homes()
        self.resources = resources_of(
            spark.sparkContext,
            most_executors=config.maxExecutors,
            sizing=elastic is not None or config.maxExecutors > 0,
            at_home=homes.load,
        )
        self.driver = Driver(
            query,
            checkpoint,
            config,
            session=spark,
            time_zone=spark.conf.get("spark.sql.session.timeZone") or "",
            spark_log=str(self.spark_folder / "spark"),
            keep_sizes=keep_sizes,
            elastic=elastic,
            resources=self.resources,
            backlog=Backlog(query, self._progress),
        )
        self.jobs = SparkJobs(
            spark.sparkContext, homes=homes, slots_by_host=self.resources.slots_by_host
        )
        self.waker: Waker | None = None
        self.book = ProgressBook(config.recentProgress)
        self.error: BaseException | None = None

    def start(self, options: StartOptions) -> Query:
        if not options.available_now:
            self.driver.check_unfinished()
        rows = self.spark_folder / "rows"
        prepare_sources(self.query, rows)
        wake = self.spark_folder / "wake"
        last = self.driver.last.epoch if self.driver.last else -1
        self.waker = Waker(wake, last) if tries_again(self.query) else None
        self.wake()
        frame = stream_of_splits(self.spark, self.query, spark_uri(rows), spark_uri(wake))
        keep_folders(self.spark_folder / "spark", source_folders(frame))
        writer = frame.writeStream.foreachBatch(self._epoch)
        writer = writer.option("checkpointLocation", spark_uri(self.spark_folder / "spark"))
        if options.name is not None:
            writer = writer.queryName(options.name)
        if options.available_now:
            writer = writer.trigger(availableNow=True)
        elif options.every is not None:
            micros = parse_duration(options.every)
            writer = writer.trigger(processingTime=f"{micros // 1000} milliseconds")
        handle = Query(
            self._start(writer),
            self.driver,
            self.book,
            finish=self._finish if options.finish else None,
            close=self._close,
            wake=self.wake,
        )
        self.handle = handle
        if self.error is not None:
            handle.failed(self.error)
        return handle

    def _start(self, writer: DataStreamWriter) -> StreamingQuery:
        try:
            return writer.start()
        except Exception as error:
            self.driver.close()
            self.resources.close()
            clear = clear_error(error, str(self.driver.root.parent))
            if clear is error:
                raise
            raise clear from error

    def wake(self) -> None:
        """Let Spark ask for an epoch, if there is a file to be tried again."""
        last = self.driver.last
        if self.waker is not None and last is not None and self.driver.retries.wanted(last):
            self.waker.wake(last.epoch)

    def _close(self) -> None:
        self.resources.close()
        self.jobs.close()

    def _progress(self) -> Mapping[str, Any] | None:
        """Return Spark's report of the newest micro-batch that it has committed."""
        return None if self.handle is None else self.handle.lastProgress

    def _finish(self) -> None:
        result = self.driver.finish(lambda query, plan: self.jobs.run(query, plan, None))
        if result is not None:
            self.book.add(result)

    def _execute(
        self, query: CompiledQuery, plan: EpochPlan, batch: DataFrame
    ) -> Sequence[TaskReport]:
        """Run the tasks of an epoch; once more, with all files, if Spark has held some back."""
        reports = self.jobs.run(query, plan, batch)
        if not tries_again(query):
            return reports
        missing = find_passed_over(query, plan, batch, reports, self.spark_folder / "spark")
        return self.jobs.run(query, plan, batch, missing) if missing else reports

    def _epoch(self, batch: DataFrame, epoch: int) -> None:
        try:
            self.book.add(
                self.driver.run_epoch(epoch, lambda query, plan: self._execute(query, plan, batch))
            )
        except BaseException as error:
            self.error = error
            if self.handle is not None:
                self.handle.failed(error)
            # Spark searches the whole text of an error for the reason of a stop, with a pattern
            # that overflows the stack on a long one; so it gets a short one, without the causes.
            raise RuntimeError(f"epoch {epoch}: {type(error).__name__}: {error}"[:1000]) from None
