"""The guard across subqueries: slots, hosts, and moves that are too many for one epoch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.control.beside import BEARABLE_SECONDS, reading_seconds, sum_held_on_hosts
from penstock.control.bounds import Bounds, room_for
from penstock.control.decision import Decision
from penstock.control.elastic import Elastic, make_policy
from penstock.control.guard import Verdict, guard
from penstock.control.view import InstanceView, SubqueryView, View
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import Cause, Change, ChangeKind
from penstock.plan.grid import Grid

SPEED = 1e6
BUCKETS = 8


def seen(number: int, *hosts: str, **others: Any) -> SubqueryView:
    """Return a subquery with an instance on each of some hosts."""
    figures: dict[str, Any] = {
        "id": number,
        "name": f"aggregate-{number}",
        "owners": BucketMap.even(BUCKETS, len(hosts)),
        "instances": tuple(
            InstanceView(instance=i, host=host, utilisation=0.5 if i else 0.9)
            for i, host in enumerate(hosts)
        ),
        "bucket_loads": (0.1,) * BUCKETS,
    }
    return SubqueryView(**{**figures, **others})


def sized(subquery: SubqueryView, instances: int) -> Change:
    return change(subquery, subquery.owners.resize(instances))


def change(subquery: SubqueryView, owners: BucketMap, kind: ChangeKind = "rescale") -> Change:
    return Change(subquery=subquery.id, owners=owners, kind=kind, cause=Cause("wild"))


def view_of(*subqueries: SubqueryView, **others: Any) -> View:
    figures: dict[str, Any] = {"at": 100.0, "most_slots": 6, "interval_seconds": 1.0}
    figures["read_bytes_per_second"] = SPEED
    return View(epoch=5, subqueries=subqueries, **{**figures, **others})


def judged(view: View, *plan: Change, **rules: Any) -> Verdict:
    return guard(view, Decision(plan=plan), Bounds(**rules), {})


def test_subqueries_that_run_at_the_same_time_share_the_slots() -> None:
    one, two = seen(1, "a", "a"), seen(2, "a", "a")
    verdict = judged(view_of(one, two), sized(one, 4), sized(two, 3))
    assert [c.subquery for c in verdict.accepted] == [2]  # the smaller step comes first
    assert verdict.refused == (
        "aggregate-1: 4 instances beside 3 of subqueries that run at the same time are more than "
        "the 6 tasks that there are slots for",
    )
    assert judged(view_of(one, two), sized(one, 4)).accepted
    assert len(judged(view_of(one, two), sized(one, 3), sized(two, 3)).accepted) == 2
    small = judged(view_of(one, two), sized(one, 4), sized(two, 3), instance_cores=0.5)
    assert len(small.accepted) == 2


def test_stages_take_turns_so_each_can_have_all_slots() -> None:
    one, two = seen(1, "a", "a"), seen(2, "a", "a", stage=1)
    assert len(judged(view_of(one, two), sized(one, 6), sized(two, 6)).accepted) == 2


def test_slots_that_one_gives_back_are_there_for_another() -> None:
    one, two = seen(1, "a", "a"), seen(2, "a", "a", "a", "a")
    alone = judged(view_of(one, two), sized(one, 4))
    assert alone.accepted == ()
    both = judged(view_of(one, two), sized(one, 4), sized(two, 2))
    assert [c.subquery for c in both.accepted] == [1, 2]
    refused = judged(view_of(one, two), sized(one, 4), sized(two, 2), min=3)
    assert refused.accepted == ()
    assert "fewer than the 3" in refused.refused[1]


def test_what_is_asked_for_or_needed_is_not_refused_for_slots() -> None:
    one, two = seen(1, "a"), seen(2, "a", "a", "a", "a", "a", "a")
    assert judged(view_of(one, two), sized(one, 3), min=3).accepted
    assert not judged(view_of(one, two), sized(one, 3)).accepted
    full = seen(1, "a", bucket_held_bytes=(100,) * BUCKETS)
    assert judged(view_of(full, two), sized(full, 3), memory_bytes=300).accepted


def test_a_policy_knows_how_much_room_there_is() -> None:
    one, two = seen(1, "a", "a"), seen(2, "a", "a", "a")
    view = view_of(one, two)
    assert [room_for(view, one, Bounds()), room_for(view, two, Bounds())] == [3, 4]
    assert room_for(view, one, Bounds(), taken=6) == 2
    assert room_for(view, one, Bounds(min=5)) == 5
    assert room_for(view, one, Bounds(max=2)) == 2
    busy = replace(
        one,
        instances=tuple(InstanceView(instance=i, host="a", utilisation=2.0) for i in range(2)),
    )
    memory = {"aggregate-1": {"epoch": 4, "breach": "above", "views": 5, "uneven": 0}}
    (grown,) = make_policy(Elastic()).decide(view_of(busy, two), memory).plan
    assert grown.instances == 3


def test_a_plan_changes_a_subquery_once() -> None:
    one = seen(1, "a", "a")
    verdict = judged(view_of(one), sized(one, 3), sized(one, 4))
    assert [c.instances for c in verdict.accepted] == [3]
    assert verdict.refused == ("aggregate-1: a plan changes a subquery once",)
    shrinking = judged(view_of(one), sized(one, 3), sized(one, 1))
    assert [c.instances for c in shrinking.accepted] == [3]


def test_what_is_told_has_the_order_of_the_plan() -> None:
    one, two = seen(1, "a", "a", fixed=True), seen(2, "a", "a", fixed=True)
    verdict = judged(view_of(one, two), sized(one, 3), sized(two, 1))
    assert [text.split(":")[0] for text in verdict.refused] == ["aggregate-1", "aggregate-2"]


BYTES = (10,) * BUCKETS


def test_instances_of_all_subqueries_share_the_memory_of_their_host() -> None:
    one, two = (seen(n, "a", "b", bucket_held_bytes=BYTES, stage=n) for n in (1, 2))
    view = view_of(one, two, hosts={"a": 1, "b": 1})
    move = change(one, one.owners.with_owners({0: 1}), "rebalance")
    verdict = judged(view, move, memory_bytes=85)
    assert verdict.refused == (
        "aggregate-1: host b would have 90 bytes of state of all subqueries, more than the 85 that "
        "1 slot can hold",
    )
    assert judged(view, move, memory_bytes=90).accepted
    assert judged(view_of(one, two), move, memory_bytes=85).accepted, "all is one host"
    assert judged(view_of(one, two, hosts={"a": 1, "b": 2}), move, memory_bytes=85).accepted
    assert judged(view, move).accepted, "memory has no bound"


def test_a_second_change_counts_what_the_first_has_put_on_a_host() -> None:
    one, two = (seen(n, "a", "b", bucket_held_bytes=BYTES, stage=n) for n in (1, 2))
    view = view_of(one, two, hosts={"a": 1, "b": 1})
    moves = [change(s, s.owners.with_owners({0: 1}), "rebalance") for s in (one, two)]
    verdict = judged(view, *moves, memory_bytes=95)
    assert [c.subquery for c in verdict.accepted] == [1]
    assert "host b would have 100 bytes" in verdict.refused[0]
    back = change(two, two.owners.with_owners({4: 0}), "rebalance")
    swapped = guard(view, Decision(plan=(moves[0], back)), Bounds(memory_bytes=95), {})
    assert moves[0] in swapped.accepted


def test_what_hosts_hold() -> None:
    one = seen(1, "a", "b", bucket_held_bytes=(1, 2, 3, 4, 5, 6, 7, 8))
    two = replace(
        seen(2, "b", "gone"),
        instances=tuple(
            InstanceView(instance=i, host=host, utilisation=0.1, memory_bytes=100)
            for i, host in enumerate(("b", "gone"))
        ),
    )
    view = view_of(one, two, hosts={"a": 1, "b": 1, "c": 1})
    assert sum_held_on_hosts(view, {}) == {"a": 10, "b": 126, "c": 0}
    grown = change(one, one.owners.with_owners({0: 1, 1: 1}))
    assert sum_held_on_hosts(view, {1: grown}) == {"a": 7, "b": 129, "c": 0}


def test_moves_that_an_epoch_cannot_bear_together_wait() -> None:
    size = int(0.6 * SPEED)
    both = [seen(n, "a", "a", bucket_bytes=(size, *[0] * 7), stage=n) for n in (1, 2)]
    plan = [change(s, BucketMap(owners=(2, 0, 0, 0, 1, 1, 1, 1), instances=3)) for s in both]
    verdict = judged(view_of(*both, interval_seconds=0.5), *plan)
    assert [c.subquery for c in verdict.accepted] == [1]
    assert verdict.refused == (
        "aggregate-2: its new owners would read state for 0.6 s, and those of other subqueries for "
        f"0.6 s, more than the {BEARABLE_SECONDS:.1f} s that an epoch can bear; it has to wait",
    )
    assert len(judged(view_of(*both, interval_seconds=2.0), *plan).accepted) == 2
    fast = view_of(*both, read_bytes_per_second=2 * SPEED)
    assert len(judged(fast, *plan).accepted) == 2
    kept = [plan[0], replace(plan[1], protocol="window")]
    assert len(judged(view_of(*both), *kept).accepted) == 2, "old owners finish their windows"


def test_one_move_is_borne_however_long() -> None:
    one = seen(1, "a", "a", bucket_bytes=(int(1e12),) * BUCKETS)
    two = seen(2, "a", "a", stage=2)
    assert len(judged(view_of(one, two), sized(one, 3), sized(two, 3)).accepted) == 2


def test_how_long_state_is_read_is_that_of_the_slowest_instance() -> None:
    one = seen(1, "a", "a", bucket_bytes=tuple(int(SPEED) * n for n in range(8)))
    view = view_of(one)
    moved = change(one, BucketMap(owners=(2, 2, 3, 0, 1, 1, 1, 3), instances=4))
    assert reading_seconds(view, one, moved) == 2 + 7
    assert reading_seconds(view, one, change(one, one.owners)) == 0.0
    grid = seen(
        2,
        "a",
        owners=Grid.of(4).owners(1),
        bucket_bytes=(int(SPEED),) * 4,
        ways=("row", "column"),
        movable=False,
    )
    assert reading_seconds(view, grid, change(grid, Grid.of(4).owners(2))) == 3.0
    assert reading_seconds(view, grid, change(grid, grid.owners)) == 0.0


def test_a_host_that_is_too_full_already_may_move_what_it_has() -> None:
    one, two = (seen(n, "a", "a", bucket_bytes=BYTES, stage=n) for n in (1, 2))
    view = view_of(one, two, hosts={"a": 1})
    assert judged(view, change(one, one.owners.with_owners({0: 1})), memory_bytes=60).accepted
