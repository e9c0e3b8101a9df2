"""The controller: what it remembers, what it tells, what a restart leaves; replays; by hand."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path

import polars as pl

from penstock.base.config import Config
from penstock.control.controller import Controller, Past
from penstock.control.elastic import Elastic, make_policy
from penstock.control.rebalance import rebalance_subquery
from penstock.control.records import DecisionRecord
from penstock.control.replay import differences, replay
from penstock.control.view import InstanceView, SubqueryView
from penstock.driver.driver import Driver
from penstock.driver.resources import FixedSlots
from penstock.observe.log import FOLDER, read_events
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import USER, Reconfiguration
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.testing.runner import frame_splits, run_stages
from tests.property.control_model import SCHEMA, Cluster, even, keyed_query


def test_the_policies_have_names() -> None:
    assert make_policy(Elastic(policy="fixed")).name == "fixed"
    assert make_policy(Elastic()).name == "streamcloud"


def test_the_fixed_policy_changes_nothing() -> None:
    cluster = Cluster(rules=Elastic(policy="fixed"), shares=even())
    for _ in range(10):
        cluster.run(5.0)
    assert cluster.changes == []
    assert len(cluster.records) == 1


def test_a_breach_becomes_one_change_with_a_record() -> None:
    cluster = Cluster(rules=Elastic(), shares=even())
    found = [cluster.run(2.7) for _ in range(10)]
    accepted = [record for record in found if record is not None and record.accepted]
    assert len(accepted) == 1
    assert accepted[0].epoch == 5  # as many seconds after the start: the cool-down
    assert accepted[0].accepted == accepted[0].proposed.plan
    assert cluster.size == 5


def test_a_burst_at_the_start_is_waited_for() -> None:
    """Cold processes and input that has piled up are no load to size a query by."""
    cluster = Cluster(rules=Elastic(), shares=even())
    found = [cluster.run(load) for load in (4.0, 3.0, 2.0, 0.6, 0.6, 0.6, 0.6, 0.6)]
    refused = [record.refused for record in found if record is not None and record.refused]
    assert "it was started or changed 1.0 s ago and is left alone for 5.0 s" in refused[0][0]
    assert cluster.changes == []


def test_the_same_is_not_told_again_whatever_the_numbers() -> None:
    cluster = Cluster(rules=Elastic(max=1), shares=even())
    for i in range(50):
        cluster.run(2.0 + i / 100)
    reasons = [record.proposed.reasons for record in cluster.records]
    assert len(reasons) == 2  # nothing yet, and that it cannot grow
    assert "the most it can have" in reasons[1][0]


def test_a_load_that_wobbles_tells_a_bounded_number_of_things() -> None:
    cluster = Cluster(rules=Elastic(max=1), shares=even())
    for i in range(400):
        cluster.run(2.0 if i // 5 % 2 else 0.1)
    assert len(cluster.records) <= 3


def test_dry_run_only_reports() -> None:
    cluster = Cluster(rules=Elastic(dry_run=True, cooldown_seconds=0.0), shares=even())
    for _ in range(10):
        cluster.run(2.7)
    assert cluster.changes == []
    told = [sentence for record in cluster.records for sentence in record.refused]
    assert len(told) == 1
    assert "a dry run, so it was not done: mean utilisation 2.70 is above 0.90" in told[0]


def test_loads_from_before_a_change_say_nothing_after_it() -> None:
    cluster = Cluster(rules=Elastic(cooldown_seconds=0.0), shares=even())
    for _ in range(2):
        cluster.run(2.7)
    assert cluster.size == 5
    record = cluster.run(2.7, restored=10)
    assert record is not None
    assert record.view.subqueries == ()  # its first epoch read state
    assert record.proposed.reasons == ("the loads are not known yet",)


def test_a_change_by_hand_begins_a_cool_down_too() -> None:
    cluster = Cluster(rules=Elastic(cooldown_seconds=10.0), shares=even(), instances=4)
    for _ in range(3):
        cluster.run(2.4)
    cluster.owners = cluster.owners.resize(2)
    refused = [record for _ in range(8) if (record := cluster.run(2.4)) and record.refused]
    assert "it was started or changed" in refused[0].refused[0]
    assert cluster.changes == []
    for _ in range(5):
        cluster.run(2.4)
    assert [change.owners.instances for change in cluster.changes] == [4]


def accepted_record() -> DecisionRecord:
    cluster = Cluster(rules=Elastic(), shares=even())
    for _ in range(6):
        cluster.run(2.7)
    return cluster.records[-1]


def test_memories_survive_a_restart() -> None:
    record = accepted_record()
    again = Controller(Elastic(), [record])
    assert again.guard_memory == {"changed": {"aggregate-0": record.at}}
    assert again.memory == record.proposed.memory
    assert Controller(Elastic(policy="fixed"), [record]).memory == {}


def changed_at(at: float, epoch: int) -> Reconfiguration:
    return Reconfiguration(
        id=f"{epoch}.0",
        epoch=epoch,
        at=at,
        subquery=1,
        name="aggregate-0",
        kind="rescale",
        cause=USER,
        protocol="state",
        before=1,
        after=2,
        buckets=8,
        bytes=0,
        seconds=0.1,
        outcome="done",
        sentence="",
    )


def test_the_cool_down_counts_from_the_last_change_of_any_cause() -> None:
    record = accepted_record()
    again = Controller(Elastic(), [record, changed_at(record.at + 7, 9)])
    assert again.guard_memory == {"changed": {"aggregate-0": record.at + 7}}


def test_loads_survive_a_restart_unless_the_map_is_another() -> None:
    cluster = Cluster(rules=Elastic(), shares=even(), instances=2)
    for _ in range(3):
        cluster.run(1.2)
    past: list[Past] = list(cluster.controller._epochs)
    cases: list[tuple[list[Past], int]] = [
        ([], 1),
        (past, 3),
        ([*past, changed_at(1002.0, 2)], 2),
    ]
    for history, epochs in cases:
        cluster.epoch = 2
        cluster.controller = Controller(Elastic(), history)
        record = cluster.run(1.2)
        assert record is not None
        assert [s.epochs for s in record.view.subqueries] == [epochs]
    cluster.epoch, cluster.owners = 2, BucketMap.even(256, 4)
    cluster.controller = Controller(Elastic(), past)
    record = cluster.run(2.4)
    assert record is not None
    assert record.view.subqueries[0].epochs == 1


def test_a_replay_tells_what_would_be_different() -> None:
    record = accepted_record()
    assert differences(record) == ()
    assert replay(record).verdict.accepted == record.accepted
    (change,) = record.accepted
    other = replace(change, owners=change.owners.resize(7))
    assert differences(replace(record, accepted=(other,))) == (
        "subquery 1: 7 instances were accepted, today it is 5",
    )
    moved = replace(change, owners=change.owners.with_owners({0: 4, 1: 4}))
    assert differences(replace(record, accepted=(moved,))) == (
        "subquery 1: 2 buckets would have another owner than was accepted",
    )
    assert differences(replace(record, accepted=())) == (
        "subquery 1: a change was not accepted, and today it is so",
    )
    calm = replace(record, memory={})
    assert "subquery 1: a change was proposed, and today it is not so" in differences(calm)


def uneven(*used: float) -> SubqueryView:
    owners = BucketMap.even(16, len(used))
    return SubqueryView(
        id=1,
        name="aggregate-0",
        owners=owners,
        instances=tuple(
            InstanceView(instance=i, host="a", utilisation=u) for i, u in enumerate(used)
        ),
        bucket_loads=tuple(used[o] / owners.owners.count(o) for o in owners.owners),
    )


def test_a_user_may_balance_below_the_threshold() -> None:
    change, sentence = rebalance_subquery(uneven(0.14, 0.1), protocol="state")
    assert change is not None
    assert (change.cause, change.kind, change.protocol) == ("user", "rebalance", "state")
    assert "1 buckets move" in sentence


def test_an_instance_without_rows_is_given_some_however_busy_it_looks() -> None:
    alone = replace(
        uneven(0.9, 0.001),
        owners=BucketMap(owners=(1,) * 16, instances=2),
        bucket_loads=(0.001 / 16,) * 16,
    )
    change, sentence = rebalance_subquery(alone)
    assert change is not None, sentence
    assert change.owners.owners.count(0) == 8


def test_why_a_user_cannot_balance() -> None:
    assert rebalance_subquery(uneven(0.5)) == (
        None,
        "aggregate-0 has one instance, so there is nothing to balance",
    )
    assert "no move of a bucket" in rebalance_subquery(uneven(0.5, 0.5))[1]
    assert "not known yet" in rebalance_subquery(replace(uneven(0.5, 0.1), bucket_loads=()))[1]
    assert "one by one" in rebalance_subquery(replace(uneven(0.5, 0.1), movable=False))[1]


class Run:
    """A driver with a clock of its own, under rules by which any load is too much."""

    def __init__(self, folder: Path) -> None:
        self.now, self.folder = 1000.0, folder
        self.driver = self.opened()

    def opened(self) -> Driver:
        return Driver(
            keyed_query(64),
            self.folder,
            Config(fsync=False),
            clock=lambda: self.now,
            keep_sizes=True,
            elastic=Elastic(max=3, instance_cores=1e-7, cooldown_seconds=1.0),
            resources=FixedSlots(2),
        )

    def epoch(self) -> None:
        self.now += 1.0
        number = self.driver.last.epoch + 1 if self.driver.last else 0
        at = dt.datetime(2024, 1, 1) + dt.timedelta(minutes=number)
        rows = pl.DataFrame({"k": [str(i) for i in range(100)], "ts": [at] * 100}, schema=SCHEMA)

        def execute(query: CompiledQuery, plan: EpochPlan) -> list[TaskReport]:
            return run_stages(query, plan, frame_splits(query, {0: [rows]}))

        self.driver.run_epoch(number, execute)

    def restart(self) -> None:
        self.driver.close()
        self.driver = self.opened()


def test_the_driver_grows_a_query_and_a_restart_remembers(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for _ in range(5):
        run.epoch()
    assert [s.instances for s in run.driver.query.subqueries] == [3, 3]
    records = read_events(run.driver.root, "decision")
    assert all(isinstance(r, DecisionRecord) and differences(r) == () for r in records)
    assert {r.cause for r in run.driver.steering.reconfigurations()} == {"streamcloud"}
    run.restart()
    assert [s.instances for s in run.driver.query.subqueries] == [3, 3]
    assert run.driver.steering.control is not None
    changed = run.driver.steering.control.guard_memory["changed"]
    assert set(changed) == {"sources", "aggregate-0"}
    assert all(1000.0 < at <= run.now for at in changed.values())


def test_a_damaged_past_does_not_stop_a_query(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for _ in range(5):
        run.epoch()
    run.driver.close()
    files = sorted((tmp_path / "penstock" / FOLDER / "decision").iterdir())
    for file in files:
        file.write_bytes(b"damaged")
    run.driver = run.opened()
    run.epoch()
    assert run.driver.last is not None
    assert run.driver.last.epoch == 5


def test_what_a_user_asked_for_is_not_overruled_by_an_older_view(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.epoch()
    run.epoch()
    run.driver.rescale(1, 2)
    before = run.driver.layout
    wanted = before.maps[1].resize(3)
    cluster_change = accepted_record().accepted[0]
    assert not before.propose(replace(cluster_change, owners=wanted))
    run.epoch()
    assert run.driver.layout.maps[1].instances == 2
