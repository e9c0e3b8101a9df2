"""One task of an epoch: input merger, operators, load balancer, sinks, report.

The same code runs in a Spark task and in the in-process runner. Laws: a task is a function of the
query, the plan and its inbox, so a task that is repeated gives the same rows; what it writes has
names that no other attempt can use, so a repeated or a late task changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import polars as pl

from penstock.exchange.payload import Payload
from penstock.plan.compiled import CompiledQuery, Subquery
from penstock.plan.epoch import EpochPlan
from penstock.plan.splits import Split
from penstock.sources.splits import splits_in
from penstock.task.dead_letters import DeadLetters
from penstock.task.evaluate import Work, evaluate, kernels_at_edges
from penstock.task.head import HeadRunner
from penstock.task.headers import Headers
from penstock.task.inbox import Inbox
from penstock.task.instance import Instance
from penstock.task.outbox import Outbox
from penstock.task.phases import Phases
from penstock.task.report import Gathered
from penstock.task.scan import scan
from penstock.task.stager import Stager
from penstock.task.worker import Worker

DRIVER = -1


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
    mine = [p for p in payloads if p.stage == stage]
    unit = query.unit_at(stage, task)
    number = task - unit.first_task
    here = Instance(query=query, plan=plan, unit=unit, number=number, worker=worker)
    epoch = _InstanceEpoch(here, mine)
    sent = epoch.run(splits_in(mine, at_hand))
    report = Payload(kind="report", stage=DRIVER, task=0, body=epoch.report(stage, task))
    return [*passing, *sent, report]


class _InstanceEpoch:
    """The epoch of one instance: each of its subqueries takes rows, works, and passes results on.

    Rows come from the scan or the inbox, go through the head if it is stateful, then through the
    stateless operators, and leave by the stager or the outbox.
    """

    def __init__(self, here: Instance, payloads: Sequence[Payload]) -> None:
        self.here, self.query, self.plan = here, here.query, here.plan
        self.phases = Phases()
        self.letters = DeadLetters.of(self.plan)
        self.headers = Headers(self.query, self.plan, payloads)
        self.inbox = Inbox(payloads)
        self.outbox = Outbox(here, self.inbox, self.headers, self.phases)
        self.stager = Stager(self.plan, self.phases)
        self.gathered = Gathered(here.number, self.query.buckets)
        self.heads = HeadRunner(here, self.headers, self.letters, self.gathered)
        self.kernels = kernels_at_edges(self.query, here.edges)

    def run(self, splits: Mapping[int, Sequence[Split]]) -> list[Payload]:
        for number in self.here.unit.subqueries:
            subquery = self.query.subqueries[number]
            with self.gathered.busy(number):
                if subquery.head is None:
                    self._scan(subquery, splits)
                else:
                    self._take(subquery, subquery.head)
                self.stager.flush()
        self.stager.stage_dead(self.letters.frame())
        return self.outbox.payloads

    def _scan(self, subquery: Subquery, splits: Mapping[int, Sequence[Split]]) -> None:
        """Read the epoch's input and work on it."""
        with self.phases.measure("read"):
            scanned = scan(self.query, self.plan, splits, self.letters)
        self.headers.see(scanned.seen)
        self.gathered.take_scan(subquery.id, scanned)

        def placed() -> Mapping[int, pl.DataFrame]:
            unread = DeadLetters.of(self.plan)
            return scan(self.query, self.plan, splits, unread, ordered=True).rows

        self._finish(replace(self._work(subquery), inputs=scanned.rows, placed=placed))
        for number, late in scanned.late.items():
            self.stager.stage_late(number, late)

    def _take(self, subquery: Subquery, head: int) -> None:
        """Take the rows that have come to a head and work on them."""
        came = self.inbox.take(self.query.edges_into(subquery.id))
        self.gathered.take_rows(subquery.id, came, self.plan.routes)
        work = self._work(subquery)
        if not self.query.nodes[head].stateful:
            self._finish(replace(work, arrived=[(edge.producer, frame) for edge, frame in came]))
            return

        def emit(results: pl.DataFrame) -> None:
            self._finish(replace(work, inputs={head: results}))

        with self.phases.measure("state"):
            results = self.heads.advance(subquery, came, emit)
        emit(results)

    def _work(self, subquery: Subquery) -> Work:
        """Return the stateless operators of a subquery, still without rows."""
        return Work(
            query=self.query,
            subquery=subquery,
            edges=self.query.edges_from(subquery.id),
            kernels=self.kernels,
            limit=self.plan.refused_limit,
        )

    def _finish(self, work: Work) -> None:
        """Run the stateless operators, stage what goes to sinks, send what goes on."""
        with self.phases.measure("compute"):
            outcome = evaluate(work)
            self.letters.add_refusals(outcome.refusals, sources=len(self.query.sources))
        for sink, rows in outcome.sinks.items():
            self.stager.give(sink, rows)
        for edge, rows in zip(work.edges, outcome.edges, strict=True):
            self.outbox.send(edge, rows)

    def report(self, stage: int, task: int) -> bytes:
        report = self.gathered.report(
            stage,
            task,
            headers=self.headers,
            stager=self.stager,
            letters=self.letters,
            phases=self.phases,
        )
        return report.to_json()
