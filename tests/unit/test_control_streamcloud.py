"""StreamCloud's manager: every threshold, every bound, and what it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.control.decision import Decision
from penstock.control.elastic import Elastic, elastic, make_policy
from penstock.control.policies.streamcloud import (
    PATIENCE,
    Provisioning,
    StreamCloudParameters,
    choose_larger,
    choose_smaller,
)
from penstock.control.view import InstanceView, SubqueryView, View
from penstock.plan.buckets import BucketMap
from penstock.plan.grid import Grid

NAME = "aggregate-0"


def subquery(*used: float, loads: tuple[float, ...] | None = None, **others: Any) -> SubqueryView:
    buckets = 16
    owners = BucketMap.even(buckets, len(used))
    shares = [used[owner] / owners.owners.count(owner) for owner in owners.owners]
    figures: dict[str, Any] = {
        "id": 1,
        "name": NAME,
        "owners": owners,
        "instances": tuple(
            InstanceView(instance=i, host="a", utilisation=u) for i, u in enumerate(used)
        ),
        "bucket_loads": tuple(shares) if loads is None else loads,
        "epochs": 3,
    }
    return SubqueryView(**{**figures, **others})


def view(*found: SubqueryView, **others: Any) -> View:
    figures: dict[str, Any] = {"most_slots": 100}
    return View(epoch=9, at=1009.0, interval_seconds=1.0, subqueries=found, **{**figures, **others})


def ripe(*breaches: str, uneven: int = PATIENCE - 1) -> dict[str, Any]:
    breach = breaches[0] if breaches else ""
    return {NAME: {"epoch": 8, "breach": breach, "views": PATIENCE - 1, "uneven": uneven}}


def decide(rules: Elastic, seen: View, memory: dict[str, Any]) -> Decision:
    return make_policy(rules).decide(seen, memory)


def test_above_the_upper_threshold_it_grows_to_the_target() -> None:
    decision = decide(Elastic(), view(subquery(*[0.93] * 4)), ripe("above"))
    (change,) = decision.plan
    assert (change.owners.instances, change.kind, change.cause) == (7, "rescale", "streamcloud")
    assert decision.reasons == (
        "aggregate-0: mean utilisation 0.93 is above 0.90; 4 instances -> 7 for the target of 0.60",
    )


def test_individual_provisioning_goes_by_one() -> None:
    rules = elastic(provisioning="individual")
    (grown,) = decide(rules, view(subquery(*[0.93] * 4)), ripe("above")).plan
    (shrunk,) = decide(rules, view(subquery(*[0.1] * 4)), ripe("below")).plan
    assert (grown.owners.instances, shrunk.owners.instances) == (5, 3)


def test_below_the_lower_threshold_it_shrinks_to_the_target() -> None:
    decision = decide(Elastic(), view(subquery(*[0.3] * 4)), ripe("below"))
    (change,) = decision.plan
    assert change.owners.instances == 2
    assert decision.reasons == (
        "aggregate-0: mean utilisation 0.30 is below 0.50; 4 instances -> 2, which leaves 0.60",
    )


@pytest.mark.parametrize("used", [0.5, 0.6, 0.9])
def test_between_the_thresholds_nothing_is_done(used: float) -> None:
    decision = decide(Elastic(), view(subquery(used, used)), ripe("above"))
    assert (decision.plan, decision.reasons) == ((), ("no threshold is breached",))


def test_a_breach_has_to_last() -> None:
    seen = view(subquery(0.95, 0.95))
    first = decide(Elastic(), seen, {})
    assert first.plan == ()
    second = decide(Elastic(), replace(seen, epoch=10), dict(first.memory))
    assert second.plan
    gap = decide(Elastic(), replace(seen, epoch=12), dict(first.memory))
    assert gap.plan == ()
    other = decide(Elastic(), replace(seen, epoch=10, subqueries=(subquery(0.1, 0.1),)), {})
    assert other.plan == ()


def test_a_recovery_counts_for_nothing() -> None:
    decision = decide(Elastic(), view(subquery(0.95, 0.95), recovering=True), ripe("above"))
    assert decision.plan == ()
    assert decision.memory[NAME]["views"] == 0
    assert decision.reasons == ("the loads are not known yet",)


@pytest.mark.parametrize("provisioning", ["load-aware", "individual"])
@pytest.mark.parametrize("now", range(1, 30))
def test_a_step_is_not_undone_by_the_next(provisioning: Provisioning, now: int) -> None:
    rules = StreamCloudParameters(provisioning=provisioning)
    for used in (0.901, 0.95, 1.0, 1.5, 3.0):
        size = choose_larger(now, used, rules)
        after = now * used / size
        assert size > now
        assert after >= rules.lower or size == now + 1
        assert after > rules.lower or choose_smaller(size, after, rules) == size
    for used in (0.0, 0.1, 0.3, 0.45, 0.499):
        size = choose_smaller(now, used, rules)
        assert 1 <= size <= now
        assert now * used / size <= rules.target + 1e-9 or size == now


def test_the_users_bounds_are_kept() -> None:
    most = decide(Elastic(max=5), view(subquery(*[2.0] * 4)), ripe("above"))
    assert most.plan[0].owners.instances == 5
    full = decide(Elastic(max=4), view(subquery(*[2.0] * 4)), ripe("above"))
    assert full.plan == ()
    assert "4 instances, the most it can have" in full.reasons[0]
    least = decide(Elastic(min=3), view(subquery(*[0.0] * 4)), ripe("below"))
    assert least.plan[0].owners.instances == 3


def test_slots_bound_the_size() -> None:
    seen = view(subquery(*[2.0] * 2), most_slots=3)
    assert decide(Elastic(), seen, ripe("above")).plan[0].owners.instances == 3
    small = Elastic(instance_cores=0.5)
    assert decide(small, seen, ripe("above")).plan[0].owners.instances == 6


@pytest.mark.parametrize(("now", "wanted"), [(1, 3), (2, 3), (9, 8)])
def test_a_size_out_of_bounds_is_brought_back_at_once(now: int, wanted: int) -> None:
    decision = decide(Elastic(min=3, max=8), view(subquery(*[0.6] * now)), {})
    assert decision.plan[0].owners.instances == wanted
    assert "3 to 8 instances are asked for" in decision.reasons[0]


def test_memory_sets_a_lower_bound() -> None:
    rules = Elastic(memory_bytes=100)
    big = {"bucket_bytes": (1,) * 16, "bucket_held_bytes": (20,) * 16}
    grown = decide(rules, view(subquery(0.6, **big)), {})
    assert grown.plan[0].owners.instances == 4
    assert "its state needs 4 instances of 100 bytes" in grown.reasons[0]
    shrunk = decide(rules, view(subquery(*[0.0] * 6, **big)), ripe("below"))
    assert shrunk.plan[0].owners.instances == 4


def test_an_uneven_load_moves_buckets() -> None:
    decision = decide(Elastic(), view(subquery(0.9, 0.4)), ripe())
    (change,) = decision.plan
    assert (change.kind, change.owners.instances) == ("rebalance", 2)
    assert decision.reasons == (
        "aggregate-0: deviation 0.25 of the utilisation is above 0.10; "
        "2 buckets move and leave 0.02",
    )


@pytest.mark.parametrize(
    ("used", "others", "rules"),
    [
        ((0.7, 0.6), {}, Elastic()),  # deviation 0.05
        ((0.9, 0.4), {"epochs": 2}, Elastic()),
        ((0.9, 0.4), {"movable": False}, Elastic()),
        ((0.9, 0.4), {}, elastic(imbalance=0.3)),
    ],
    ids=["even enough", "too few epochs", "not movable", "allowed"],
)
def test_buckets_stay(used: tuple[float, ...], others: dict[str, Any], rules: Elastic) -> None:
    assert decide(rules, view(subquery(*used, **others)), ripe()).plan == ()


def test_the_improvement_must_be_large_enough() -> None:
    coarse = (0.9, *[0.0] * 7, 0.3, 0.1, *[0.0] * 6)
    seen = view(subquery(0.9, 0.4, loads=coarse))
    decision = decide(Elastic(), seen, ripe())
    assert decision.plan == ()
    assert "bucket 0 alone takes 0.90 of an instance" in decision.reasons[0]
    demanding = elastic(improvement=0.99)
    assert decide(demanding, view(subquery(0.9, 0.4)), ripe()).plan == ()


def test_the_bucket_that_brings_two_instances_closest_moves() -> None:
    loads = (0.5, 0.25, 0.15, *[0.0] * 5, 0.4, *[0.0] * 7)
    (change,) = decide(Elastic(), view(subquery(0.9, 0.4, loads=loads)), ripe()).plan
    assert change.owners.owners[:3] == (0, 1, 0)


def test_buckets_on_their_way_stay() -> None:
    loads = (0.5, 0.25, 0.15, *[0.0] * 5, 0.4, *[0.0] * 7)
    seen = view(subquery(0.9, 0.4, loads=loads, moving=(1,)))
    (change,) = decide(Elastic(), seen, ripe()).plan
    assert change.owners.owners[:3] == (0, 0, 1)
    gone = view(subquery(*[0.1] * 4, moving=(15,)))
    decision = decide(Elastic(), gone, ripe("below"))
    assert decision.plan == ()
    assert "still has buckets on their way" in decision.reasons[0]


def test_a_new_size_and_a_balance_are_one_change() -> None:
    loads = (*[0.2] * 8, *[0.1] * 4, *[0.0] * 4)
    (change,) = decide(
        Elastic(), view(subquery(1.6, 0.4, loads=loads)), ripe("above", uneven=5)
    ).plan
    used = [0.0] * change.owners.instances
    for bucket, owner in enumerate(change.owners.owners):
        used[owner] += loads[bucket]
    assert change.owners.instances == 4
    assert max(used) - min(used) <= 0.2 + 1e-9


def test_a_subquery_without_buckets_is_sized_likewise() -> None:
    seen = view(subquery(0.95, 0.95, movable=False, stateful=False, loads=()))
    (change,) = decide(Elastic(), seen, ripe("above")).plan
    assert change.owners == BucketMap.even(16, 3)


def test_a_grid_is_sized_as_a_grid() -> None:
    owners = Grid.of(16).owners(2)
    seen = view(
        subquery(0.95, 0.95, movable=False, ways=("row", "column"), loads=(), owners=owners)
    )
    (change,) = decide(elastic(lower=0.4), seen, ripe("above")).plan
    assert change.owners == Grid.of(16).owners(4)


def test_a_subquery_of_a_fixed_size_is_left_alone() -> None:
    decision = decide(Elastic(min=3), view(subquery(0.99, fixed=True)), ripe("above"))
    assert decision.plan == ()


def test_stages_that_take_turns_press_the_busiest_to_grow() -> None:
    other = subquery(0.45, id=0, name="sources", movable=False, loads=())
    seen = view(other, subquery(0.5), busy_share=0.95)
    decision = decide(Elastic(), seen, ripe("pressure"))
    (change,) = decision.plan
    assert (change.subquery, change.owners.instances) == (1, 2)
    assert "together are busy for 0.95 of the time" in decision.reasons[0]
    after = view(other, subquery(0.25, 0.25), busy_share=0.7)
    assert decide(Elastic(), after, ripe("below")).plan == ()  # 1 instance would press again


def test_the_protocol_is_the_users() -> None:
    rules = Elastic(protocol="window")
    (change,) = decide(rules, view(subquery(0.95, 0.95)), ripe("above")).plan
    assert change.protocol == "window"
