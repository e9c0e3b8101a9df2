"""The epoch machine, pure: from the last manifest to a plan, from reports to the next manifest.

Laws: rows read = rows processed + rows late + rows refused, checked before every commit; a plan
depends on the last manifest, the configuration and the clock that is handed in, on nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.base.config import Config
from penstock.base.errors import RefusedLimitError
from penstock.base.times import NOT_STARTED
from penstock.driver.steering.switch import only_open, pass_on
from penstock.exchange.merger import merge_seen
from penstock.exchange.routes import Weights, choose_routes
from penstock.plan.buckets import BucketMap, BucketSet
from penstock.plan.changes import Reconfiguration
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import (
    EpochPlan,
    Output,
    SegmentRef,
    SinkPlan,
    StagedFile,
    TaskReport,
)
from penstock.plan.files import Again, FileAccounts, account
from penstock.plan.progress import Progress
from penstock.plan.tails import Tail, still_open
from penstock.query.nodes import Source
from penstock.state.manifests import Manifest, output_name

COUNTERS = ("read", "processed", "late", "refused", "refusedResults", "written")


def make_plan(
    query: CompiledQuery,
    before: Manifest | None,
    *,
    epoch: int,
    checkpoint: str,
    config: Config,
    sinks: Mapping[int, SinkPlan],
    now: float,
    final: bool = False,
    writer: str = "",
    maps: Mapping[int, BucketMap] | None = None,
    tails: Sequence[Tail] | None = None,
    again: tuple[Again, ...] = (),
    held: Mapping[str, BucketSet] | None = None,
    weights: Mapping[int, Weights] | None = None,
) -> EpochPlan:
    """Return the plan of an epoch.

    Args:
        query: The compiled query.
        before: The manifest of the epoch before, if there is one.
        epoch: The epoch.
        checkpoint: Penstock's folder in the checkpoint.
        config: How the query runs.
        sinks: Where the rows of sinks go.
        now: The time, for telling idle sources.
        final: Whether the input has ended.
        writer: The run that plans.
        maps: Who owns the buckets of each subquery; spread evenly unless given.
        tails: The tails, with those that open with this epoch; those that were open unless given.
        again: The files that are tried again.
        held: Buckets of operators that shall stay at their marks; none in the last epoch.
        weights: How much each instance gets of rows that are spread, by subquery; equal parts
            unless given.
    """
    last = before or Manifest(epoch=-1)
    maps = maps or {s.id: query.owners(s.id) for s in query.subqueries}
    tails = last.tails if tails is None else tails
    segments, progress = last.segments, _progress(query, last, maps)
    for tail in [tail for tail in tails if tail.epoch == epoch]:
        segments = pass_on(segments, tail)
        progress[tail.name] = progress[tail.operator].cut(tail.buckets)
    idle = _find_idle(query, last, now)
    return EpochPlan(
        epoch=epoch,
        checkpoint=checkpoint,
        writer=writer,
        last_writer=last.writer,
        seen=last.seen,
        rows_before=last.rows_before,
        watermarks=last.watermarks,
        progress=progress,
        held={} if final else _find_held(query, maps, held or {}),
        idle=idle,
        segments=segments,
        tails=tuple(tails),
        final=final,
        again=again,
        floors=_floors(query, last) if may_idle(query) else {},
        maps=maps,
        routes=choose_routes(query, maps, tails, weights),
        sinks=sinks,
        fsync=config.fsync,
        cache_bytes=config.cacheBytes,
        refused_limit=max(0, config.maxRefusedRows - last.totals.get("refused", 0)),
        refused_before=last.totals.get("refused", 0),
    )


def _progress(
    query: CompiledQuery, last: Manifest, maps: Mapping[int, BucketMap]
) -> dict[str, Progress]:
    """Return how far every lineage is; operators that are new have not started."""
    fresh = {
        query.operator_name(s.head): Progress.even(len(maps[s.id].owners), NOT_STARTED)
        for s in query.subqueries
        if s.head is not None and query.nodes[s.head].stateful
    }
    return fresh | dict(last.progress)


def _find_held(
    query: CompiledQuery, maps: Mapping[int, BucketMap], wanted: Mapping[str, BucketSet]
) -> dict[str, BucketSet]:
    """Return the buckets that are held; all or none where single ones cannot move.

    Instances share the state of a grid, so one that lagged would lose what the others let go.
    """
    names = {query.subquery_name(s.id): s.id for s in query.subqueries}
    return {
        name: buckets
        if query.is_movable(names[name])
        else BucketSet(((0, len(maps[names[name]].owners)),))
        for name, buckets in wanted.items()
        if name in names and buckets
    }


def may_idle(query: CompiledQuery) -> bool:
    """Return whether the plan of an epoch depends on the time."""
    return any(source.idle_us is not None for _, source in query.sources)


def _find_idle(query: CompiledQuery, last: Manifest, now: float) -> frozenset[int]:
    """Return the sources that have been silent for longer than they may hold others back."""
    return frozenset(
        number
        for number, source in query.sources
        if source.idle_us is not None
        and now - last.heard_at.get(number, now) > source.idle_us / 1e6
    )


def _floors(query: CompiledQuery, last: Manifest) -> dict[int, int]:
    """Return for each source the highest watermark of the operators that it feeds directly."""
    feeding: list[set[int]] = []
    floors = {number: NOT_STARTED for number, _ in query.sources}
    for number, node in enumerate(query.nodes):
        sources = (
            {number}
            if isinstance(node, Source)
            else set().union(*(feeding[i] for i in query.inputs[number]))
        )
        if node.stateful:
            mark = last.watermarks.get(query.operator_name(number), NOT_STARTED)
            floors |= {source: max(floors[source], mark) for source in sources}
            sources = set()
        feeding.append(sources)
    return floors


def make_manifest(
    plan: EpochPlan,
    before: Manifest | None,
    reports: Sequence[TaskReport],
    *,
    limit: int,
    now: float,
    writer: str = "",
    word: str = "",
    spark_log: Mapping[str, str] | None = None,
    names: Mapping[int, str] | None = None,
    sources: Mapping[int, str] | None = None,
    most_files: int = 1000,
    reconfigured: tuple[Reconfiguration, ...] = (),
) -> Manifest:
    """Return the manifest that commits an epoch.

    Args:
        plan: The plan that was carried out.
        before: The manifest before it.
        reports: What every task of the epoch reported.
        limit: How many rows may be refused in all.
        now: The time.
        writer: The run that commits.
        word: The query's own word.
        spark_log: The hashes of Spark's own log for the epoch.
        names: The names of the subqueries, under which their bucket maps are kept.
        sources: The names of the sources.
        most_files: How many files may be refused or wait.
        reconfigured: The changes that took effect or ended with the epoch.

    Raises:
        RefusedLimitError: More rows or files were refused than the query tolerates.
    """
    last = before or Manifest(epoch=-1)
    counts = epoch_counts(reports)
    totals = {name: last.totals.get(name, 0) + counts[name] for name in COUNTERS}
    _check_refused(totals["refused"], limit, plan.epoch, reports)
    if counts["read"] != counts["processed"] + counts["late"] + counts["refused"]:
        raise AssertionError(f"rows were lost: {counts}")
    files = _files(plan, last, reports, most_files, now=now)
    arrived = _count_arrived(reports)
    watermarks = dict(last.watermarks) | _lowest([r.watermarks for r in reports])
    progress = progress_after(plan, reports)
    tails = _open_tails(plan, progress, reconfigured)
    heard = {number: now for number, rows in arrived.items() if rows or number not in last.heard_at}
    return Manifest(
        epoch=plan.epoch,
        previous=last.digest if before else "",
        writer=writer,
        committed_at=now,
        spark_log=dict(last.spark_log) if spark_log is None else spark_log,
        instances={number: owners.instances for number, owners in plan.maps.items()},
        owners={name: plan.maps[number].runs for number, name in (names or {}).items()},
        reconfigured=reconfigured,
        final=plan.final,
        seen=merge_seen([last.seen, *[r.seen for r in reports]]),
        rows_before={n: last.rows_before.get(n, 0) + rows for n, rows in arrived.items()},
        watermarks=watermarks,
        progress=only_open(progress, tails),
        segments=only_open(_segments(plan.segments, reports), tails),
        tails=tails,
        totals=totals,
        files_seen=files.seen,
        files_read=files.read,
        waiting_files=files.waiting,
        refused_files=files.refused,
        source_names=dict(sources or {}) if files.seen else {},
        staged=tuple(s for r in reports for s in r.staged),
        outputs=_outputs(plan, last, [s for r in reports for s in r.staged]),
        query=word,
        heard_at=dict(last.heard_at) | heard,
    )


def _outputs(plan: EpochPlan, last: Manifest, staged: Sequence[StagedFile]) -> dict[str, Output]:
    """Return what each output has got; one whose folder was claimed anew begins anew."""
    found = dict(last.outputs)
    for sink in plan.sinks.values():
        before = found.get(output_name(sink.target))
        anew = Output(kind=sink.kind, first=sink.first, since=sink.since)
        if before is None or replace(before, rows=0, epochs=0) != anew:
            found[output_name(sink.target)] = anew
    for target in sorted({file.target for file in staged}):
        before = found.get(output_name(target), Output())
        rows = sum(file.rows for file in staged if file.target == target)
        found[output_name(target)] = replace(
            before, rows=before.rows + rows, epochs=before.epochs + 1
        )
    return found


def find_ended_tails(plan: EpochPlan, reports: Sequence[TaskReport]) -> tuple[Tail, ...]:
    """Return the tails whose last window an epoch has closed."""
    left = still_open(plan.tails, progress_after(plan, reports))
    return tuple(tail for tail in plan.tails if tail not in left)


def progress_after(plan: EpochPlan, reports: Sequence[TaskReport]) -> dict[str, Progress]:
    """Return how far every lineage is after an epoch."""
    return {
        lineage: before.after(r.progress[lineage] for r in reports if lineage in r.progress)
        for lineage, before in plan.progress.items()
    }


def _open_tails(
    plan: EpochPlan, progress: Mapping[str, Progress], changes: Sequence[Reconfiguration]
) -> tuple[Tail, ...]:
    """Return the tails that go on; new ones with the records that they will end."""
    moving = [r for r in changes if r.outcome == "moving" and r.epoch == plan.epoch]
    return tuple(
        replace(tail, moves=tuple(r for r in moving if r.name == tail.operator))
        if tail.epoch == plan.epoch
        else tail
        for tail in still_open(plan.tails, progress)
    )


def _check_refused(refused: int, limit: int, epoch: int, reports: Sequence[TaskReport]) -> None:
    if refused > limit:
        reason = next((r.first_refusal for r in reports if r.first_refusal), "")
        raise RefusedLimitError(refused=refused, limit=limit, epoch=epoch, reason=reason)


def _files(
    plan: EpochPlan, last: Manifest, reports: Sequence[TaskReport], most: int, *, now: float
) -> FileAccounts:
    files = account(
        last.file_accounts,
        plan.again,
        [report.file_counts for report in reports],
        [bad for report in reports for bad in report.bad_files],
        now=now,
    )
    files.check()
    unread = (*files.refused, *files.waiting)
    if len(unread) > most:
        raise RefusedLimitError(
            what="files",
            refused=len(unread),
            limit=most,
            epoch=plan.epoch,
            reason=unread[-1].reason,
        )
    return files


def file_counts(
    reports: Sequence[TaskReport], manifest: Manifest, again: Sequence[Again] = ()
) -> dict[str, int]:
    """Return what happened to the files of an epoch: those seen for the first time, read, refused.

    ``waiting`` is how many wait after it.
    """
    counts = [count for report in reports for count in report.file_counts.values()]
    refused = [bad for report in reports for bad in report.bad_files if not bad.waits]
    return {
        "seen": sum(count.seen for count in counts) - len(again),
        "read": sum(count.read for count in counts),
        "refused": len(refused),
        "waiting": len(manifest.waiting_files),
    }


def epoch_counts(reports: Sequence[TaskReport]) -> dict[str, int]:
    """Return what happened to the rows of an epoch, by counter."""
    counts = [count for report in reports for count in report.counts.values()]
    places = {place for report in reports for place in report.refused}
    read, late = sum(c.read for c in counts), sum(c.late for c in counts)
    refused = sum(c.refused for c in counts) + len(places)
    return {
        "read": read,
        "late": late,
        "refused": refused,
        "processed": read - late - refused,
        "refusedResults": sum(r.results_refused for r in reports),
        "written": sum(rows for r in reports for rows in r.rows_out.values()),
    }


def _count_arrived(reports: Sequence[TaskReport]) -> dict[int, int]:
    """Return how far each source's positions moved; scan instances agree, or one of them knows."""
    arrived: dict[int, int] = {}
    for report in reports:
        for number, rows in report.arrived.items():
            arrived[number] = max(arrived.get(number, 0), rows)
    return arrived


def _lowest(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    lowest: dict[str, int] = {}
    for part in parts:
        for name, mark in part.items():
            lowest[name] = min(lowest.get(name, mark), mark)
    return lowest


def _segments(
    before: Mapping[str, tuple[SegmentRef, ...]],
    reports: Sequence[TaskReport],
) -> dict[str, tuple[SegmentRef, ...]]:
    live = {operator: {ref.name: ref for ref in refs} for operator, refs in before.items()}
    for report in reports:
        for operator, names in report.dropped.items():
            for name, ranges in names.items():
                ref = live[operator][name]
                left = ref.buckets - BucketSet(tuple(ranges))
                live[operator][name] = replace(ref, live=left.ranges)
        for operator, refs in report.added.items():
            live.setdefault(operator, {}).update({ref.name: ref for ref in refs})
    return {
        operator: tuple(ref for ref in refs.values() if ref.live) for operator, refs in live.items()
    }
