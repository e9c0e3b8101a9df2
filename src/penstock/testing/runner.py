"""Whole runs in this process: the same driver, plans and task code, without Spark.

They are meant for tests: many thousand epochs are cheap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import polars as pl

from penstock.base.config import Config
from penstock.driver.driver import Driver, EpochResult, Hold
from penstock.driver.in_process import route, run_stages
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.plan.splits import Split
from penstock.sinks.memory import Memory, Table
from penstock.sinks.registry import find_kind
from penstock.sinks.sink import LastingKind, SinkKind
from penstock.sources.reader import split_of_rows
from penstock.task.worker import Worker

__all__ = ["Batch", "LocalRun", "frame_splits", "route", "run_stages"]

Batch = Mapping[int, Sequence[pl.DataFrame]]
"""The frames of one epoch, by source number."""


class LocalRun:
    """A query that runs in this process, epoch by epoch, on given frames.

    >>> import tempfile, penstock as ps
    >>> from penstock.compiler import compile_query
    >>> rows = [{"k": "a", "x": i, "ts": ps.at(f"2024-01-01 00:0{i}:00")} for i in range(3)]
    >>> s = ps.from_rows(rows, time="ts")
    >>> out = s.aggregate(by="k", window=ps.tumbling("1 minute"), n="count(*)").write_memory()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = LocalRun(compile_query(out.sinks), Path(folder))
    ...     _ = run.epoch({0: [pl.DataFrame(rows)]})
    ...     run.table()["n"].to_list()
    [1, 1]
    """

    def __init__(
        self,
        query: CompiledQuery,
        checkpoint: str | Path,
        config: Config | None = None,
        *,
        clock: Callable[[], float] = time.time,
        hold: Hold = lambda epoch: {},
        worker: Worker | None = None,
    ) -> None:
        """Open or begin a run on a checkpoint folder.

        Args:
            query: The compiled query.
            checkpoint: The folder.
            config: How it runs.
            clock: Tells the time.
            hold: Tells which buckets of which operators stay behind in an epoch.
            worker: What is kept from one epoch to the next; a new one unless given.
        """
        self.config = config or Config(fsync=False)
        self.worker = worker or Worker()
        self.driver = Driver(
            query, checkpoint, self.config, kinds=_kept_here, clock=clock, hold=hold
        )

    @property
    def next_epoch(self) -> int:
        """The number of the epoch that comes next."""
        return self.driver.last.epoch + 1 if self.driver.last else 0

    def epoch(self, batch: Batch) -> EpochResult:
        """Run one epoch on the given frames."""

        def execute(query: CompiledQuery, plan: EpochPlan) -> list[TaskReport]:
            return run_stages(query, plan, frame_splits(query, batch), self.worker)

        return self.driver.run_epoch(self.next_epoch, execute)

    def files(self, paths: Mapping[int, Sequence[str]]) -> EpochResult:
        """Run one epoch on the given files, by source number."""
        return self.splits(
            [
                Split(source=source, ordinal=(i,), path=path)
                for source, found in paths.items()
                for i, path in enumerate(found)
            ]
        )

    def splits(self, splits: Sequence[Split]) -> EpochResult:
        """Run one epoch on the given splits."""
        return self.driver.run_epoch(
            self.next_epoch, lambda query, plan: run_stages(query, plan, splits, self.worker)
        )

    def finish(self) -> EpochResult:
        """Close all windows, as at the end of bounded input."""
        return self.driver.run_epoch(
            self.next_epoch,
            lambda query, plan: run_stages(query, plan, [], self.worker),
            final=True,
        )

    def table(self, sink: int | None = None) -> pl.DataFrame:
        """Return the rows that a sink has got in this run, epoch by epoch; not of a folder."""
        number = self.driver.query.sinks[0][0] if sink is None else sink
        table = self.driver.outputs.sinks[number]
        assert isinstance(table, Table)
        return table.read()


def _kept_here(key: str) -> SinkKind:
    """Return a kind whose epochs last; instead of any other, tables in this process."""
    kind = find_kind(key)
    return kind if isinstance(kind, LastingKind) else Memory()


def frame_splits(query: CompiledQuery, batch: Batch) -> list[Split]:
    """Return the splits of in-memory frames, by source."""
    return [
        split_of_rows(number, source, frame, place)
        for number, source in query.sources
        for place, frame in enumerate(batch.get(number, ()))
    ]
