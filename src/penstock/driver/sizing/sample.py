"""A sample run: what a query's rows cost, measured on the first rows of its sources.

The query runs in this process, with one instance of each subquery, in a folder of its own that is
gone afterwards. Law: it writes nothing to the query's sinks and nothing to its checkpoint.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.base.config import Config
from penstock.compiler import compile_query
from penstock.control.sizing import SubqueryCost
from penstock.driver.driver import Driver
from penstock.driver.in_process import run_stages
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.plan.splits import Split
from penstock.query.nodes import Sink
from penstock.sinks.sink import Committed, Opening, OpenSink, SinkKind
from penstock.sources.reader import SampleError
from penstock.sources.registry import reader_of
from penstock.task.worker import Worker

ROWS = 200_000
"""So many rows of each source are looked at, unless told otherwise."""
LEAST_ROWS = 1_000
"""Fewer say more about an epoch than about a row."""
_EPOCHS = 5
"""The rows come in so many epochs; the first warms up and is not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a sample run measured: the rows that were read, and what each subquery costs."""

    rows: int
    costs: tuple[SubqueryCost, ...]


def take_sample(
    sinks: tuple[Sink, ...],
    *,
    strategy: str = "operator-set-cloud",
    buckets: int = 1024,
    rows: int = ROWS,
    heads: Iterable[int] = (),
) -> Sample:
    """Run a query on the first rows of its sources and measure it.

    Args:
        sinks: The query's sinks; nothing is written to them.
        strategy: How the query is split.
        buckets: How many buckets it has.
        rows: How many rows of each source to take.
        heads: Stateless operators with which subqueries begin.

    Raises:
        SampleError: There are no rows yet, a source is a streaming DataFrame, or the query fails.
    """
    query = compile_query(sinks, strategy=strategy, buckets=buckets, heads=heads)
    with tempfile.TemporaryDirectory(prefix="penstock-sample-") as scratch:
        batches = _batches(query, Path(scratch) / "input", rows)
        config = Config(buckets=buckets, strategy=strategy, fsync=False, maxRefusedRows=2**62)
        driver = Driver(query, Path(scratch) / "checkpoint", config, kinds=lambda key: _Nowhere())
        try:
            worker = Worker()
            reports = [
                _epoch(driver, epoch, splits, worker) for epoch, splits in enumerate(batches)
            ]
        except Exception as error:  # a user's function may raise anything
            reason = f"the query failed on it: {type(error).__name__}: {error}"
            raise SampleError(reason=reason) from error
        finally:
            driver.close()
    return _measure(query, [report for some in reports[1:] for report in some])


class _Nowhere(SinkKind):
    """Takes the place of every sink: rows are staged, since that is work, and seen by nobody."""

    def open(self, sink: Sink, opening: Opening) -> OpenSink:
        """Open nothing."""
        return _Unpublished(opening.plan(sink))


class _Unpublished(OpenSink):
    def publish(self, committed: Committed) -> None:
        """Leave the rows where they are."""


def _epoch(
    driver: Driver, epoch: int, splits: Sequence[Split], worker: Worker
) -> Sequence[TaskReport]:
    def execute(query: CompiledQuery, plan: EpochPlan) -> list[TaskReport]:
        return run_stages(query, plan, splits, worker)

    return driver.run_epoch(epoch, execute).reports


def _batches(query: CompiledQuery, folder: Path, rows: int) -> list[list[Split]]:
    """Return the splits of each epoch of the sample."""
    folder.mkdir()
    batches: list[list[Split]] = [[] for _ in range(_EPOCHS)]
    for number, source in query.sources:
        reader = reader_of(source)
        frame = reader.sample(rows)
        if frame.height < LEAST_ROWS:
            reason = f"source {source.name} has {frame.height} rows; {LEAST_ROWS} are needed"
            raise SampleError(reason=reason)
        step = -(-frame.height // _EPOCHS)
        for epoch, part in enumerate(frame.iter_slices(step)):
            batches[epoch].append(reader.split_of(number, part, folder / f"{number}-{epoch}"))
    return batches


def _measure(query: CompiledQuery, reports: Sequence[TaskReport]) -> Sample:
    came: dict[int, int] = {}
    spent: dict[int, float] = {}
    for report in reports:
        wall = sum(load.busy_seconds for load in report.loads.values())
        # Polars may use several cores here; an instance has what it has.
        scale = max(1.0, report.place.cpu_seconds / wall) if wall else 1.0
        for subquery, load in report.loads.items():
            came[subquery] = came.get(subquery, 0) + load.rows
            spent[subquery] = spent.get(subquery, 0.0) + load.busy_seconds * scale
    read = came.get(0, 0)
    return Sample(
        rows=read,
        costs=tuple(_cost(query, s.id, read, came, spent) for s in query.subqueries),
    )


def _cost(
    query: CompiledQuery,
    subquery: int,
    read: int,
    came: Mapping[int, int],
    spent: Mapping[int, float],
) -> SubqueryCost:
    head, rows = query.subqueries[subquery].head, came.get(subquery, 0)
    return SubqueryCost(
        subquery=subquery,
        name=query.subquery_name(subquery),
        rows=rows / read if read else 0.0,
        seconds=spent.get(subquery, 0.0) / rows if rows else 0.0,
        alone=head is not None and query.nodes[head].alone,
    )
