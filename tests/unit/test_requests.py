"""Requests through the checkpoint: taken up once, answered, and never harmful."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.base.errors import ConfigError
from penstock.compiler import compile_query
from penstock.driver.steering.requests import MOST_BYTES, Request, answers, ask, waits
from penstock.files.place import Place, place_of, sha256
from penstock.files.sealed import FORMAT, seal
from penstock.testing.runner import LocalRun, frame_splits, run_stages

SCHEMA: dict[str, Any] = {"k": pl.String, "ts": pl.Datetime("us")}
FOUR = Request(kind="rescale", subquery="aggregate-0", instances=4)


def run_on(folder: Path, *, ordered: bool = False, instances: int = 1) -> LocalRun:
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    counted = stream.aggregate(by="k", window=ps.tumbling("1 minute"), n="count(*)")
    sinks = counted.write_memory(ordered=ordered).sinks
    run = LocalRun(compile_query(sinks, buckets=16, instances={1: instances}), folder)
    run.driver.steering.requests.seconds = 0.0
    return run


def batch(epoch: int, keys: int = 8) -> dict[int, list[pl.DataFrame]]:
    at = ps.at(f"2024-01-01 00:{epoch:02d}:00")
    rows = [{"k": f"k{i}", "ts": at} for i in range(keys) for _ in range(1 + 5 * (i == 0))]
    return {0: [pl.DataFrame(rows, schema=SCHEMA)]}


def step(run: LocalRun) -> None:
    run.epoch(batch(run.next_epoch))


def size(run: LocalRun) -> int:
    return run.driver.query.subqueries[1].instances


@pytest.fixture
def root(tmp_path: Path) -> Place:
    return place_of(tmp_path) / "penstock"


def test_a_request_takes_effect_with_the_next_epoch_and_is_answered(
    tmp_path: Path, root: Place
) -> None:
    run = run_on(tmp_path)
    step(run)
    asked = ask(root, FOUR)
    assert waits(root, asked)
    assert answers(root, asked) == []
    step(run)
    assert size(run) == 4
    assert not waits(root, asked)
    (answer,) = answers(root, asked)
    assert (answer.outcome, answer.before, answer.after, answer.epoch) == ("done", 1, 4, 1)
    assert answer.cause == "user"
    assert "gave aggregate-0 4 instances instead of 1" in answer.sentence
    step(run)
    assert len(answers(root, asked)) == 1


def test_a_request_made_while_nothing_runs_waits_for_the_start(tmp_path: Path, root: Place) -> None:
    asked = ask(root, Request(kind="rescale", subquery="1", instances=2))
    run = run_on(tmp_path)
    assert waits(root, asked)
    step(run)
    assert size(run) == 2
    assert answers(root, asked)[0].outcome == "done"


def test_requests_are_taken_up_in_the_order_in_which_they_were_made(
    tmp_path: Path, root: Place
) -> None:
    run = run_on(tmp_path)
    ask(root, Request(kind="rescale", subquery="1", instances=3), now=2.0)
    ask(root, Request(kind="rescale", subquery="1", instances=2), now=1.0)
    step(run)
    assert size(run) == 3


def test_rebalance_and_move(tmp_path: Path, root: Place) -> None:
    run = run_on(tmp_path, instances=2)
    step(run)
    load = run.driver.steering.statistics
    assert load is not None
    hot = max(range(16), key=load.subqueries[1].bucket_rows.__getitem__)
    moved = ask(root, Request(kind="move", subquery="aggregate-0", moves=tuple(
        (bucket, 0) for bucket in range(16))))  # fmt: skip
    step(run)
    assert set(run.driver.layout.maps[1].owners) == {0}
    assert answers(root, moved)[0].kind == "move"
    balanced = ask(root, Request(kind="rebalance"))
    step(run)
    owners = run.driver.layout.maps[1].owners
    assert set(owners) == {0, 1}
    alone = [b for b in range(16) if owners[b] == owners[hot] and load.subqueries[1].bucket_rows[b]]
    assert len(alone) < 7, "the instance of the hot bucket has fewer of the others"
    assert answers(root, balanced)[0].kind == "rebalance"


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Request(kind="rescale", subquery="aggregate-7", instances=2), "subquery='aggregate-7'"),
        (Request(kind="rescale", subquery="-1", instances=2), "subquery='-1'"),
        (Request(kind="rescale", subquery="1", instances=10**9), "1 to 16"),
        (Request(kind="rescale", subquery="sink-0", instances=2), "it is alone"),
        (Request(kind="move", subquery="1", moves=((99, 0),)), "bucket 99"),
        (Request(kind="move", subquery="0", moves=((1, 0),)), "rows go by bucket"),
        (Request(kind="rebalance", subquery="7"), "subquery='7'"),
        (Request(kind="rebalance"), "no load is known"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_refused_with_the_reason(
    tmp_path: Path, root: Place, request_: Request, reason: str
) -> None:
    run = run_on(tmp_path, ordered=True)
    asked = ask(root, request_)
    step(run)
    (answer,) = answers(root, asked)
    assert answer.outcome == "refused"
    assert reason in answer.sentence
    assert not waits(root, asked)
    assert {s.instances for s in run.driver.query.subqueries} == {1}


def test_a_request_that_makes_no_sense_cannot_be_made() -> None:
    slow: Any = "slow"
    with pytest.raises(ConfigError, match="instances=0"):
        Request(kind="rescale", subquery="1")
    with pytest.raises(ConfigError, match="protocol='slow'"):
        Request(kind="rescale", subquery="1", instances=2, protocol=slow)
    with pytest.raises(ConfigError, match="subquery=''"):
        Request(kind="move", moves=((1, 1),))
    with pytest.raises(ConfigError, match="moves"):
        Request(kind="move", subquery="1")


def _sealed_body(body: bytes) -> bytes:
    return f"penstock request {FORMAT} {sha256(body)}\n".encode() + body


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "noise": os.urandom(100),
    "huge": b"x" * (MOST_BYTES + 1),
    "another kind": seal("manifest", {"epoch": 3}),
    "damaged": seal("request", {"kind": "rescale", "subquery": "1", "instances": 2})[:-1] + b"9",
    "unknown kind": seal("request", {"kind": "shutdown"}),
    "wrong types": seal("request", {"kind": "rescale", "subquery": 1, "instances": "many"}),
    "a list": _sealed_body(b"[1, 2]"),
    "deep": _sealed_body(b"[" * 30_000),
    "zero": seal("request", {"kind": "rescale", "subquery": "1", "instances": 0}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_and_hurts_nobody(tmp_path: Path, root: Place, name: str) -> None:
    run = run_on(tmp_path)
    (root / "requests" / "000000000000001-hostile.json").write_new(HOSTILE[name])
    good = ask(root, FOUR)
    step(run)
    assert size(run) == 4
    assert answers(root, "000000000000001-hostile")[0].outcome == "refused"
    assert answers(root, good)[0].outcome == "done"
    assert (root / "requests").list() == []


def test_what_is_no_file_is_refused_once_and_left(tmp_path: Path, root: Place) -> None:
    run = run_on(tmp_path)
    folder = tmp_path / "penstock" / "requests"
    (folder / "000000000000001-folder.json" / "inside").mkdir(parents=True)
    os.mkfifo(folder / "000000000000002-pipe.json")
    (folder / "000000000000003-zeroes.json").symlink_to("/dev/zero")
    (folder / "notes.txt").write_text("not for the driver")
    step(run)
    step(run)
    run = run_on(tmp_path)
    step(run)
    assert sorted(os.listdir(folder)) == ["000000000000001-folder.json", "notes.txt"]
    assert answers(root, "000000000000001-folder")[0].outcome == "refused"


class DiedError(Exception):
    pass


def die_at(run: LocalRun, where: str) -> None:
    """Run an epoch that dies before its commit, after it, or before its request is removed."""

    def die(*_: Any, **__: Any) -> Any:
        raise DiedError

    driver: Any = run.driver
    if where == "before the commit":
        driver.log.commit = die
    elif where == "before it is published":
        driver._publish = die
    elif where == "before it is told":
        driver.steering.tell = lambda events: die() if driver.last and driver.last.epoch else None
    else:
        driver.steering.requests.committed = die
    with pytest.raises(DiedError):
        step(run)


@pytest.mark.parametrize(
    "where",
    ["before the commit", "before it is published", "before it is told", "before it is removed"],
)
def test_a_crash_loses_no_request_and_repeats_none(tmp_path: Path, root: Place, where: str) -> None:
    run = run_on(tmp_path)
    step(run)
    asked = ask(root, FOUR)
    die_at(run, where)
    assert waits(root, asked)
    epoch = 1 if where == "before the commit" else 2
    again = run_on(tmp_path)  # as large as the user says: one instance
    assert again.next_epoch == epoch
    step(again)
    assert not waits(root, asked)
    (answer,) = answers(root, asked)
    assert (answer.epoch, answer.outcome, answer.after) == (1, "done", 4)
    assert size(again) == (4 if where == "before the commit" else 1), "it takes effect once"
    again.finish()
    assert again.table()["n"].sum() > 0


def test_an_epoch_that_is_tried_again_carries_the_request_once(tmp_path: Path, root: Place) -> None:
    run = run_on(tmp_path)
    step(run)
    asked = ask(root, FOUR)

    def fail(*_: Any) -> Any:
        raise DiedError

    for _ in range(2):
        with pytest.raises(DiedError):
            run.driver.run_epoch(1, fail)
        assert waits(root, asked)
    step(run)
    assert len(answers(root, asked)) == 1
    assert size(run) == 4


def test_a_driver_that_was_overtaken_removes_no_request(tmp_path: Path, root: Place) -> None:
    first = run_on(tmp_path)
    step(first)
    second = run_on(tmp_path)
    asked = ask(root, FOUR)

    def then(run: Callable[[], None]) -> Any:
        def execute(query: Any, plan: Any) -> Any:
            reports = run_stages(query, plan, frame_splits(query, batch(1)))
            run()
            return reports

        return execute

    def overtake() -> None:
        second.driver.steering.requests.seconds = 1e9  # it does not look
        second.driver.steering.requests._looked_at = second.driver.clock()
        step(second)

    with pytest.raises(ps.FencedError):
        first.driver.run_epoch(1, then(overtake))
    assert waits(root, asked)
    second.driver.steering.requests.seconds = 0.0
    step(second)
    assert size(second) == 4
    assert answers(root, asked)[0].epoch == 2


def test_the_folder_is_looked_at_once_a_second(tmp_path: Path, root: Place) -> None:
    run, now = run_on(tmp_path), [100.0]
    requests = run.driver.steering.requests
    requests.seconds, requests.clock = 1.0, lambda: now[0]
    step(run)
    asked = ask(root, FOUR)
    now[0] += 0.9
    step(run)
    assert waits(root, asked)
    now[0] += 0.2
    step(run)
    assert not waits(root, asked)
    ask(root, FOUR)
    now[0] -= 50.0  # a clock that was set back must not shut the door
    step(run)
    assert (root / "requests").list() == []


def test_a_balance_that_changes_nothing_is_refused_with_a_sentence_for_each(
    tmp_path: Path, root: Place
) -> None:
    run = run_on(tmp_path)
    step(run)
    asked = ask(root, Request(kind="rebalance"))
    step(run)
    (answer,) = answers(root, asked)
    assert answer.outcome == "refused"
    assert "aggregate-0 has one instance, so there is nothing to balance" in answer.sentence
