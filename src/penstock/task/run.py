"""One task of an epoch: input merger, operators, load balancer, sinks, report.

The same code runs in a Spark task and in the in-process runner. Laws: a task is a function of the
query, the plan and its inbox, so a task that is repeated gives the same rows; what it writes has
names that no other attempt can use, so a repeated or a late task changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import polars as pl

from penstock.exchange.balancer import split_by_key, split_on_grid, spread
from penstock.exchange.lineages import split_by_lineage
from penstock.exchange.merger import input_watermark, merge_marks, merge_seen
from penstock.exchange.payload import Payload, to_bytes, to_frame
from penstock.exchange.placement import placement_of
from penstock.operators.kernel import Emit
from penstock.operators.kernels import kernel_of
from penstock.operators.windows.panes import Panes
from penstock.plan.buckets import BucketSet
from penstock.plan.compiled import CompiledQuery, Edge, Subquery, Unit
from penstock.plan.epoch import (
    EpochPlan,
    SegmentRef,
    SinkPlan,
    SourceCount,
    StagedFile,
    TaskReport,
)
from penstock.plan.progress import Progress
from penstock.plan.statistics import TaskLoad
from penstock.sinks.staging import stage_frame
from penstock.sources.splits import Split, splits_in
from penstock.task.dead_letters import DeadLetters
from penstock.task.evaluate import Work, evaluate
from penstock.task.measure import BucketCounts, Stopwatch
from penstock.task.operator_state import OperatorState
from penstock.task.scan import Scanned, scan
from penstock.task.shares import Share, lineages_at, shares_of
from penstock.task.worker import Worker

DRIVER = -1
FILE_ROWS = 1 << 20
"""A sink's rows are written once there are so many; the rest at the end."""


def run_task(
    query: CompiledQuery,
    plan: EpochPlan,
    stage: int,
    task: int,
    inbox: Iterable[Payload],
    at_hand: Sequence[Split] = (),
    *,
    worker: Worker,
) -> list[Payload]:
    """Run one task of a stage; return what it sends on.

    Args:
        query: The compiled query.
        plan: The plan of the epoch.
        stage: The stage.
        task: The task's number in its stage.
        inbox: What was sent to it; what is not for this stage is passed on as it is.
        at_hand: Rows that this task has got from Spark itself.
        worker: What this process keeps from one task to the next.
    """
    worker.begin(query, plan)
    payloads = list(inbox)
    passing = [p for p in payloads if p.stage != stage]
    unit = query.unit_at(stage, task)
    run = _UnitRun(query, plan, unit, task - unit.first_task, worker)
    sent = run.run([p for p in payloads if p.stage == stage], at_hand)
    report = Payload(kind="report", stage=DRIVER, task=0, body=run.report(stage, task))
    return [*passing, *sent, report]


