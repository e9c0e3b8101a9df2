"""Laws of the control loop: of every view, and of whole runs in a model of a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from penstock.base.hashing import bucket_of
from penstock.control.beside import BEARABLE_SECONDS, reading_seconds, sum_held_on_hosts
from penstock.control.bounds import count_needed_for_memory, most_instances, task_slots
from penstock.control.decision import Decision
from penstock.control.elastic import Elastic, elastic, make_policy
from penstock.control.guard import guard
from penstock.control.placing import Placed, balance, expect_utilisations, resize
from penstock.control.policies.streamcloud import (
    PATIENCE,
    PROVISIONING,
    Provisioning,
    StreamCloudParameters,
)
from penstock.control.rebalance import rebalance_subquery
from penstock.control.records import DecisionRecord
from penstock.control.replay import differences, replay
from penstock.control.view import InstanceView, SubqueryView, View
from penstock.observe.events import decode, encode
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import Abilities, Cause, Change
from tests.property.control_model import Cluster, even

BUCKETS = 32
IMBALANCE = StreamCloudParameters().imbalance


@st.composite
def rules_of(draw: st.DrawFn) -> Elastic:
    least = draw(st.integers(1, 4))
    return elastic(
        min=least,
        max=draw(st.integers(least, 12)),
        provisioning=draw(st.sampled_from(["load-aware", "individual"])),
        imbalance=draw(st.sampled_from([0.02, 0.1, 0.3])),
        improvement=draw(st.sampled_from([0.0, 0.01, 0.2])),
        cooldown_seconds=draw(st.sampled_from([0.0, 5.0])),
        instance_cores=draw(st.sampled_from([0.1, 0.5, 1.0])),
        memory_bytes=draw(st.sampled_from([0, 100, 5000])),
        smoothing=draw(st.integers(1, 3)),
        dry_run=draw(st.booleans()),
    )


@st.composite
def subqueries(draw: st.DrawFn, number: int = 1) -> SubqueryView:
    count = draw(st.integers(1, 8))
    owner = st.integers(0, count - 1)
    owners = draw(st.lists(owner, min_size=BUCKETS, max_size=BUCKETS))
    load = st.one_of(st.just(0.0), st.floats(0.0, 0.2), st.floats(0.0, 1.5))
    loads = np.array(draw(st.lists(load, min_size=BUCKETS, max_size=BUCKETS))).round(9)
    overhead = draw(st.sampled_from([0.0, 0.05]))
    used = np.bincount(owners, weights=loads, minlength=count) + overhead
    kind = draw(st.sampled_from(["movable", "movable", "even", "fixed"]))
    moving = st.lists(st.integers(0, BUCKETS - 1), max_size=4, unique=True)
    sizes = st.lists(st.integers(0, 100), min_size=BUCKETS, max_size=BUCKETS).map(tuple)
    return SubqueryView(
        id=number,
        name=f"aggregate-{number}",
        owners=BucketMap(owners=tuple(owners), instances=count),
        instances=tuple(
            InstanceView(instance=i, host="ab"[i % 2], utilisation=float(u))
            for i, u in enumerate(used)
        ),
        bucket_loads=tuple(loads.tolist()) if kind == "movable" else (),
        bucket_bytes=draw(sizes),
        bucket_held_bytes=draw(sizes),
        movable=kind == "movable",
        fixed=kind == "fixed",
        moving=tuple(sorted(draw(moving))) if kind == "movable" else (),
        epochs=3,
        stage=draw(st.integers(0, 1)),
    )


@st.composite
def views(draw: st.DrawFn) -> View:
    found = [draw(subqueries(number)) for number in range(draw(st.integers(1, 3)))]
    return View(
        epoch=7,
        at=1007.0,
        interval_seconds=draw(st.sampled_from([0.1, 1.0, 10.0])),
        subqueries=tuple(found),
        slots=2,
        most_slots=draw(st.integers(1, 8)),
        recovering=draw(st.sampled_from([False, False, False, True])),
        busy_share=draw(st.floats(0.0, 1.2)),
        hosts=draw(st.sampled_from([{}, {"a": 1, "b": 4}])),
        read_bytes_per_second=draw(st.sampled_from([1e2, 1e8])),
        abilities=Abilities(quotas=draw(st.booleans())),
    )


def breached(view: View) -> dict[str, dict[str, object]]:
    """Return a memory in which every breach that there may be has been there before."""
    kept = {}
    for subquery in view.subqueries:
        used = sum(subquery.utilisations) / len(subquery.utilisations)
        kind = "above" if used > 0.9 else "below" if used < 0.5 else "pressure"
        kept[subquery.name] = {
            "epoch": view.epoch - 1,
            "breach": kind,
            "views": PATIENCE,
            "uneven": PATIENCE,
        }
    return kept


guard_memories = st.dictionaries(
    st.sampled_from(["aggregate-0", "aggregate-1", "aggregate-2"]), st.floats(990.0, 1007.0)
).map(lambda changed: {"changed": changed})


@given(views(), rules_of())
def test_every_proposed_map_is_valid_and_proposed_once(view: View, rules: Elastic) -> None:
    decision = make_policy(rules).decide(view, breached(view))
    known = {s.id: s for s in view.subqueries}
    assert len({change.subquery for change in decision.plan}) == len(decision.plan)
    for change in decision.plan:
        subquery = known[change.subquery]
        assert not subquery.fixed
        assert change.owners != subquery.owners
        assert len(change.owners.owners) == BUCKETS
        assert set(change.owners.owners) <= set(range(change.owners.instances))
        most = most_instances(view, subquery, rules)
        grows = change.owners.instances > subquery.owners.instances
        assert not grows or change.owners.instances <= most
        assert change.owners.instances >= min(rules.min, most)
        moved = set(subquery.owners.find_moved(change.owners))
        assert not moved & set(subquery.moving)
        assert change.reason
    assert decision.reasons


@given(views(), rules_of())
def test_the_same_view_and_memory_give_the_same_decision(view: View, rules: Elastic) -> None:
    memory = breached(view)
    first = make_policy(rules).decide(view, memory)
    assert make_policy(rules).decide(view, memory) == first
    assert memory == breached(view)


@given(subqueries(), st.floats(0.0, 0.5), st.floats(0.0, 0.3))
def test_balancing_never_makes_loads_more_uneven(
    subquery: SubqueryView, enough: float, improvement: float
) -> None:
    assume(subquery.movable and sum(subquery.bucket_loads) > 0)
    now = Placed(owners=subquery.owners, utilisations=subquery.utilisations)
    placed = balance(
        now,
        np.array(subquery.bucket_loads),
        frozen=subquery.moving,
        enough=enough,
        improvement=improvement,
    )
    assert placed.deviation <= now.deviation + 1e-9
    assert placed.worst <= now.worst + 1e-9
    assert np.allclose(placed.utilisations, expect_utilisations(subquery, placed.owners), atol=1e-9)
    assert not set(subquery.owners.find_moved(placed.owners)) & set(subquery.moving)


@given(subqueries(), st.integers(1, 10))
def test_another_size_keeps_the_whole_load(subquery: SubqueryView, instances: int) -> None:
    placed = resize(subquery, instances)
    assume(placed is not None)
    assert placed is not None
    assert placed.owners.instances == instances
    assert math.isclose(sum(placed.utilisations), sum(subquery.utilisations), abs_tol=1e-6)


@st.composite
def wild_changes(draw: st.DrawFn) -> Change:
    """Return whatever a bad policy could propose."""
    count = draw(st.integers(1, 20))
    buckets = draw(st.sampled_from([BUCKETS, BUCKETS, BUCKETS, 8]))
    owners = draw(st.lists(st.integers(0, count - 1), min_size=buckets, max_size=buckets))
    return Change(
        subquery=draw(st.integers(0, 3)),
        owners=BucketMap(owners=tuple(owners), instances=count),
        kind="rescale",
        cause=Cause("wild"),
        quotas=draw(st.sampled_from([(), (), (0.5,) * count])),
        cores=draw(st.sampled_from([(), (), (), (2.0,) * count])),
    )


@given(views(), rules_of(), st.lists(wild_changes(), max_size=5), guard_memories)
def test_what_the_guard_accepts_keeps_the_bounds(
    view: View, rules: Elastic, wild: list[Change], memory: dict[str, dict[str, float]]
) -> None:
    proposed = Decision(plan=tuple(wild))
    verdict = guard(view, proposed, rules, memory)
    assert not (verdict.accepted and (view.recovering or rules.dry_run))
    known = {s.id: s for s in view.subqueries}
    for change in verdict.accepted:
        subquery, size = known[change.subquery], change.owners.instances
        most = most_instances(view, subquery, rules)
        assert min(rules.min, most) <= size <= rules.max
        assert size <= max(most, subquery.owners.instances)
        assert not set(subquery.owners.find_moved(change.owners)) & set(subquery.moving)
        assert not subquery.fixed or size == subquery.owners.instances
        ago = view.at - memory["changed"].get(subquery.name, -math.inf)
        assert ago >= rules.cooldown_seconds or change.owners == subquery.owners
        assert view.abilities.find_lacking(change) == ()
        if rules.memory_bytes:
            after = np.bincount(change.owners.owners, weights=subquery.bucket_held_bytes).max()
            before = np.bincount(subquery.owners.owners, weights=subquery.bucket_held_bytes).max()
            assert after <= max(rules.memory_bytes, before)
    told = {change.subquery for change in verdict.accepted}
    assert len(told) == len(verdict.accepted)
    assert len(verdict.refused) >= len(proposed.plan) - len(told)


@given(views(), rules_of(), st.lists(wild_changes(), max_size=5))
def test_what_the_guard_accepts_can_be_borne_together(
    view: View, rules: Elastic, wild: list[Change]
) -> None:
    bounds = replace(rules, dry_run=False)
    verdict = guard(replace(view, recovering=False), Decision(plan=tuple(wild)), bounds, {})
    after = {change.subquery: change for change in verdict.accepted}
    for stage in (0, 1):
        mine = [s for s in view.subqueries if s.stage == stage]
        sizes = [after[s.id].instances if s.id in after else s.owners.instances for s in mine]
        grown = [s for s in mine if s.id in after and after[s.id].instances > s.owners.instances]
        asked = any(
            after[s.id].instances <= max(bounds.min, count_needed_for_memory(s, bounds))
            for s in grown
        )
        assert asked or not grown or sum(sizes) <= task_slots(view, bounds)
    before, held = sum_held_on_hosts(view, {}), sum_held_on_hosts(view, after)
    assert all(
        not bounds.memory_bytes or held[host] <= max(bounds.memory_bytes * slots, before[host])
        for host, slots in view.hosts.items()
    )
    known = {s.id: s for s in view.subqueries}
    reading = [reading_seconds(view, known[n], change) for n, change in after.items()]
    bearable = max(view.interval_seconds, BEARABLE_SECONDS)
    assert sum(reading) <= bearable or sum(1 for seconds in reading if seconds) == 1


@given(views(), rules_of(), st.lists(wild_changes(), max_size=5))
def test_judging_again_what_was_accepted_accepts_it(
    view: View, rules: Elastic, wild: list[Change]
) -> None:
    """What was refused took nothing from what was let through."""
    first = guard(view, Decision(plan=tuple(wild)), rules, {})
    again = guard(view, Decision(plan=first.accepted), rules, {})
    assert again.accepted == first.accepted
    assert again.refused == ()


@given(views(), rules_of(), guard_memories)
def test_a_recorded_decision_can_be_taken_again(
    view: View, rules: Elastic, memory: dict[str, dict[str, float]]
) -> None:
    before = breached(view)
    decision = make_policy(rules).decide(view, before)
    verdict = guard(view, decision, rules, memory)
    record = DecisionRecord(
        epoch=view.epoch,
        at=view.at,
        rules=rules,
        view=view,
        memory=before,
        guard_memory=memory,
        proposed=decision,
        accepted=verdict.accepted,
        refused=verdict.refused,
    )
    found = decode(encode(record), "here")
    assert found == record
    assert isinstance(found, DecisionRecord)
    assert differences(found) == ()
    assert replay(found).decision.plan == decision.plan
    assert replay(found).verdict == verdict


@given(subqueries())
def test_a_balance_by_hand_improves_or_says_why_not(subquery: SubqueryView) -> None:
    change, sentence = rebalance_subquery(subquery)
    assert sentence
    if change is not None:
        assert change.owners.instances == subquery.owners.instances
        before, after = (
            np.bincount(owners.owners, subquery.bucket_loads, minlength=owners.instances)
            for owners in (subquery.owners, change.owners)
        )
        assert after.std() < before.std()


@given(st.integers(1, 12), st.floats(0.05, 4.0), st.sampled_from([0.4, 0.5]))
def test_load_aware_reaches_the_target_in_one_decision(
    instances: int, used: float, lower: float
) -> None:
    rules = elastic(max=256, lower=lower, cooldown_seconds=0.0)
    known = StreamCloudParameters(lower=lower)
    assume(min(abs(used - lower), abs(used - known.upper)) > 1e-3)  # views are rounded
    cluster = Cluster(rules=rules, shares=even(256), instances=instances)
    load = used * instances
    for _ in range(8):
        cluster.run(load)
    assert len(cluster.changes) <= 1
    if known.lower <= used <= known.upper:
        assert not cluster.changes
        return
    after, step = load / cluster.size, 1 / cluster.size
    near = abs(after - known.target) <= known.target * step + 1e-9
    one_more, one_less = load / (cluster.size + 1), load / max(1, cluster.size - 1)
    nearest = one_more < known.target and (one_less > known.target or cluster.size == 1)
    assert near or nearest
    assert after <= known.upper


def ramp(top: float, epochs: int) -> list[float]:
    up = [top * i / epochs for i in range(epochs)]
    return [*up, *reversed(up)]


def over(provisioning: Provisioning, loads: list[float]) -> Cluster:
    rules = elastic(provisioning=provisioning, max=32, cooldown_seconds=3.0)
    cluster = Cluster(rules=rules, shares=even(256))
    for load in loads:
        cluster.run(load)
    return cluster


@pytest.mark.parametrize("epochs", [100, 300, 1000])
def test_load_aware_needs_fewer_changes_than_individual(epochs: int) -> None:
    aware, single = (over(p, ramp(14.0, epochs)) for p in PROVISIONING)
    assert 0 < len(aware.changes) < len(single.changes)
    assert max(change.owners.instances for change in aware.changes) >= 14 / 0.9
    assert aware.size == 1
    sizes = [change.owners.instances for change in aware.changes]
    top = sizes.index(max(sizes))
    assert sizes[: top + 1] == sorted(sizes[: top + 1])  # up, and then down: never to and fro
    assert sizes[top:] == sorted(sizes[top:], reverse=True)


def wave(i: int) -> float:
    return math.sin(i / 7)


def noise(i: int) -> float:
    return float(np.random.default_rng(i).uniform(-1, 1))


def steps(i: int) -> float:
    return 1.0 if i // 25 % 2 else -1.0


@pytest.mark.slow
@pytest.mark.parametrize("provisioning", ["load-aware", "individual"])
@pytest.mark.parametrize("threshold", [0.5, 0.9])
@pytest.mark.parametrize("instances", [1, 2, 3, 5, 8, 12])
@pytest.mark.parametrize("shape", [wave, noise, steps])
def test_a_load_that_wobbles_around_a_threshold_gives_one_change_at_most(
    provisioning: Provisioning, threshold: float, instances: int, shape: Callable[[int], float]
) -> None:
    rules = elastic(provisioning=provisioning, max=32, cooldown_seconds=0.0)
    cluster = Cluster(rules=rules, shares=even(64), instances=instances)
    for i in range(1000):
        cluster.run(instances * threshold * (1 + 0.05 * shape(i)))
    assert len(cluster.changes) <= 1


def key_shares(mu: float, sigma: float) -> tuple[float, ...]:
    """Return the shares of 1024 buckets of 10 000 keys with a normal distribution."""
    keys = pl.DataFrame({"k": [str(i) for i in range(10_000)]})
    buckets = keys.select(bucket_of(["k"], 1024)).to_series().to_numpy()
    weight = np.exp(-0.5 * ((np.arange(10_000) - mu) / sigma) ** 2) if sigma else np.ones(10_000)
    found = np.bincount(buckets, weights=weight, minlength=1024)
    return tuple((found / found.sum()).tolist())


@pytest.mark.parametrize(
    "periods",
    [
        pytest.param([(0, 0), *[(mu, 100) for mu in (2000, 4000, 6000, 8000)]], id="mean"),
        pytest.param([(5000, sigma) for sigma in (100, 75, 50, 25)], id="deviation"),
    ],
)
def test_the_load_balancing_experiment_of_streamcloud(periods: list[tuple[int, int]]) -> None:
    rules = elastic(min=15, max=15, cooldown_seconds=2.0, upper=0.95)
    load = 15 * 0.7
    on = Cluster(rules=rules, shares=key_shares(*periods[0]), instances=15)
    still = BucketMap.even(1024, 15)
    for mu, sigma in periods:
        on.shares = key_shares(mu, sigma)
        before = len(on.changes)
        for _ in range(12):
            on.run(load)
        assert on.deviation(load) <= IMBALANCE or max(on.shares) * load > 0.7
        assert len(on.changes) - before <= 2
        off = np.bincount(still.owners, weights=np.asarray(on.shares) * load, minlength=15)
        assert on.deviation(load) < float(np.std(off)) or float(np.std(off)) < IMBALANCE
    assert all(change.kind == "rebalance" for change in on.changes)


def test_a_hot_bucket_is_named_and_nothing_is_moved_to_and_fro() -> None:
    shares = [0.9, *[0.1 / 31] * 31]
    cluster = Cluster(rules=Elastic(min=4, max=4, cooldown_seconds=0.0), shares=shares, instances=4)
    for _ in range(50):
        cluster.run(2.4)
    assert len(cluster.changes) <= 1
    assert any("bucket 0 alone takes" in r for x in cluster.records for r in x.proposed.reasons)


def test_more_instances_do_not_help_one_bucket() -> None:
    cluster = Cluster(rules=Elastic(max=8, cooldown_seconds=0.0), shares=[1.0, *[0.0] * 31])
    for _ in range(20):
        cluster.run(0.97)
    assert cluster.size == 1
    assert any("would be no better" in r for x in cluster.records for r in x.proposed.reasons)


def test_no_input_leads_to_the_fewest_instances() -> None:
    cluster = Cluster(rules=Elastic(min=2, cooldown_seconds=0.0), shares=even(64), instances=9)
    for _ in range(6):
        cluster.run(0.0)
    assert cluster.size == 2
    assert len(cluster.changes) == 1


@given(st.integers(0, 2**32 - 1), st.integers(2, 16))
def test_a_skewed_load_is_balanced_under_the_threshold_if_it_can_be(
    seed: int, instances: int
) -> None:
    random = np.random.default_rng(seed)
    shares = random.pareto(1.5, 256) + 0.01
    shares = shares / shares.sum()
    load = instances * 0.7
    rules = elastic(min=instances, max=instances, upper=0.99, cooldown_seconds=0.0, smoothing=1)
    cluster = Cluster(rules=rules, shares=tuple(shares.tolist()), instances=instances)
    for _ in range(10):
        cluster.run(load)
    assert cluster.deviation(load) <= IMBALANCE or shares.max() * load > 0.7
