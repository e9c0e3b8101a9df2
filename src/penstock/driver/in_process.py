"""The stages of an epoch in this process: the same plans and the same task code, without Spark.

Payloads are packed and unpacked between stages, as a shuffle would do it. Tests and sample runs
use it.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.exchange.payload import Payload
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.plan.splits import Split
from penstock.sources.splits import again_splits, assign
from penstock.task.run import DRIVER, run_task
from penstock.task.worker import Worker


def run_stages(
    query: CompiledQuery, plan: EpochPlan, splits: Iterable[Split], worker: Worker | None = None
) -> list[TaskReport]:
    """Carry out the plan of one epoch in this process.

    Args:
        query: The compiled query.
        plan: The plan.
        splits: The input.
        worker: What is kept from one epoch to the next; nothing unless given.
    """
    worker = worker or Worker()
    sizes = query.stage_sizes
    everything = [*splits, *again_splits(plan.again)]
    inbox = [p.pack() for p in assign(query, everything, query.subqueries[0].instances)]
    for stage, tasks in enumerate(sizes):
        waiting: dict[int, list[Payload]] = {task: [] for task in range(tasks)}
        for data in inbox:
            payload = Payload.unpack(data)
            waiting[route(payload, stage, tasks)].append(payload)
        inbox = [
            p.pack()
            for task in range(tasks)
            for p in run_task(query, plan, stage, task, waiting[task], worker=worker)
        ]
    reports = [Payload.unpack(data) for data in inbox]
    assert all(p.stage == DRIVER for p in reports), "a payload missed its stage"
    return [TaskReport.from_json(p.body) for p in reports]


def route(payload: Payload, stage: int, tasks: int) -> int:
    """Return the task of a stage that gets a payload; others' payloads are only carried."""
    return payload.task if payload.stage == stage else payload.task % tasks
