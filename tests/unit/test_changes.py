"""Changes: what they may carry, and that one which makes no sense cannot be made."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from penstock.base.errors import ConfigError
from penstock.control.elastic import Elastic
from penstock.control.records import DecisionRecord
from penstock.control.replay import differences
from penstock.observe.history import describe_change
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import PARTS, USER, Abilities, Change
from tests.property.control_model import Cluster, even

CHANGE = Change(subquery=1, owners=BucketMap.even(8, 2), kind="move", cause=USER)


def test_a_change_knows_what_it_carries() -> None:
    assert (CHANGE.instances, CHANGE.parts) == (2, ())
    more = replace(CHANGE, quotas=(0.5, 0.0), weights=(1.0, 3.0), cores=(0.5, 2.0))
    assert more.parts == PARTS == ("weights", "cores", "quotas")


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("given", [(1.0,), (1.0, 1.0, 1.0), (1.0, -1.0), (nan, 1.0), (1.0, inf)])
def test_each_instance_gets_one_number_that_makes_sense(
    part: str, given: tuple[float, ...]
) -> None:
    with pytest.raises(ConfigError, match=f"{part}=.*one for each of the 2 instances"):
        replace(CHANGE, **{part: given})  # type: ignore[arg-type]  # the name is drawn


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"weights": (0.0, 0.0)}, "one positive"),
        ({"cores": (1.0, 0.0)}, "all positive"),
        ({"protocol": "slow"}, "protocol='slow'"),
    ],
)
def test_what_makes_no_sense_cannot_be_made(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        replace(CHANGE, **given)


def test_an_instance_may_be_left_without_rows_or_work() -> None:
    assert replace(CHANGE, weights=(0.0, 1.0), quotas=(0.0, 0.0)).parts == ("weights", "quotas")


def test_abilities_name_what_lacks() -> None:
    every = replace(CHANGE, quotas=(0.5, 0.5), weights=(1.0, 3.0), cores=(1.0, 1.0))
    assert Abilities().find_lacking(CHANGE) == ()
    assert Abilities().find_lacking(every) == PARTS
    assert Abilities(weights=True, quotas=True).find_lacking(every) == ("cores",)


def test_what_it_carries_is_told() -> None:
    change = replace(CHANGE, quotas=(0.5, 0.5), weights=(1.0, 1.0))
    assert describe_change(change, "a", 2) == "move a on its 2 instances, with weights and quotas"


def test_a_replay_compares_what_changes_carry(accepted: DecisionRecord) -> None:
    (change,) = accepted.accepted
    other = replace(change, quotas=(1.0,) * change.instances)
    assert differences(replace(accepted, accepted=(other,))) == (
        "subquery 1: the quotas would be others than were accepted",
    )


@pytest.fixture
def accepted() -> DecisionRecord:
    cluster = Cluster(rules=Elastic(cooldown_seconds=0.0), shares=even())
    for _ in range(2):
        cluster.run(2.7)
    return cluster.records[-1]
