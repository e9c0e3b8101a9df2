"""The commands that look at and change a running query, on checkpoints made in this process."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console
from typer.testing import CliRunner

import penstock as ps
from penstock.cli.app import app
from penstock.cli.rescale import wait_for
from penstock.cli.run import describe_decision
from penstock.cli.top import render
from penstock.compiler import compile_query
from penstock.control.controller import Controller
from penstock.control.records import DecisionRecord
from penstock.files.place import Place, place_of
from penstock.observe import history
from penstock.observe.events import ExecutorEvent
from penstock.observe.log import EventLog, read_events
from penstock.observe.snapshot import Snapshot, read_snapshot, snapshot
from penstock.plan.statistics import EpochStatistics, HotKey, InstanceLoad, SubqueryLoad
from penstock.testing.runner import LocalRun

SCHEMA: dict[str, Any] = {"k": pl.String, "ts": pl.Datetime("us")}


def run_on(folder: Path, *, instances: int = 1, rules: ps.Elastic | None = None) -> LocalRun:
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    counted = stream.aggregate(by="k", window=ps.tumbling("1 minute"), n="count(*)")
    query = compile_query(counted.write_memory().sinks, buckets=16, instances={1: instances})
    run = LocalRun(query, folder)
    run.driver.steering.requests.seconds = run.driver.steering.events.flush_seconds = 0.0
    if rules is not None:
        run.driver.steering.control = Controller(rules)
    return run


def step(run: LocalRun) -> None:
    at = ps.at(f"2024-01-01 00:{run.next_epoch:02d}:00")
    frame = pl.DataFrame([{"k": f"k{i % 9}", "ts": at} for i in range(300)], schema=SCHEMA)
    run.epoch({0: [frame]})


def penstock(*arguments: object, code: int = 0) -> tuple[Any, str]:
    """Run a command; return its data and its messages."""
    done = CliRunner().invoke(app, [str(a) for a in arguments])
    assert done.exit_code == code, done.output
    data = json.loads(done.stdout) if "--json" in arguments else done.stdout
    return data, done.stderr


@pytest.fixture
def root(tmp_path: Path) -> Place:
    return place_of(tmp_path) / "penstock"


def test_no_checkpoint_is_said_with_a_hint(tmp_path: Path) -> None:
    for command in (["top", "--once"], ["rescale", "--rebalance"], ["replay"]):
        _, said = penstock(command[0], tmp_path / "none", *command[1:], code=1)
        assert "there is no checkpoint of Penstock here" in said
        assert "hint: give the folder" in said


def test_top_says_that_there_is_nothing_yet(tmp_path: Path) -> None:
    run_on(tmp_path)
    data, said = penstock("top", tmp_path, "--once", "--json", code=1)
    assert data["ok"] is False
    assert "has told nothing of itself yet" in said
    assert "hint:" in said


def test_top_of_a_run(tmp_path: Path) -> None:
    run = run_on(tmp_path, instances=2)
    step(run)
    run.driver.rescale(1, 3)
    step(run)
    data, _ = penstock("top", tmp_path, "--once", "--json")
    assert data["epoch"] == 1
    assert [len(s["instances"]) for s in data["subqueries"]] == [1, 3]
    assert data["subqueries"][1]["name"] == "aggregate-0"
    assert data["subqueries"][1]["hot_keys"][0]["key"].startswith("k")
    assert data["reconfigurations"][0]["after"] == 3
    assert data["decision"] is None
    assert data["checkpoint"] == str(tmp_path)
    text, _ = penstock("top", tmp_path, "--once")
    assert "subquery 1 (aggregate-0): 3 instances" in text
    assert "hottest keys: k" in text
    assert "gave aggregate-0 3 instances instead of 2" in " ".join(text.split())
    assert "backlog unknown" in text


def instance(number: int, busy: float, rows: int = 100) -> InstanceLoad:
    return InstanceLoad(
        instance=number,
        host=f"host-{number}",
        rows=rows,
        busy_seconds=busy,
        cpu_seconds=busy / 2,
        queue_seconds=0.25,
        memory_bytes=3_000_000,
        state_bytes=1_500,
        restored_bytes=0,
    )


def epoch(number: int, busy: tuple[float, ...], *, backlog: int | None = None) -> EpochStatistics:
    load = SubqueryLoad(
        subquery=1,
        name="aggregate-0",
        instances=tuple(instance(i, b) for i, b in enumerate(busy)),
        bucket_rows=(1, 6, 1, 2),
        hot_keys=(HotKey(key="ann\x1b[2J", bucket=1, rows=50),),
    )
    return EpochStatistics(
        epoch=number,
        at=1000.0 + number,
        seconds=0.5,
        interval_seconds=2.0,
        rows=400,
        written=40,
        latency_seconds=7.5,
        backlog=backlog,
        subqueries=(load,),
    )


def shown(now: Snapshot) -> str:
    out = StringIO()
    Console(file=out, width=140, force_terminal=False).print(render(now, "here", 1010.0))
    return out.getvalue()


def test_shares_and_rates_are_of_the_epochs_with_the_same_instances() -> None:
    before = [epoch(0, (2.0, 2.0)), epoch(1, (2.0,)), epoch(2, (1.0, 0.2))]
    now = snapshot([*before, epoch(3, (2.0, 0.6), backlog=12)])
    (subquery,) = now.subqueries
    assert [round(one.busy, 3) for one in subquery.instances] == [0.75, 0.2]
    assert subquery.instances[0].rows_per_second == 50.0
    assert now.rows_per_second == 200.0
    assert (subquery.hot_buckets[0].bucket, subquery.hot_buckets[0].share) == (1, 0.6)
    assert subquery.hot_keys[0].share == 0.25
    text = shown(now)
    assert "here   epoch 3, 7.0 s ago" in text
    assert "host-0  █████████···  75%" in text
    assert "backlog 12" in text
    assert "latency 7.5 s" in text
    assert "hottest buckets: 1 60.0%" in text
    assert "\x1b" not in text, "a key cannot command the terminal"


Decided = tuple[LocalRun, list[DecisionRecord]]


@pytest.fixture
def decided(tmp_path: Path, root: Place) -> Decided:
    """A run whose one instance is far too small for its load."""
    rules = ps.elastic(min=2, max=4, instance_cores=1e-6, cooldown_seconds=0.0, smoothing=1)
    run = run_on(tmp_path, rules=rules)
    for _ in range(6):
        step(run)
    found = [e for e in read_events(root, "decision") if isinstance(e, DecisionRecord)]
    assert any(record.proposed.plan for record in found)
    return run, found


def test_decisions_can_be_read_and_replayed(tmp_path: Path, root: Place, decided: Decided) -> None:
    frame = history.decisions(root)
    assert frame.schema == history.DECISIONS
    assert frame.height == len(decided[1])
    assert frame["proposed"].list.len().sum() > 0
    data, said = penstock("replay", tmp_path, "--json")
    assert data["ok"] is True
    assert len(data["decisions"]) == len(decided[1])
    assert all(one["same"] for one in data["decisions"])
    assert "0 different" in said
    newest, _ = penstock("replay", tmp_path, "--last", 1, "--json")
    assert [one["epoch"] for one in newest["decisions"]] == [decided[1][-1].epoch]
    text, _ = penstock("top", tmp_path, "--once")
    assert f"last decision: epoch {decided[1][-1].epoch}, policy streamcloud" in text


def test_a_decision_that_would_be_another_is_shown(
    tmp_path: Path, root: Place, decided: Decided
) -> None:
    record = next(record for record in decided[1] if record.proposed.plan)
    other = replace(record, epoch=99, proposed=replace(record.proposed, plan=()))
    EventLog(root).add(other)
    text, said = penstock("replay", tmp_path, code=1)
    assert "epoch 99: different" in text
    assert "1 different" in said
    data, _ = penstock("replay", tmp_path, "--last", 1, "--json", code=1)
    assert data["ok"] is False
    assert data["decisions"][0]["differences"]


def test_replay_without_decisions_says_so(tmp_path: Path) -> None:
    step(run_on(tmp_path))
    _, said = penstock("replay", tmp_path)
    assert "no decision was recorded" in said


def test_what_a_dry_run_would_do_is_told(decided: Decided) -> None:
    record = next(record for record in decided[1] if record.proposed.plan)
    done = describe_decision(record)
    assert done.startswith(f"streamcloud after epoch {record.epoch}:")
    trial = describe_decision(replace(record, rules=replace(record.rules, dry_run=True)))
    assert "  would re" in trial
    assert "would" not in done


def test_executors_that_came_and_went_are_shown(root: Place) -> None:
    log = EventLog(root)
    log.add(epoch(0, (1.0,)))
    log.add(ExecutorEvent(at=60.0, executor="7", host="h", what="lost"))
    found = read_snapshot(root)
    assert found is not None
    assert "00:01:00 executor 7 on h: lost" in shown(found)


def test_frames_have_their_columns_without_rows(root: Place) -> None:
    assert history.statistics(root).schema == history.STATISTICS
    assert history.decisions(root).schema == history.DECISIONS
    assert history.reconfigurations(root).schema == history.RECONFIGURATIONS


def test_statistics_as_a_frame(tmp_path: Path, root: Place) -> None:
    run = run_on(tmp_path, instances=2)
    step(run)
    step(run)
    frame = history.statistics(root).filter(name="aggregate-0")
    assert frame["epoch"].to_list() == [0, 0, 1, 1]
    assert frame["instance"].to_list() == [0, 1, 0, 1]
    assert frame["epoch_rows"].unique().to_list() == [300]
    assert frame.filter(epoch=0)["rows"].sum() == 9, "partials: one for each key"


def test_rescale_asks_and_says_when_it_happens(tmp_path: Path) -> None:
    run = run_on(tmp_path)
    step(run)
    data, said = penstock("rescale", tmp_path, "--subquery", 1, "--instances", 3, "--json")
    assert (data["ok"], data["outcome"], data["records"]) == (True, "waiting", [])
    assert "or after its next start if it is not running" in said
    step(run)
    assert run.driver.query.subqueries[1].instances == 3


def test_rescale_waits_for_the_outcome(tmp_path: Path) -> None:
    run = run_on(tmp_path, instances=2)
    step(run)
    stop = threading.Event()

    def go_on() -> None:
        while not stop.wait(0.02):
            step(run)

    worker = threading.Thread(target=go_on)
    worker.start()
    try:
        move = ["--subquery", "aggregate-0", "--move", "0-15:1"]
        data, said = penstock("rescale", tmp_path, *move, "--wait", 30, "--json")
        assert data["outcome"] == "done"
        assert data["records"][0]["kind"] == "move"
        assert "done: the user moved buckets of aggregate-0" in said
        data, said = penstock("rescale", tmp_path, "--rebalance", "--wait", 30, "--json")
        assert data["outcome"] == "done"
        beyond = ["--subquery", "1", "--instances", "17"]
        data, said = penstock("rescale", tmp_path, *beyond, "--wait", 30, "--json", code=1)
        assert (data["ok"], data["outcome"]) == (False, "refused")
        assert "refused: the request of the user was refused" in said
        assert "1 to 16" in said
    finally:
        stop.set()
        worker.join()
    assert set(run.driver.layout.maps[1].owners) == {0, 1}


def test_rescale_does_not_wait_for_ever(tmp_path: Path) -> None:
    step(run_on(tmp_path))
    options = ["--subquery", "1", "--instances", "2", "--wait", "0.1", "--json"]
    data, said = penstock("rescale", tmp_path, *options, code=1)
    assert (data["ok"], data["outcome"]) == (False, "waiting")
    assert "was not answered within 0.1 s" in said


def test_windows_that_are_still_being_finished_are_waited_for(tmp_path: Path, root: Place) -> None:
    run = run_on(tmp_path)
    run.driver.rescale(1, 2)
    step(run)
    (done,) = run.driver.steering.reconfigurations()
    log, looks = EventLog(root), []
    log.add(replace(done, id="9.0", request="mine", outcome="moving"))

    def sleep(_: float) -> None:
        looks.append(1)
        if len(looks) == 3:
            log.add(replace(done, id="9.0", request="mine", at=done.at + 2))

    assert wait_for(root, "mine", 0.0)[0]["outcome"] == "moving"
    assert wait_for(root, "mine", 60.0, sleep=sleep)[0]["outcome"] == "done"
    assert len(looks) == 3
    frame = history.reconfigurations(root).filter(request="mine")
    assert frame["outcome"].to_list() == ["done"], "the last word on each change"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "one of --instances, --rebalance, --move"),
        (["--instances", "2", "--rebalance"], "one of --instances, --rebalance, --move"),
        (["--instances", "2"], "subquery=''"),
        (["--subquery", "join-0", "--instances", "2"], "allowed: 0, 1, aggregate-0, sources"),
        (["--subquery", "1", "--move", "3"], "BUCKETS:INSTANCE"),
        (["--subquery", "1", "--move", "0-99999999:1"], "BUCKETS:INSTANCE"),
        (["--subquery", "1", "--instances", "2", "--protocol", "fast"], "auto, state, window"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(
    tmp_path: Path, root: Place, options: list[str], reason: str
) -> None:
    step(run_on(tmp_path))
    _, said = penstock("rescale", tmp_path, *options, code=1)
    assert reason in said
    assert (root / "requests").list() == []


QUERY = """
import penstock as ps
rows = [{"k": f"k{i % 9}", "ts": ps.at("2024-01-01")} for i in range(5000)]
counted = ps.from_rows(rows, time="ts").aggregate(
    by="k", window=ps.tumbling("1 minute"), n="count(*)"
)
query = counted.write_memory()
"""


def test_size(tmp_path: Path) -> None:
    file = tmp_path / "query.py"
    file.write_text(QUERY)
    data, _ = penstock("size", file, "--instances", 6, "--json")
    assert data["rows"] == 4000
    assert sum(s["instances"] for s in data["subqueries"]) == 6
    load = data["subqueries"][0]["load"]
    wanted, said = penstock("size", file, "--rate", 1e9, "--target", 0.5, "--json")
    assert wanted["subqueries"][0]["instances"] > 1e9 * load / 50
    text, said = penstock("size", file, "--instances", 6)
    assert "us a row" in text
    assert "reaches its limit first" in said
    penstock("size", file, "--instances", 6, "--rate", 10, code=1)
    file.write_text(QUERY.replace("5000", "50"))
    _, said = penstock("size", file, code=1)
    assert "no sample could be taken" in said
    assert "hint: put some files" in said


def test_the_options_of_run_are_checked_before_spark_starts(tmp_path: Path) -> None:
    file = tmp_path / "query.py"
    file.write_text(QUERY)
    for options, reason in (
        (["--elastic", "mx=3"], "unknown rule 'mx'"),
        (["--elastic", "min=0"], "min must be 1 or more"),
        (["--instances", "many"], "1 or more, or auto"),
        (["--dry-run"], "only with --elastic"),
    ):
        _, said = penstock("run", file, "--checkpoint", tmp_path / "c", *options, code=1)
        assert reason in said
