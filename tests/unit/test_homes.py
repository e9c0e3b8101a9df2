"""Where instances are put: they stay where they were, unless their host is gone or too full."""

from __future__ import annotations

from collections import Counter

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.compiler import compile_query
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import TaskReport
from penstock.plan.statistics import TaskLoad, TaskPlace
from penstock.spark.homes import Homes, choose_hosts

HOSTS = st.sampled_from("abcde")
SLOTS = st.dictionaries(HOSTS, st.integers(1, 4), min_size=1)


@given(before=st.lists(st.none() | HOSTS, min_size=1, max_size=12), slots=SLOTS)
def test_a_stage_takes_no_more_rounds_than_it_must(
    before: list[str | None], slots: dict[str, int]
) -> None:
    found = choose_hosts(before, slots, {})
    rounds = -(-len(before) // sum(slots.values()))
    assert len(found) == len(before)
    assert all(count <= rounds * slots[host] for host, count in Counter(found).items())


@given(before=st.lists(st.none() | HOSTS, min_size=1, max_size=12), slots=SLOTS)
def test_once_placed_nothing_moves(before: list[str | None], slots: dict[str, int]) -> None:
    found = choose_hosts(before, slots, {})
    assert choose_hosts(found, slots, {}) == found


@given(before=st.lists(HOSTS, min_size=1, max_size=12), slots=SLOTS)
def test_an_instance_moves_only_from_a_host_that_is_gone_or_full(
    before: list[str], slots: dict[str, int]
) -> None:
    found = choose_hosts(before, slots, {})
    rounds = -(-len(before) // sum(slots.values()))
    for old, new in zip(before, found, strict=True):
        if old != new and old in slots:
            assert Counter(found)[old] == rounds * slots[old]


def test_a_new_instance_goes_to_the_host_with_the_least_state() -> None:
    assert choose_hosts([None], {"a": 1, "b": 1}, {"a": 3, "b": 1}) == ("b",)


def query(instances: dict[int, int]) -> CompiledQuery:
    schema = {"k": pl.String, "ts": pl.Datetime("us")}
    stream = ps.from_rows([{"k": "a", "ts": ps.at("2024-01-01 00:00:00")}], time="ts")
    assert dict(stream.schema) == schema
    result = stream.aggregate(by="k", window=ps.tumbling("1 minute"), n="count(*)")
    return compile_query(result.write_memory().sinks, instances=instances)


def ran(subqueries: tuple[int, ...], instance: int, host: str) -> TaskReport:
    loads = {subquery: TaskLoad(instance=instance) for subquery in subqueries}
    return TaskReport(stage=0, task=0, place=TaskPlace(host=host), loads=loads)


def test_pins_follow_an_instance_through_a_rescale() -> None:
    homes, slots = Homes(), {"a": 1, "b": 1, "c": 1}
    one, three = query({0: 1, 1: 1}), query({0: 1, 1: 3})
    homes.saw(one, [ran((0, 1), 0, "c")])
    assert homes.choose_hosts(one, 0, slots) == ("c",), "the two subqueries are one task"
    assert homes.choose_hosts(three, 0, slots) == (), "a scan has no state and runs anywhere"
    hosts = homes.choose_hosts(three, 1, slots)
    assert hosts[0] == "c"
    assert sorted(hosts) == ["a", "b", "c"]
    homes.saw(three, [ran((0,), 0, "a"), *(ran((1,), i, h) for i, h in enumerate(hosts))])
    assert homes.load() == {"a": 1, "b": 1, "c": 1}
    assert homes.choose_hosts(three, 1, {"a": 1, "b": 2})[1:] == hosts[1:], (
        "only the lost one moves"
    )
    assert homes.choose_hosts(one, 0, slots) == ("c",)
    assert homes.load() == {"c": 1}, "instances that are gone hold no host"


def test_without_hosts_nothing_is_pinned() -> None:
    assert Homes().choose_hosts(query({0: 1, 1: 3}), 1, {}) == ()