class _UnitRun:
    """The run of one instance of a unit in one epoch."""

    def __init__(
        self, query: CompiledQuery, plan: EpochPlan, unit: Unit, instance: int, worker: Worker
    ) -> None:
        self.query, self.plan, self.unit, self.instance = query, plan, unit, instance
        self.worker = worker
        self.letters = DeadLetters.of(plan)
        self.arrived: dict[int, list[pl.DataFrame]] = {}
        self.outbox: list[Payload] = []
        self.seen: dict[int, int] = dict(plan.seen)
        self.counts: dict[int, SourceCount] = {}
        self.scanned: Scanned | None = None
        self.staged: list[StagedFile] = []
        self.waiting: dict[int, list[pl.DataFrame]] = {}
        self.added: dict[str, tuple[SegmentRef, ...]] = {}
        self.dropped: dict[str, dict[str, tuple[tuple[int, int], ...]]] = {}
        self.watermarks: dict[str, int] = {}
        self.marks: dict[int, int] = {}
        self.progress: dict[str, Progress] = {}
        self.rows_out: dict[int, int] = {}
        self.hits = self.misses = 0
        self.seconds: dict[str, float] = {}
        self.watch = Stopwatch()
        self.loads: dict[int, TaskLoad] = {}
        self.written: dict[str, dict[int, int]] = {}

    def run(self, payloads: Sequence[Payload], at_hand: Sequence[Split]) -> list[Payload]:
        self.seen = merge_seen([self.seen, *[p.seen for p in payloads]])
        self.marks = merge_marks([p.marks for p in payloads])
        for number in self.unit.subqueries:
            subquery, watch = self.query.subqueries[number], Stopwatch()
            self.loads[number] = TaskLoad(instance=self.instance)
            if subquery.head is None:
                self._scan(subquery, splits_in(payloads, at_hand))
            else:
                self._arrive(subquery, payloads)
                self._head(subquery)
            self._stage_waiting()
            busy, _ = watch.seconds()
            self.loads[number] = replace(self.loads[number], busy_seconds=busy)
        self._stage_letters()
        return self.outbox

    def _arrive(self, subquery: Subquery, payloads: Sequence[Payload]) -> None:
        """Take the rows that other tasks have sent to a subquery."""
        mine = {edge.id for edge in self.query.edges_into(subquery.id)}
        for payload in payloads:
            if payload.kind == "rows" and payload.body and payload.edge in mine:
                self.arrived.setdefault(payload.edge, []).append(to_frame(payload.body))

    def _timed(self, phase: str, since: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - since

    def _scan(self, subquery: Subquery, splits: Mapping[int, Sequence[Split]]) -> None:
        since = time.perf_counter()
        scanned = scan(self.query, self.plan, splits, self.letters)
        self.scanned, self.counts = scanned, dict(scanned.counts)
        self.seen = merge_seen([self.seen, scanned.seen])
        self._timed("read", since)
        rows = sum(count.read for count in scanned.counts.values())
        self.loads[subquery.id] = replace(self.loads[subquery.id], rows=rows)

        def placed() -> Mapping[int, pl.DataFrame]:
            unread = DeadLetters.of(self.plan)
            return scan(self.query, self.plan, splits, unread, ordered=True).rows

        self._finish(
            subquery,
            Work(
                query=self.query,
                subquery=subquery,
                edges=self.query.edges_from(subquery.id),
                inputs=scanned.rows,
                placed=placed,
                limit=self.plan.refused_limit,
            ),
        )
        for number, late in scanned.late.items():
            self._stage("late", number, late)

    def _head(self, subquery: Subquery) -> None:
        assert subquery.head is not None
        came = [
            (edge, frame)
            for edge in self.query.edges_into(subquery.id)
            for frame in self.arrived.pop(edge.id, [])
        ]
        self._count(subquery, came)
        arrived = [(edge.producer, frame) for edge, frame in came]
        work = Work(
            query=self.query,
            subquery=subquery,
            edges=self.query.edges_from(subquery.id),
            inputs={},
            arrived=arrived,
            limit=self.plan.refused_limit,
        )
        if self.query.nodes[subquery.head].stateful:
            since, before = time.perf_counter(), sum(self.seconds.values())
            results = self._advance(subquery, work, came)
            emitting = sum(self.seconds.values()) - before
            self._timed("state", since + emitting)
            work = replace(work, inputs={subquery.head: results})
        self._finish(subquery, work)

    def _count(self, subquery: Subquery, came: Sequence[tuple[Edge, pl.DataFrame]]) -> None:
        """Count the rows that have come, by bucket where rows go by bucket."""
        counts = BucketCounts()
        for edge, frame in came:
            if edge.keys is not None and not edge.grid:
                counts.add(frame, edge.keys, self.query.buckets)
        self.loads[subquery.id] = replace(
            self.loads[subquery.id],
            rows=sum(frame.height for _, frame in came),
            buckets=counts.buckets,
            hot_keys=tuple(counts.hot_keys),
        )

    def _advance(
        self, subquery: Subquery, work: Work, came: Sequence[tuple[Edge, pl.DataFrame]]
    ) -> pl.DataFrame:
        """Return the results of the stateful head; many are worked on before all are found."""
        head = subquery.head
        assert head is not None

        def emit(results: pl.DataFrame) -> None:
            self._finish(subquery, replace(work, inputs={head: results}))

        mark = self._watermark(head)
        shares = shares_of(self.query, self.plan, subquery.id, self.instance, mark)
        self.marks[head] = min([mark, *[share.until for share in shares]])
        return pl.concat([self._advance_share(subquery, share, came, emit) for share in shares])

    def _watermark(self, head: int) -> int:
        """Return the watermark of what comes into a stateful head; it never goes back."""
        plan, name = self.plan, self.query.operator_name(head)
        idle = frozenset(n for n in plan.idle if self.seen.get(n) == plan.seen.get(n))
        mark = input_watermark(
            self.query, self.seen, head, idle=idle, final=plan.final, marks=self.marks
        )
        self.watermarks[name] = max(mark, plan.watermarks.get(name, mark))
        return self.watermarks[name]

    def _advance_share(
        self,
        subquery: Subquery,
        share: Share,
        came: Sequence[tuple[Edge, pl.DataFrame]],
        emit: Emit,
    ) -> pl.DataFrame:
        query, head, name = self.query, subquery.head, share.lineage.name
        assert head is not None
        grid = query.grid_of(subquery.id)
        state = OperatorState(
            plan=self.plan,
            operator=name,
            kernel=kernel_of(query, head, share.buckets, emit, share.span(query.buckets)),
            placement=placement_of(query.nodes[head], query.buckets, share.buckets, grid),
            mark=share.mark,
            worker=self.worker,
        )
        rows = [share.rows(query, subquery.id, frame, edge.keys or ()) for edge, frame in came]
        results = state.advance(rows, share.until)
        self.letters.add_refusals(state.refusals, sources=len(query.sources))
        self._take_up(subquery, share, state)
        return results

    def _take_up(self, subquery: Subquery, share: Share, state: OperatorState) -> None:
        """Put what a share has done into the report."""
        name = share.lineage.name
        self.added[name] = (*self.added.get(name, ()), *state.added)
        dropped = self.dropped.setdefault(name, {})
        for segment, ranges in state.dropped.items():
            both = BucketSet(dropped.get(segment, ())) | BucketSet(ranges)
            dropped[segment] = both.ranges
        reached = Progress.of([(share.until, share.buckets)])
        self.progress[name] = Progress.of(
            [*self.progress.get(name, Progress()).shares, *reached.shares]
        )
        self.hits += state.hit
        self.misses += not state.hit
        self.written |= state.histograms
        load = self.loads[subquery.id]
        self.loads[subquery.id] = replace(
            load,
            restored_bytes=load.restored_bytes + state.restored_bytes,
            held_bytes=load.held_bytes + state.held_bytes,
        )

    def _finish(self, subquery: Subquery, work: Work) -> None:
        """Run the stateless operators, stage what goes to sinks, send what goes on."""
        since = time.perf_counter()
        outcome = evaluate(work)
        self.letters.add_refusals(outcome.refusals, sources=len(self.query.sources))
        self._timed("compute", since)
        for number, frame in outcome.sinks.items():
            self.rows_out[number] = self.rows_out.get(number, 0) + frame.height
            self._give(number, frame)
        for edge, frame in zip(work.edges, outcome.edges, strict=True):
            self._send(edge, frame)

    def _give(self, number: int, frame: pl.DataFrame) -> None:
        """Let rows for a sink wait for others, so that files are neither many nor huge."""
        waiting = self.waiting.setdefault(number, [])
        waiting += [frame] if frame.height else []
        if sum(part.height for part in waiting) >= FILE_ROWS:
            self._stage_waiting()

    def _stage_waiting(self) -> None:
        for number, waiting in self.waiting.items():
            if waiting:
                self._stage("output", number, pl.concat(waiting))
                waiting.clear()

    def _send(self, edge: Edge, frame: pl.DataFrame) -> None:
        if edge.to_subquery in self.unit.subqueries:
            self.arrived.setdefault(edge.id, []).append(frame)
            return
        since = time.perf_counter()
        target = self.query.unit_of(edge.to_subquery)
        for instance, part in enumerate(self._parts(edge, frame)):
            body = to_bytes(part) if part.height else b""
            self.outbox.append(
                Payload(
                    kind="rows",
                    stage=target.stage,
                    edge=edge.id,
                    task=target.first_task + instance,
                    seen=self.seen,
                    marks=self.marks,
                    body=body,
                )
            )
        self._timed("send", since)

    def _parts(self, edge: Edge, frame: pl.DataFrame) -> list[pl.DataFrame]:
        """Return what each instance of the next subquery gets."""
        owners, grid = self.plan.maps[edge.to_subquery], self.query.grid_of(edge.to_subquery)
        if grid is not None:
            return split_on_grid(frame, edge.keys or (), edge.grid, grid, owners)
        if edge.keys is None:
            return spread(frame, owners.instances)
        lineages = lineages_at(self.query, self.plan, edge.to_subquery)
        window = self.query.window_of(edge.to_subquery)
        if len(lineages) == 1 or window is None:
            return split_by_key(frame, edge.keys, owners)
        return split_by_lineage(
            frame, edge.keys, lineages, instances=owners.instances, panes=Panes.of(window)
        )

    def _stage(self, kind: str, operator: int, frame: pl.DataFrame) -> None:
        if not frame.height:
            return
        since = time.perf_counter()
        root = self.plan.checkpoint
        side = SinkPlan(target=f"{root}/{kind}/{operator}", staging=f"{root}/staged")
        sink = self.plan.sinks[operator] if kind == "output" else side
        staged = stage_frame(sink, kind, self.plan.epoch, frame, fsync=self.plan.fsync)
        self.staged.append(staged)
        self._timed("stage", since)

    def _stage_letters(self) -> None:
        self._stage("dead", 0, self.letters.frame())

    def report(self, stage: int, task: int) -> bytes:
        scanned = self.scanned
        return TaskReport(
            stage=stage,
            task=task,
            counts=self.counts,
            seen=self.seen if scanned else {},
            arrived=scanned.arrived if scanned else {},
            added=self.added,
            dropped=self.dropped,
            staged=tuple(self.staged),
            watermarks=self.watermarks,
            progress=self.progress,
            rows_out=self.rows_out,
            results_refused=self.letters.results,
            refused=self.letters.places,
            first_refusal=self.letters.first_reason,
            cache_hits=self.hits,
            cache_misses=self.misses,
            seconds=self.seconds,
            place=self.watch.place(),
            loads=self.loads,
            written=self.written,
            files=scanned.files if scanned else {},
            file_counts=scanned.file_counts if scanned else {},
            bad_files=scanned.bad_files if scanned else (),
        ).to_json()
