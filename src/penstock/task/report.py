"""What an instance has done in an epoch, gathered for its report.

Law: a report says what was done, part by part: nothing in it is derived from the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

import polars as pl

from penstock.plan.buckets import BucketSet
from penstock.plan.compiled import Edge
from penstock.plan.epoch import SegmentRef, TaskReport
from penstock.plan.progress import Progress
from penstock.plan.route import Route
from penstock.plan.statistics import TaskLoad
from penstock.task.dead_letters import DeadLetters
from penstock.task.headers import Headers
from penstock.task.measure import BucketCounts, Stopwatch
from penstock.task.operator_state import OperatorState
from penstock.task.phases import Phases
from penstock.task.scan import Scanned
from penstock.task.shares import Share
from penstock.task.stager import Stager

Ranges = tuple[tuple[int, int], ...]


class Gathered:
    """What subqueries and shares of an instance have done so far."""

    def __init__(self, instance: int, buckets: int) -> None:
        """Begin with nothing.

        Args:
            instance: The instance.
            buckets: How many buckets keys are hashed to.
        """
        self._instance, self._buckets = instance, buckets
        self._watch = Stopwatch()
        self._scanned: Scanned | None = None
        self._added: dict[str, tuple[SegmentRef, ...]] = {}
        self._dropped: dict[str, dict[str, Ranges]] = {}
        self._progress: dict[str, Progress] = {}
        self._hits = self._misses = 0
        self._loads: dict[int, TaskLoad] = {}
        self._written: dict[str, dict[int, int]] = {}

    @contextmanager
    def busy(self, subquery: int) -> Iterator[None]:
        """Count the time until the end as work of a subquery."""
        watch = Stopwatch()
        self._loads[subquery] = TaskLoad(instance=self._instance)
        yield
        seconds, _ = watch.seconds()
        self._loads[subquery] = replace(self._loads[subquery], busy_seconds=seconds)

    def take_scan(self, subquery: int, scanned: Scanned) -> None:
        """Take up what was read."""
        self._scanned = scanned
        rows = sum(count.read for count in scanned.counts.values())
        self._loads[subquery] = replace(self._loads[subquery], rows=rows)

    def take_rows(
        self,
        subquery: int,
        came: Sequence[tuple[Edge, pl.DataFrame]],
        routes: Mapping[int, Route],
    ) -> None:
        """Count the rows that have come to a subquery, by bucket where rows go by bucket."""
        counts = BucketCounts()
        for edge, frame in came:
            keys = routes[edge.id].bucket_keys
            if keys is not None:
                counts.add(frame, keys, self._buckets)
        self._loads[subquery] = replace(
            self._loads[subquery],
            rows=sum(frame.height for _, frame in came),
            buckets=counts.buckets,
            hot_keys=tuple(counts.hot_keys),
        )

    def take_share(self, subquery: int, share: Share, state: OperatorState) -> None:
        """Take up what a share has done."""
        name = share.lineage.name
        self._added[name] = (*self._added.get(name, ()), *state.added)
        dropped = self._dropped.setdefault(name, {})
        for segment, ranges in state.dropped.items():
            both = BucketSet(dropped.get(segment, ())) | BucketSet(ranges)
            dropped[segment] = both.ranges
        reached = Progress.of([(share.until, share.buckets)])
        self._progress[name] = Progress.of(
            [*self._progress.get(name, Progress()).shares, *reached.shares]
        )
        self._hits += state.hit
        self._misses += not state.hit
        self._written |= state.histograms
        load = self._loads[subquery]
        self._loads[subquery] = replace(
            load,
            restored_bytes=load.restored_bytes + state.restored_bytes,
            restored_seconds=load.restored_seconds + state.restored_seconds,
            held_bytes=load.held_bytes + state.held_bytes,
        )

    def report(
        self,
        stage: int,
        task: int,
        *,
        headers: Headers,
        stager: Stager,
        letters: DeadLetters,
        phases: Phases,
    ) -> TaskReport:
        """Return the report of the task."""
        scanned = self._scanned or Scanned(rows={})
        return TaskReport(
            stage=stage,
            task=task,
            counts=scanned.counts,
            seen=headers.seen if self._scanned else {},
            arrived=scanned.arrived,
            added=self._added,
            dropped=self._dropped,
            staged=tuple(stager.files),
            watermarks=headers.watermarks,
            progress=self._progress,
            rows_out=stager.rows_out,
            results_refused=letters.results,
            refused=letters.places,
            first_refusal=letters.first_reason,
            cache_hits=self._hits,
            cache_misses=self._misses,
            seconds=phases.seconds,
            place=self._watch.place(),
            loads=self._loads,
            written=self._written,
            files=scanned.files,
            file_counts=scanned.file_counts,
            bad_files=scanned.bad_files,
        )
