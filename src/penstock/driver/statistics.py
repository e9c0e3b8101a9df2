"""From task reports to the statistics of an epoch.

Law: what tasks did not tell is left empty or spread evenly, never guessed from another epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.driver.epoch import file_counts
from penstock.plan.buckets import BucketMap
from penstock.plan.compiled import CompiledQuery, Subquery
from penstock.plan.epoch import EpochPlan, SegmentRef, TaskReport
from penstock.plan.grid import bytes_held
from penstock.plan.splits import Reached
from penstock.plan.statistics import EpochStatistics, InstanceLoad, SubqueryLoad, TaskLoad
from penstock.state.manifests import Manifest

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


class Gatherer:
    """Puts the reports of tasks together, epoch by epoch.

    It remembers which buckets the live segments have rows of; of segments that were written before
    it began, it takes the rows to be spread evenly.
    """

    def __init__(self) -> None:
        """Begin without a past."""
        self._histograms: dict[str, Mapping[int, int]] = {}

    def gather(
        self,
        query: CompiledQuery,
        plan: EpochPlan,
        reports: Sequence[TaskReport],
        before: Manifest | None,
        after: Manifest,
        *,
        seconds: float,
        counts: Mapping[str, int],
        backlog: int | None = None,
        published_at: float | None = None,
    ) -> EpochStatistics:
        """Return the statistics of an epoch that was committed.

        Args:
            query: The compiled query as it runs now.
            plan: The plan of the epoch.
            reports: What its tasks reported.
            before: The manifest before it.
            after: Its manifest.
            seconds: How long it took.
            counts: What became of its rows.
            backlog: How much input waits.
            published_at: When its results were published; when it was committed unless given.
        """
        self._remember(reports, after)
        interval = after.committed_at - before.committed_at if before else seconds
        return EpochStatistics(
            epoch=plan.epoch,
            at=after.committed_at,
            seconds=seconds,
            interval_seconds=max(interval, seconds),
            rows=counts.get("read", 0),
            written=counts.get("written", 0),
            latency_seconds=_latency(
                reports, max(interval, seconds), published_at or after.committed_at
            ),
            backlog=backlog,
            files=file_counts(reports, after, plan.again) if after.files_seen else {},
            file_totals=after.file_totals if after.files_seen else {},
            subqueries=tuple(
                self._subquery(query, s, plan, reports, after) for s in query.subqueries
            ),
        )

    def state_bytes(self, refs: Sequence[SegmentRef], buckets: int) -> Floats:
        """Return how many bytes of state each bucket has in some segments."""
        total = np.zeros(buckets)
        for ref in refs:
            rows = np.zeros(buckets)
            known = self._histograms.get(ref.name)
            if known is None:
                for low, high in ref.live:
                    rows[low:high] = 1.0
                whole = rows.sum()
            else:
                rows[list(known)] = list(known.values())
                whole = rows.sum()
                live = np.zeros(buckets)
                for low, high in ref.live:
                    live[low:high] = 1.0
                rows *= live
            total += rows * (ref.bytes / whole) if whole else 0.0
        return total

    def _remember(self, reports: Sequence[TaskReport], after: Manifest) -> None:
        for report in reports:
            self._histograms |= report.written
        live = {ref.name for refs in after.segments.values() for ref in refs}
        self._histograms = {n: found for n, found in self._histograms.items() if n in live}

    def _subquery(
        self,
        query: CompiledQuery,
        subquery: Subquery,
        plan: EpochPlan,
        reports: Sequence[TaskReport],
        after: Manifest,
    ) -> SubqueryLoad:
        mine = [r for r in reports if subquery.id in r.loads]
        loads = [r.loads[subquery.id] for r in mine]
        name, owners = query.subquery_name(subquery.id), plan.maps[subquery.id]
        bytes_of = self.state_bytes(after.segments.get(name, ()), query.buckets)
        ways = () if subquery.head is None else query.nodes[subquery.head].ways
        by_owner = bytes_held(owners, bytes_of.tolist(), ways)
        for tail in [tail for tail in after.tails if tail.operator == name]:
            held = self.state_bytes(after.segments.get(tail.name, ()), query.buckets)
            for low, high, owner in tail.held:
                by_owner[owner] += held[low:high].sum()
        in_memory = _measure_held_by_bucket(loads, owners, bytes_of, by_owner, ways)
        by_bucket = _per_bucket(loads, query.buckets)
        hot = sorted((key for load in loads for key in load.hot_keys), key=lambda k: -k.rows)
        return SubqueryLoad(
            subquery=subquery.id,
            name=name,
            instances=tuple(
                _instance(report, load, mine, int(sum(by_owner[load.instance : load.instance + 1])))
                for report, load in sorted(
                    zip(mine, loads, strict=True), key=lambda pair: pair[1].instance
                )
            ),
            bucket_rows=tuple(int(n) for n in by_bucket[0]) if by_bucket[0].any() else (),
            bucket_seconds=tuple(round(float(s), 9) for s in by_bucket[1])
            if by_bucket[1].any()
            else (),
            bucket_bytes=tuple(int(n) for n in bytes_of) if bytes_of.any() else (),
            bucket_held_bytes=tuple(int(n) for n in in_memory) if in_memory.any() else (),
            hot_keys=tuple(hot[:5]),
        )


def _latency(reports: Sequence[TaskReport], interval: float, published_at: float) -> float:
    """Return how old the oldest file of an epoch was when results came; else the interval."""
    oldest = [low for report in reports for low, _ in report.files.values()]
    return max(0.0, published_at - min(oldest) / 1e6) if oldest else interval


def follow_sources(
    reports: Sequence[TaskReport], rows: Mapping[int, int], before: Mapping[int, Reached]
) -> dict[int, Reached]:
    """Return how far each source was read.

    Args:
        reports: What the tasks of an epoch reported.
        rows: How many rows of each source have come in all.
        before: How far they were read before the epoch.
    """
    newest = {source: reached.newest_us for source, reached in before.items()}
    for report in reports:
        for source, (_, high) in report.files.items():
            newest[source] = max(high, newest.get(source) or high)
    return {n: Reached(rows=rows.get(n, 0), newest_us=newest.get(n)) for n in {*rows, *newest}}


def _per_bucket(loads: Sequence[TaskLoad], buckets: int) -> tuple[Floats, Floats]:
    """Return the rows of each bucket and its share of the time: by rows, instance by instance."""
    rows, seconds = np.zeros(buckets), np.zeros(buckets)
    for load in loads:
        counted = sum(load.buckets.values())
        if not counted:
            continue
        which, count = list(load.buckets), np.array(list(load.buckets.values()), dtype=np.float64)
        rows[which] += count
        seconds[which] += count * (load.busy_seconds / counted)
    return rows, seconds


def _measure_held_by_bucket(
    loads: Sequence[TaskLoad],
    owners: BucketMap,
    in_files: Floats,
    by_owner: Sequence[float],
    ways: Sequence[str],
) -> Floats:
    """Return how much memory each bucket's state takes: that of its owner, by bytes in files.

    On a grid several owners hold the same rows, so there all buckets have one rate.

    Args:
        loads: What the instances told.
        owners: Who owns each bucket.
        in_files: The bytes of each bucket in segments.
        by_owner: The bytes of each instance in segments, those of old windows included.
        ways: On a grid, how the rows of each input go there.
    """
    held, filed = np.zeros(owners.instances), np.array(by_owner)
    for load in loads:
        if load.held_bytes:  # subquery 0 may run in more tasks than it has instances; it holds none
            held[load.instance] += load.held_bytes
    if ways:
        return np.asarray(in_files * (held.sum() / max(filed.sum(), 1.0)))
    who = np.array(owners.owners)
    # Where no segment tells of a state, such as keys that are not forgotten yet, buckets are alike.
    weights = np.where(filed[who] > 0, in_files, 1.0)
    totals = np.where(filed > 0, filed, np.bincount(who, minlength=owners.instances))
    return np.asarray(weights * (held / np.maximum(totals, 1.0))[who])


def _instance(
    report: TaskReport, load: TaskLoad, stage: Sequence[TaskReport], state_bytes: int
) -> InstanceLoad:
    place = report.place
    busy = sum(other.busy_seconds for other in report.loads.values())
    first = min(r.place.started_at for r in stage)
    return InstanceLoad(
        instance=load.instance,
        host=place.host,
        rows=load.rows,
        busy_seconds=load.busy_seconds,
        cpu_seconds=place.cpu_seconds * (load.busy_seconds / busy if busy else 0.0),
        queue_seconds=max(0.0, place.started_at - first),
        memory_bytes=place.memory_bytes,
        state_bytes=state_bytes,
        restored_bytes=load.restored_bytes,
        restored_seconds=load.restored_seconds,
        held_bytes=load.held_bytes,
    )
