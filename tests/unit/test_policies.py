"""The registry of policies: a new one is a file and a line, and its rules come with it."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

import pytest

import penstock as ps
from penstock.base.errors import QueryError
from penstock.control.bounds import Bounds
from penstock.control.controller import Controller
from penstock.control.decision import Decision, Memory, Parameters
from penstock.control.elastic import Elastic, elastic, make_policy
from penstock.control.policies import POLICIES, PolicyName, names_of
from penstock.control.policies.streamcloud import StreamCloudParameters
from penstock.control.records import DecisionRecord
from penstock.control.replay import differences
from penstock.control.rules import parse_rules
from penstock.control.view import View
from penstock.observe.events import decode, encode
from penstock.plan.changes import Cause, Change
from tests.property.control_model import Cluster, even


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParameters(Parameters):
    size: int = 3
    eager: bool = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise QueryError(problems=[f"elastic: size must be 1 or more; size={self.size!r}"])


class Step:
    """Gives every subquery the size that the user names: a policy that only these tests have."""

    name = "step"
    parameters = StepParameters

    def __init__(self, bounds: Bounds, parameters: StepParameters) -> None:
        self.bounds, self.rules = bounds, parameters

    def decide(self, view: View, memory: Memory) -> Decision:
        asked = memory.get("asked", 0) + 1
        plan = tuple(
            Change(
                subquery=seen.id,
                owners=seen.owners.resize(self.rules.size),
                kind="rescale",
                cause=Cause(self.name),
                protocol=self.bounds.protocol,
            )
            for seen in view.subqueries
            if seen.owners.instances != self.rules.size
        )
        return Decision(plan=plan, memory={"asked": asked}, reasons=(f"asked {asked} times",))


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "step", Step)


def run_step(rules: Elastic) -> Cluster:
    cluster = Cluster(rules=rules, shares=even(64))
    for _ in range(8):
        cluster.run(0.5)
    return cluster


@pytest.mark.usefixtures("step")
def test_a_policy_that_was_registered_decides() -> None:
    cluster = run_step(parse_rules("policy=step,size=5,cooldown_seconds=0"))
    assert cluster.size == 5
    assert [change.cause for change in cluster.changes] == ["step"]


@pytest.mark.usefixtures("step")
def test_bounds_hold_for_every_policy() -> None:
    cluster = run_step(parse_rules("policy=step,size=5,max=4,cooldown_seconds=0"))
    assert cluster.size == 1
    assert "5 instances are more than 4" in cluster.records[0].refused[0]


@pytest.mark.usefixtures("step")
def test_its_decisions_are_recorded_and_replayed() -> None:
    (record, *_) = run_step(Elastic(policy="step", cooldown_seconds=0.0)).records
    found = decode(encode(record), "here")
    assert isinstance(found, DecisionRecord)
    assert found == record
    assert found.rules.parameters == {"size": 3, "eager": False}
    assert differences(found) == ()


@pytest.mark.usefixtures("step")
def test_its_rules_have_a_text_form_and_their_own_checks() -> None:
    rules = parse_rules("policy=step,size=4,eager=true")
    assert rules.parameters == {"size": 4, "eager": True}
    with pytest.raises(QueryError) as caught:
        parse_rules("policy=step,size=0,min=0")
    assert [str(problem) for problem in caught.value.problems] == [
        "elastic: min must be 1 or more; min=0",
        "elastic: size must be 1 or more; size=0",
    ]
    with pytest.raises(QueryError, match="size must be a whole number; size='many'"):
        parse_rules("size=many")


@pytest.mark.usefixtures("step")
def test_the_rules_of_another_policy_are_refused_by_name() -> None:
    with pytest.raises(QueryError) as caught:
        parse_rules("policy=step,target=0.6,lower=0.1,max=0")
    assert [str(problem) for problem in caught.value.problems] == [
        "elastic: max must be at least min; max=0",
        "elastic: target is a rule of the policy streamcloud, not of step",
        "elastic: lower is a rule of the policy streamcloud, not of step",
    ]
    with pytest.raises(QueryError, match="size is a rule of the policy step, not of streamcloud"):
        parse_rules("size=3")
    with pytest.raises(QueryError, match="rule of the policy streamcloud, not of fixed"):
        elastic(policy="fixed", target=0.6)


@pytest.mark.usefixtures("step")
def test_the_memory_of_one_policy_is_not_shown_to_another() -> None:
    record = run_step(Elastic(policy="step", cooldown_seconds=0.0)).records[-1]
    assert Controller(Elastic(policy="step"), [record]).memory == record.proposed.memory
    assert Controller(Elastic(), [record]).memory == {}


def test_a_policy_that_is_not_registered_is_refused() -> None:
    with pytest.raises(QueryError, match="unknown policy 'step'; known: streamcloud, fixed"):
        Elastic(policy="step")
    with pytest.raises(QueryError, match="unknown rule 'size'"):
        Elastic(parameters={"size": 3})


def test_type_checkers_know_the_policies() -> None:
    assert set(get_args(PolicyName)) == set(POLICIES)
    assert {name: kind.name for name, kind in POLICIES.items()} == {n: n for n in POLICIES}


def test_the_signature_has_all_rules_and_their_defaults() -> None:
    given = inspect.signature(elastic).parameters
    own = {name for policy in POLICIES for name in names_of(policy)}
    bounds = {bound.name: bound.default for bound in fields(Bounds)}
    assert set(given) == {*bounds, "policy", *own}
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in given.values())
    assert {name: given[name].default for name in bounds} == bounds
    assert elastic() == Elastic() == parse_rules("")


def test_rules_are_bounds_and_parameters() -> None:
    rules = elastic(min=2, target=0.7, provisioning="individual", dry_run=True)
    assert (rules.min, rules.dry_run, rules.policy) == (2, True, "streamcloud")
    assert rules.parameters["target"] == 0.7
    assert rules.parameters["upper"] == StreamCloudParameters().upper
    policy: Any = make_policy(rules)
    assert policy.rules == StreamCloudParameters(target=0.7, provisioning="individual")
    assert ps.elastic is elastic


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"lower": 0.7}, "0 < lower < target < upper must hold; lower=0.7"),
        ({"imbalance": 0}, "imbalance must be positive; got 0"),
        ({"improvement": 1.5}, r"improvement must be in \[0, 1\); got 1.5"),
        (
            {"provisioning": "lavish"},
            "unknown provisioning 'lavish'; known: load-aware",
        ),
        ({"protocol": "slow"}, "unknown protocol 'slow'; known: auto, state, window"),
        ({"cooldown_seconds": -1}, "cooldown_seconds must not be negative"),
        ({"smoothing": 0}, "smoothing must be 1 or more"),
        ({"instance_cores": 0}, "instance_cores must be positive"),
        ({"memory_bytes": -1}, "memory_bytes must not be negative"),
    ],
)
def test_what_is_wrong_with_rules_is_told(given: dict[str, Any], why: str) -> None:
    with pytest.raises(QueryError, match=why):
        elastic(**given)


def test_each_policy_is_a_file_of_its_name() -> None:
    folder = Path(inspect.getfile(StreamCloudParameters)).parent
    assert {path.stem for path in folder.glob("[a-z]*.py")} == set(POLICIES)
