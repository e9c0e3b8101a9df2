"""Views: what is known of the loads, for the maps in force."""

from __future__ import annotations

import pytest

from penstock.control.elastic import Elastic
from penstock.control.view import SubqueryView
from penstock.control.views import make_view
from penstock.plan.buckets import BucketMap
from penstock.plan.statistics import EpochStatistics, InstanceLoad, SubqueryLoad
from tests.property.control_model import AGGREGATE, epoch_statistics, instance_load, keyed_query

BUCKETS = 4
MAP = BucketMap.even(BUCKETS, 2)


def load_of(*busy: float, seconds: tuple[float, ...] = (), **others: int) -> SubqueryLoad:
    instances = tuple(instance_load(i, one, **others) for i, one in enumerate(busy))
    return SubqueryLoad(
        subquery=AGGREGATE, name="aggregate-0", instances=instances, bucket_seconds=seconds
    )


def seen(
    *epochs: EpochStatistics, since: int = 0, rules: Elastic | None = None, owners: BucketMap = MAP
) -> SubqueryView:
    view = make_view(
        keyed_query(BUCKETS, owners.instances),
        {AGGREGATE: owners},
        epochs,
        rules=rules or Elastic(),
        since={AGGREGATE: since},
    )
    (subquery,) = view.subqueries
    return subquery


def test_utilisation_is_busy_time_as_a_share_of_the_cores_for_the_interval() -> None:
    epoch = epoch_statistics(0, [load_of(0.5, 1.0)], interval=2.0)
    assert seen(epoch).utilisations == (0.25, 0.5)
    assert seen(epoch, rules=Elastic(instance_cores=0.5)).utilisations == (0.5, 1.0)


def test_loads_are_the_median_of_the_last_epochs() -> None:
    busy = [(9.0, 9.0), (0.1, 0.2), (0.2, 0.2), (5.0, 0.3)]
    epochs = [epoch_statistics(i, [load_of(*one)]) for i, one in enumerate(busy)]
    found = seen(*epochs, rules=Elastic(smoothing=3))
    assert found.utilisations == (0.2, 0.2)
    assert found.epochs == 3
    assert seen(*epochs, rules=Elastic(smoothing=1)).utilisations == (5.0, 0.3)


def test_epochs_with_another_map_do_not_count() -> None:
    busy = [(9.0, 9.0), (9.0, 9.0), (0.4, 0.2)]
    epochs = [epoch_statistics(i, [load_of(*one)]) for i, one in enumerate(busy)]
    found = seen(*epochs, since=2)
    assert found.utilisations == (0.4, 0.2)
    assert found.epochs == 1


def test_the_epoch_that_restored_state_does_not_count() -> None:
    first = epoch_statistics(4, [load_of(9.0, 9.0, restored_bytes=1)])
    later = epoch_statistics(5, [load_of(0.4, 0.2, restored_bytes=1)])
    assert seen(first, later, since=4).utilisations == (0.4, 0.2)
    query = keyed_query(BUCKETS, 2)
    alone = make_view(query, {AGGREGATE: MAP}, [first], rules=Elastic(), since={AGGREGATE: 4})
    assert alone.subqueries == ()


def test_an_epoch_without_input_is_idle_whatever_it_cost() -> None:
    idle = epoch_statistics(0, [load_of(0.4, 0.4, rows=0)], interval=0.0, rows=0)
    assert seen(idle).utilisations == (0.0, 0.0)
    late = epoch_statistics(0, [load_of(0.4, 0.4, rows=5)], rows=0)
    assert seen(late).utilisations == (0.4, 0.4)


def test_a_clock_that_stands_still_divides_by_nothing() -> None:
    epoch = epoch_statistics(0, [load_of(0.4, 0.4)], interval=0.0)
    assert all(u > 1 for u in seen(epoch).utilisations)


def test_bucket_loads_add_up_to_the_utilisation_of_their_owner() -> None:
    seconds = [(0.3, 0.1, 0.2, 0.0), (0.3, 0.1, 0.2, 0.0), (3.0, 1.0, 0.2, 0.0)]
    epochs = [
        epoch_statistics(i, [load_of(one[0] + one[1], one[2], seconds=one)])
        for i, one in enumerate(seconds)
    ]
    found = seen(*epochs)
    assert found.utilisations == (0.4, 0.2)
    assert found.bucket_loads == pytest.approx((0.3, 0.1, 0.2, 0.0))


def test_an_instance_that_did_not_report_was_idle() -> None:
    load = SubqueryLoad(
        subquery=AGGREGATE, name="aggregate-0", instances=(instance_load(1, 0.5, host="b"),)
    )
    found = seen(epoch_statistics(0, [load]))
    assert found.utilisations == (0.0, 0.5)
    assert [i.host for i in found.instances] == ["", "b"]


def test_what_the_query_says_of_its_subqueries() -> None:
    reader = SubqueryLoad(subquery=0, name="sources", instances=(instance_load(0, 0.3),))
    epoch = epoch_statistics(0, [reader, load_of(0.25, 0.35)])
    view = make_view(
        keyed_query(BUCKETS, 2),
        {0: BucketMap.even(BUCKETS, 1), AGGREGATE: MAP},
        [epoch],
        rules=Elastic(),
        moving={AGGREGATE: (3, 1)},
        slots=2,
        most_slots=5,
    )
    sources, aggregate = view.subqueries
    assert (sources.name, sources.stateful, sources.movable) == ("sources", False, False)
    assert (aggregate.name, aggregate.stateful, aggregate.movable) == ("aggregate-0", True, True)
    assert aggregate.moving == (1, 3)
    assert (sources.fixed, aggregate.fixed, aggregate.ways) == (False, False, ())
    assert view.busy_share == pytest.approx(0.6)  # stages take turns: 0.3, then 0.3 in the mean
    assert (view.slots, view.most_slots, view.at) == (2, 5, epoch.at)


def test_state_and_hosts_are_those_of_the_newest_epoch() -> None:
    def one(epoch: int, host: str, size: int) -> EpochStatistics:
        loads: tuple[InstanceLoad, ...] = tuple(
            instance_load(i, 0.1, host=host, state_bytes=size, held_bytes=3 * size)
            for i in range(2)
        )
        found = SubqueryLoad(
            subquery=AGGREGATE,
            name="aggregate-0",
            instances=loads,
            bucket_bytes=(size, 0, 0, size),
            bucket_held_bytes=(3 * size, 0, 0, 3 * size),
        )
        return epoch_statistics(epoch, [found])

    found = seen(one(0, "a", 10), one(1, "b", 20))
    assert [(i.host, i.state_bytes) for i in found.instances] == [("b", 20), ("b", 20)]
    assert found.bucket_bytes == (20, 0, 0, 20)
    assert [i.held_bytes for i in found.instances] == [60, 60]
    assert found.bucket_held_bytes == (60, 0, 0, 60)
