"""The parts of a task: what each of them promises to the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.base.config import Config
from penstock.compiler import compile_query
from penstock.driver.epoch import make_plan
from penstock.exchange.payload import to_frame
from penstock.operators import kernels
from penstock.operators.pairs import results
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, SinkPlan
from penstock.query.stream import Stream
from penstock.task import evaluate, head, stager
from penstock.task.headers import Headers
from penstock.task.inbox import Inbox
from penstock.task.instance import Instance
from penstock.task.outbox import Outbox
from penstock.task.phases import Phases
from penstock.task.stager import Stager
from penstock.task.worker import Worker
from penstock.testing.runner import LocalRun

SCHEMA: dict[str, Any] = {"k": pl.String, "x": pl.Int64, "ts": pl.Datetime("us")}
ROWS = pl.DataFrame({"k": ["a", "b", "c"], "x": [1, 2, 3]})


def source(name: str = "s") -> Stream:
    return ps.from_rows([], schema=SCHEMA, time="ts", name=name)


def counted(instances: int | dict[int, int]) -> CompiledQuery:
    out = source().aggregate(by="k", window=ps.tumbling("5 seconds"), n="count(*)")
    return compile_query(out.write_memory().sinks, instances=instances)


def planned(query: CompiledQuery, folder: Path) -> EpochPlan:
    sinks = {
        n: SinkPlan(target=f"{folder}/{n}", staging=f"{folder}/staged") for n, _ in query.sinks
    }
    config = Config(fsync=False)
    return make_plan(
        query, None, epoch=0, checkpoint=str(folder), config=config, sinks=sinks, now=0
    )


def outbox_of(query: CompiledQuery, folder: Path) -> tuple[Outbox, Inbox, Headers]:
    plan, inbox = planned(query, folder), Inbox([])
    headers = Headers(query, plan, [])
    here = Instance(query=query, plan=plan, unit=query.unit_at(0, 0), number=0, worker=Worker())
    return Outbox(here, inbox, headers, Phases()), inbox, headers


def test_every_instance_gets_a_header_with_or_without_rows(tmp_path: Path) -> None:
    query = counted({0: 1, 1: 5})
    outbox, _, headers = outbox_of(query, tmp_path)
    headers.see({0: 42})
    (edge,) = query.edges
    outbox.send(edge, ROWS)
    headers.see({0: 99})
    headers.reach(2, 7)
    assert [(p.stage, p.task, p.edge) for p in outbox.payloads] == [(1, i, 0) for i in range(5)]
    assert [(p.seen, p.marks) for p in outbox.payloads] == [({0: 42}, {})] * 5, "as it was then"
    bodies = [p.body for p in outbox.payloads]
    assert b"" in bodies
    sent = [k for body in bodies if body for k in to_frame(body)["k"]]
    assert sorted(sent) == ["a", "b", "c"]


def test_one_instance_shuffles_and_copies_nothing(tmp_path: Path) -> None:
    query = counted(1)
    outbox, inbox, _ = outbox_of(query, tmp_path)
    (edge,) = query.edges
    outbox.send(edge, ROWS)
    ((found, rows),) = inbox.take(query.edges)
    assert rows is ROWS
    assert found == edge
    assert not outbox.payloads
    assert inbox.take(query.edges) == []


def test_rows_wait_for_a_file_of_their_own_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stager, "FILE_ROWS", 5)
    query = counted(1)
    ((sink, _),) = query.sinks
    (tmp_path / "staged").mkdir()
    staged = Stager(planned(query, tmp_path), Phases())
    for _ in range(3):
        staged.give(sink, ROWS)
    assert [file.rows for file in staged.files] == [6]
    staged.flush()
    staged.flush()
    staged.stage_dead(ROWS.clear())
    staged.stage_late(0, ROWS)
    assert [(file.kind, file.rows) for file in staged.files] == [
        ("output", 6),
        ("output", 3),
        ("late", 3),
    ]
    assert staged.rows_out == {sink: 9}


def test_a_kernel_is_built_once_for_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many edges there are, and however many chunks of results leave."""
    built: list[int] = []

    def counting(query: CompiledQuery, number: int, *args: Any) -> Any:
        built.append(number)
        return kernels.kernel_of(query, number, *args)

    monkeypatch.setattr(evaluate, "kernel_of", counting)
    monkeypatch.setattr(head, "kernel_of", counting)
    monkeypatch.setattr(results, "BLOCK", 2)
    pairs = source("a").join(source("b"), on="k", within="1 hour")
    branches = [pairs.filter("x > 0"), pairs.filter("x > 1")]
    both = branches[0].union(branches[1]).select("k", "x", "ts")
    out = both.aggregate(by="k", window=ps.tumbling("5 seconds"), n="count(*)")
    query = compile_query(out.write_memory().sinks)
    at = ps.at("2024-01-01 00:00:00")
    rows = pl.DataFrame({"k": ["a"] * 20, "x": range(20), "ts": [at] * 20}, schema=SCHEMA)
    run = LocalRun(query, tmp_path)
    run.epoch({0: [rows], 1: [rows]})
    # At the edges one of each head; to advance, one of each head's only share.
    assert sorted(built) == sorted([*query.stateful, *query.stateful])
