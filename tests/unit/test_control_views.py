"""Views: what is known of the loads, for the maps in force."""

from __future__ import annotations

from dataclasses import replace

import pytest

import penstock as ps
from penstock.compiler import compile_query
from penstock.control.bounds import Bounds
from penstock.control.view import SubqueryView
from penstock.control.views import Runtime, make_view
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import Abilities
from penstock.plan.statistics import EpochStatistics, InstanceLoad, SubqueryLoad
from tests.property.control_model import (
    AGGREGATE,
    SCHEMA,
    epoch_statistics,
    instance_load,
    keyed_query,
)

BUCKETS = 4
MAP = BucketMap.even(BUCKETS, 2)


def load_of(*busy: float, seconds: tuple[float, ...] = (), **others: int) -> SubqueryLoad:
    instances = tuple(instance_load(i, one, **others) for i, one in enumerate(busy))
    return SubqueryLoad(
        subquery=AGGREGATE, name="aggregate-0", instances=instances, bucket_seconds=seconds
    )


def seen(
    *epochs: EpochStatistics, since: int = 0, bounds: Bounds | None = None, owners: BucketMap = MAP
) -> SubqueryView:
    view = make_view(
        keyed_query(BUCKETS, owners.instances),
        {AGGREGATE: owners},
        epochs,
        bounds=bounds or Bounds(),
        since={AGGREGATE: since},
    )
    (subquery,) = view.subqueries
    return subquery


def test_utilisation_is_busy_time_as_a_share_of_the_cores_for_the_interval() -> None:
    epoch = epoch_statistics(0, [load_of(0.5, 1.0)], interval=2.0)
    assert seen(epoch).utilisations == (0.25, 0.5)
    assert seen(epoch, bounds=Bounds(instance_cores=0.5)).utilisations == (0.5, 1.0)


def test_loads_are_the_median_of_the_last_epochs() -> None:
    busy = [(9.0, 9.0), (0.1, 0.2), (0.2, 0.2), (5.0, 0.3)]
    epochs = [epoch_statistics(i, [load_of(*one)]) for i, one in enumerate(busy)]
    found = seen(*epochs, bounds=Bounds(smoothing=3))
    assert found.utilisations == (0.2, 0.2)
    assert found.epochs == 3
    assert seen(*epochs, bounds=Bounds(smoothing=1)).utilisations == (5.0, 0.3)


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
    alone = make_view(query, {AGGREGATE: MAP}, [first], bounds=Bounds(), since={AGGREGATE: 4})
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
        bounds=Bounds(),
        moving={AGGREGATE: (3, 1)},
        runtime=Runtime(slots=2, most_slots=5),
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
    assert [(i.host, i.memory_bytes) for i in found.instances] == [("b", 60), ("b", 60)]
    assert found.bucket_bytes == (20, 0, 0, 20)
    assert found.bucket_held_bytes == (60, 0, 0, 60)


def test_rates_are_means_of_the_epochs_that_count() -> None:
    epochs = [
        epoch_statistics(0, [load_of(9.0, 9.0, rows=9000)], interval=2.0),
        epoch_statistics(1, [load_of(0.5, 1.0, rows=100)], interval=2.0),
        epoch_statistics(2, [load_of(1.0, 1.0, rows=200, queue_seconds=3)], interval=3.0),
        epoch_statistics(3, [load_of(0.5, 0.0, rows=0)], interval=5.0, rows=0),
    ]
    found = seen(*epochs, bounds=Bounds(smoothing=3, instance_cores=0.5))
    first, second = found.instances
    assert (first.rows, first.arrival_rate, first.service_rate) == (100.0, 30.0, 200.0)
    assert first.busy_seconds == 0.5  # the epoch without input cost nothing
    assert first.latency_seconds == 1.5
    assert second.service_rate == 150.0
    assert second.latency_seconds == pytest.approx(5 / 3)
    assert (first.cores, first.pending) == (0.5, 0)
    assert (found.rows, found.arrival_rate, found.pending) == (200.0, 60.0, 0)
    assert found.service_rate == pytest.approx(600 / 3.5)
    assert found.latency_seconds == second.latency_seconds


def test_no_row_has_no_rate() -> None:
    (first, _) = seen(epoch_statistics(0, [load_of(0.0, 0.0, rows=0)], rows=0)).instances
    assert (first.rows, first.arrival_rate, first.service_rate) == (0.0, 0.0, 0.0)


def test_buckets_have_rows_seconds_and_bytes_of_an_epoch() -> None:
    def one(epoch: int, rows: tuple[int, ...], seconds: tuple[float, ...]) -> EpochStatistics:
        load = SubqueryLoad(
            subquery=AGGREGATE,
            name="aggregate-0",
            instances=(instance_load(0, 1.0), instance_load(1, 1.0)),
            bucket_rows=rows,
            bucket_seconds=seconds,
            bucket_bytes=(1, 2, 3, epoch),
        )
        return epoch_statistics(epoch, [load])

    found = seen(one(0, (), ()), one(1, (4, 0, 0, 2), (0.4, 0.0, 0.0, 0.2)))
    assert found.bucket_rows == (2.0, 0.0, 0.0, 1.0)
    assert found.bucket_seconds == (0.2, 0.0, 0.0, 0.1)
    assert found.bucket_bytes == (1, 2, 3, 1)
    assert found.memory_bytes == 0
    assert seen(one(0, (), ())).bucket_rows == ()


def test_a_view_tells_latency_backlog_and_what_the_runtime_is() -> None:
    reader = SubqueryLoad(subquery=0, name="sources", instances=(instance_load(0, 0.3),))
    epoch = replace(
        epoch_statistics(0, [reader, load_of(0.25, 0.35)], interval=2.0),
        backlog=7,
        latency_seconds=9.0,
    )
    runtime = Runtime(hosts={"a": 2}, read_bytes_per_second=5e6, abilities=Abilities(quotas=True))
    view = make_view(
        keyed_query(BUCKETS, 2),
        {0: BucketMap.even(BUCKETS, 1), AGGREGATE: MAP},
        [epoch],
        bounds=Bounds(),
        runtime=runtime,
    )
    assert (view.latency_seconds, view.epoch_seconds, view.backlog) == (9.0, 1.0, 7)
    assert (view.hosts, view.read_bytes_per_second) == ({"a": 2}, 5e6)
    assert view.abilities.quotas
    assert [s.backlog for s in view.subqueries] == [7, None]
    assert [s.stage for s in view.subqueries] == [0, 1]
    assert view.beside(view.subqueries[0]) == ()


def test_subqueries_that_run_at_the_same_time_are_of_one_stage() -> None:
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    minute = ps.tumbling("1 minute")
    counts = [stream.aggregate(by="k", window=minute, **{n: "count(*)"}) for n in ("a", "b")]
    joined = counts[0].join(counts[1], on="k", within="1 minute").write_memory()
    query = compile_query(joined.sinks, buckets=BUCKETS)
    loads = [
        SubqueryLoad(subquery=s.id, name="", instances=(instance_load(0, 0.1),))
        for s in query.subqueries
    ]
    even = BucketMap.even(BUCKETS, 1)
    maps = {s.id: even for s in query.subqueries}
    view = make_view(query, maps, [epoch_statistics(0, loads)], bounds=Bounds())
    stages = {s.name: s.stage for s in view.subqueries}
    assert stages == {"sources": 0, "aggregate-0": 1, "aggregate-1": 1, "join-0": 2}
    assert [s.name for s in view.beside(view.subqueries[1])] == ["aggregate-1"]
