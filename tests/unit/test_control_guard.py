"""The guard: each reason for which it stops a change, and that it lets the others through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.control.decision import Decision
from penstock.control.elastic import Elastic
from penstock.control.guard import MOVE_SECONDS, Verdict, guard, move_seconds
from penstock.control.read_speed import READ_BYTES_PER_SECOND
from penstock.control.view import InstanceView, SubqueryView, View
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import Abilities, Cause, Change, ChangeKind

BEFORE = BucketMap.even(8, 2)
NAME = "aggregate-0"


def seen(**others: Any) -> SubqueryView:
    figures: dict[str, Any] = {
        "id": 1,
        "name": NAME,
        "owners": BEFORE,
        "instances": tuple(
            InstanceView(instance=i, host="a", utilisation=u) for i, u in enumerate((0.8, 0.4))
        ),
        "bucket_loads": (0.2,) * 4 + (0.1,) * 4,
        "bucket_bytes": (10,) * 8,
        "bucket_held_bytes": (10,) * 8,
    }
    return SubqueryView(**{**figures, **others})


def change(owners: BucketMap, kind: ChangeKind = "rescale") -> Change:
    return Change(
        subquery=1, owners=owners, kind=kind, cause=Cause("streamcloud"), reason="why not"
    )


MOVE = change(BEFORE.with_owners({0: 1}), "rebalance")
GROW, SHRINK = change(BEFORE.resize(3)), change(BEFORE.resize(1))


def judged(
    proposed: Change,
    rules: Elastic | None = None,
    *,
    subquery: SubqueryView | None = None,
    memory: dict[str, Any] | None = None,
    **others: Any,
) -> Verdict:
    figures: dict[str, Any] = {"at": 100.0, "most_slots": 10, "interval_seconds": 1.0}
    view = View(epoch=5, subqueries=(subquery or seen(),), **{**figures, **others})
    return guard(view, Decision(plan=(proposed,)), rules or Elastic(), memory or {})


@pytest.mark.parametrize("proposed", [MOVE, GROW, SHRINK], ids=["move", "grow", "shrink"])
def test_what_nothing_speaks_against_is_accepted(proposed: Change) -> None:
    verdict = judged(proposed)
    assert verdict.accepted == (proposed,)
    assert verdict.refused == ()
    assert verdict.memory == {"changed": {NAME: 100.0}}


@pytest.mark.parametrize(
    ("proposed", "rules", "others", "why"),
    [
        (GROW, Elastic(max=2), {}, "3 instances are more than 2"),
        (GROW, Elastic(), {"most_slots": 2}, "2 slots can be had for 1 core each"),
        (SHRINK, Elastic(min=2), {}, "1 instance would be fewer than the 2 that are asked for"),
        (GROW, Elastic(), {"recovering": True}, "the query is recovering"),
        (GROW, Elastic(dry_run=True), {}, "a dry run, so it was not done: why not"),
        (SHRINK, Elastic(memory_bytes=70), {}, "its state needs 2 instances of 70 bytes, not 1"),
        (
            change(BEFORE.with_owners({0: 1}), "rebalance"),
            Elastic(memory_bytes=45),
            {},
            "an instance would have 50 bytes of state, more than the 45 it can hold",
        ),
        (GROW, Elastic(), {"subquery": seen(fixed=True)}, "it always has 2 instances"),
        (change(BucketMap.even(4, 2)), Elastic(), {}, "it has 8 buckets, but the map has 4"),
    ],
    ids=[
        "most",
        "slots",
        "least",
        "recovering",
        "dry run",
        "memory",
        "memory of one",
        "fixed",
        "other buckets",
    ],
)
def test_each_reason_against_a_change(
    proposed: Change, rules: Elastic, others: dict[str, Any], why: str
) -> None:
    verdict = judged(proposed, rules, **others)
    assert verdict.accepted == ()
    (sentence,) = verdict.refused
    assert sentence.startswith(f"{NAME}: ")
    assert why in sentence
    assert NAME not in verdict.memory["changed"]


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"quotas": (1.0, 1.0)}, "quotas are not supported by this runtime"),
        ({"cores": (1.0, 1.0)}, "cores are not supported by this runtime"),
        ({"weights": (1.0, 1.0)}, "weights are not supported by this runtime"),
        ({"cores": (1.0, 1.0), "quotas": (1.0, 1.0)}, "cores and quotas are not supported by"),
    ],
)
def test_what_the_runtime_cannot_do_is_refused_as_a_whole(parts: dict[str, Any], told: str) -> None:
    asked = replace(MOVE, **parts)
    verdict = judged(asked)
    assert verdict.accepted == ()
    assert verdict.refused[0].startswith(f"{NAME}: {told}")
    able = judged(asked, abilities=Abilities(weights=True, cores=True, quotas=True))
    assert able.accepted == (asked,)


def test_what_moves_no_bucket_waits_for_no_cool_down_and_begins_none() -> None:
    quotas = replace(MOVE, owners=BEFORE, quotas=(1.0, 1.0))
    memory = {"changed": {NAME: 99.0}}
    verdict = judged(quotas, memory=memory, abilities=Abilities(quotas=True))
    assert verdict.accepted == (quotas,)
    assert verdict.memory == memory
    assert not judged(MOVE, memory=memory, abilities=Abilities(quotas=True)).accepted


def test_small_instances_share_a_slot() -> None:
    assert judged(GROW, Elastic(instance_cores=0.5), most_slots=2).accepted


def test_fewer_slots_than_there_are_instances_do_not_stop_a_balance() -> None:
    assert judged(MOVE, most_slots=1).accepted


def test_a_subquery_is_left_alone_for_the_cool_down() -> None:
    early = judged(GROW, Elastic(cooldown_seconds=5), memory={"changed": {NAME: 96.0}})
    assert early.accepted == ()
    assert early.refused == (
        f"{NAME}: it was started or changed 4.0 s ago and is left alone for 5.0 s",
    )
    assert early.memory == {"changed": {NAME: 96.0}}
    late = judged(GROW, Elastic(cooldown_seconds=5), memory={"changed": {NAME: 95.0}})
    assert late.accepted == (GROW,)
    other = judged(GROW, memory={"changed": {"join-0": 100.0}})
    assert other.accepted == (GROW,)


def test_a_move_must_gain_more_than_it_costs() -> None:
    """The worst utilisation falls from 0.8 to 0.6, which in 10 s is 2 s of work."""
    size = int((2.0 - MOVE_SECONDS) * READ_BYTES_PER_SECOND)
    dear = judged(MOVE, subquery=seen(bucket_bytes=(size + 1000, *[0] * 7)))
    assert dear.accepted == ()
    assert "moving buckets would cost 2.000 s and gain 2.000 s in the next 10 s" in dear.refused[0]
    assert judged(MOVE, subquery=seen(bucket_bytes=(size - 1000, *[0] * 7))).accepted
    longer = Elastic(cooldown_seconds=60)
    assert judged(MOVE, longer, subquery=seen(bucket_bytes=(size + 1000, *[0] * 7))).accepted


def test_a_move_that_gains_nothing_is_stopped() -> None:
    back = change(BEFORE.with_owners({4: 0}), "rebalance")
    verdict = judged(back, subquery=seen(bucket_bytes=()))
    assert verdict.accepted == ()
    assert "gain 0.000 s" in verdict.refused[0]


def test_another_size_is_not_weighed_against_its_cost() -> None:
    assert judged(GROW, subquery=seen(bucket_bytes=(10**12,) * 8)).accepted


def test_buckets_on_their_way_are_left_out() -> None:
    both = change(BEFORE.with_owners({0: 1, 1: 1}), "rebalance")
    verdict = judged(both, subquery=seen(moving=(0, 7)))
    (accepted,) = verdict.accepted
    assert accepted.owners == BEFORE.with_owners({1: 1})
    assert verdict.refused == (
        f"{NAME}: 1 bucket must finish an earlier move first; the others move",
    )


def test_a_change_of_buckets_on_their_way_alone_is_refused() -> None:
    verdict = judged(MOVE, subquery=seen(moving=(0,)))
    assert verdict.accepted == ()
    assert "no others would move" in verdict.refused[0]


def test_an_instance_does_not_go_while_its_buckets_are_on_their_way() -> None:
    verdict = judged(SHRINK, subquery=seen(moving=(7,)))
    assert verdict.accepted == ()
    assert "it has to wait" in verdict.refused[0]


def test_a_change_of_what_is_not_seen_is_refused() -> None:
    stray = Change(subquery=7, owners=BEFORE, kind="rescale", cause=Cause("wild"))
    assert judged(stray).refused == ("subquery 7: nothing is known about its load",)


def test_the_cost_of_a_move_grows_with_its_bytes() -> None:
    view = View(epoch=5, at=1.0, interval_seconds=1.0, subqueries=())
    assert move_seconds(view, seen(bucket_bytes=()), MOVE) == MOVE_SECONDS
    big = seen(bucket_bytes=(int(READ_BYTES_PER_SECOND), *[0] * 7))
    assert move_seconds(view, big, MOVE) == pytest.approx(MOVE_SECONDS + 1)
    fast = replace(view, read_bytes_per_second=10 * READ_BYTES_PER_SECOND)
    assert move_seconds(fast, big, MOVE) == pytest.approx(MOVE_SECONDS + 0.1)
