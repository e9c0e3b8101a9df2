"""The resource manager on executors that the test owns."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from penstock.spark.executors import UNLIMITED, Executor
from penstock.spark.resources import RELEASE_AFTER_EPOCHS, Application, SparkResources


@dataclass
class Pretended:
    """Executors that come and go when the test says so."""

    found: dict[str, Executor] = field(default_factory=dict)
    told_to_end: set[str] = field(default_factory=set)
    requests: list[int] = field(default_factory=list)
    answers: bool = True

    def add(self, name: str, host: str = "", slots: int = 1) -> None:
        self.found[name] = Executor(id=name, host=host or f"host-{name}", slots=slots)

    def mark(self) -> tuple[str, int]:
        takes = [e.slots for e in self.found.values() if e.id not in self.told_to_end]
        return ",".join(self.found), sum(takes)

    def registered(self) -> dict[str, Executor]:
        return dict(self.found)

    def decommissioning(self, executor: str) -> bool:
        return executor in self.told_to_end

    def request(self, total: int) -> bool:
        if not self.answers:
            raise ConnectionError("no master")
        self.requests.append(total)
        return True

    def release(self, executor: str) -> bool:
        self.told_to_end.add(executor)
        return True


@pytest.fixture
def executors() -> Pretended:
    made = Pretended()
    for name in "012":
        made.add(name)
    return made


def settle(resources: SparkResources) -> None:
    """Wait for the call that is under way."""
    if resources._calling is not None:
        resources._calling.exception(timeout=30)


def ask(resources: SparkResources, slots: int, times: int = 1) -> None:
    for _ in range(times):
        resources.ask(slots)
        settle(resources)


def what(resources: SparkResources) -> list[tuple[str, str]]:
    return [(event.executor, event.what) for event in resources.events()]


def test_an_executor_that_goes_without_notice_is_lost(executors: Pretended) -> None:
    resources = SparkResources(executors)
    assert what(resources) == [("0", "added"), ("1", "added"), ("2", "added")]
    del executors.found["1"]
    executors.add("3")
    assert what(resources) == [("3", "added"), ("1", "lost")]
    assert what(resources) == []
    assert resources.slots() == 3


def test_an_executor_that_someone_else_decommissions_is_released(executors: Pretended) -> None:
    resources = SparkResources(executors)
    resources.events()
    executors.told_to_end.add("2")
    assert what(resources) == [("2", "decommissioning")]
    assert resources.slots_by_host() == {"host-0": 1, "host-1": 1}
    del executors.found["2"]
    assert what(resources) == [("2", "released")]


def test_surplus_goes_after_a_while_and_homes_stay(executors: Pretended) -> None:
    resources = SparkResources(executors, at_home=lambda: {"host-1": 2, "host-2": 1})
    resources.events()
    ask(resources, 1, times=RELEASE_AFTER_EPOCHS - 1)
    assert executors.requests == []
    ask(resources, 1)
    assert executors.requests == [1]
    assert executors.told_to_end == {"0", "2"}
    assert what(resources) == [("0", "decommissioning"), ("2", "decommissioning")]
    assert resources.slots() == 1
    ask(resources, 0, times=2 * RELEASE_AFTER_EPOCHS)
    assert executors.told_to_end == {"0", "2"}, "one executor always stays"


def test_a_need_in_between_keeps_the_executors(executors: Pretended) -> None:
    resources = SparkResources(executors)
    for _ in range(4):
        ask(resources, 1, times=RELEASE_AFTER_EPOCHS - 1)
        ask(resources, 3)
    assert executors.requests == []


def test_growth_is_asked_for_at_once_up_to_the_bound(executors: Pretended) -> None:
    resources = SparkResources(executors, most_executors=5, first_executors=3)
    ask(resources, 4)
    assert executors.requests == [4]
    ask(resources, 9, times=3)
    assert executors.requests == [4, 5], "not again what was asked for already"
    assert resources.most() == 5
    resources.close()


def test_executors_with_several_slots(executors: Pretended) -> None:
    executors.found.clear()
    executors.add("0", slots=4)
    resources = SparkResources(executors, most_executors=3, first_executors=1)
    ask(resources, 5)
    assert executors.requests == [2]
    assert resources.most() == 12


def test_a_cluster_that_lends_all_it_has_is_asked_for_all_again(executors: Pretended) -> None:
    resources = SparkResources(executors)
    ask(resources, 1, times=RELEASE_AFTER_EPOCHS)
    for name in executors.told_to_end:
        del executors.found[name]
    assert resources.most() == 3, "so many there were"
    ask(resources, 2)
    ask(resources, 3)
    assert executors.requests == [1, 2, UNLIMITED]


def test_two_queries_need_the_sum(executors: Pretended) -> None:
    shared = Application()
    first = SparkResources(executors, most_executors=9, first_executors=3, application=shared)
    second = SparkResources(executors, most_executors=9, first_executors=3, application=shared)
    ask(first, 2)
    ask(second, 3)
    assert executors.requests == [5]
    first.close()
    ask(second, 3, times=RELEASE_AFTER_EPOCHS)
    assert executors.requests[-1:] == [5], "three are there and three are needed"


def test_a_master_that_is_away_stops_nothing(executors: Pretended) -> None:
    resources = SparkResources(executors, most_executors=5, first_executors=3)
    executors.answers = False
    ask(resources, 5)
    executors.answers = True
    ask(resources, 5)
    assert executors.requests == [5]


def test_where_spark_sizes_the_application_it_is_left_alone(executors: Pretended) -> None:
    resources = SparkResources(executors, most_executors=9, sizing=False)
    ask(resources, 9)
    ask(resources, 1, times=2 * RELEASE_AFTER_EPOCHS)
    assert executors.requests == []
    assert not executors.told_to_end


def test_the_end_of_a_query_gives_the_application_back_as_it_was(executors: Pretended) -> None:
    shared = Application()
    first = SparkResources(executors, most_executors=9, first_executors=3, application=shared)
    second = SparkResources(executors, most_executors=9, first_executors=3, application=shared)
    ask(first, 4)
    ask(second, 2)
    first.close()
    assert executors.requests == [4, 6], "the other query still runs"
    second.close()
    assert executors.requests == [4, 6, 3]
