"""Transparency: however a query is cut, split, moved and crashed, it gives the reference's rows."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, given, settings

from tests.property.strategies import Scenario, scenarios

EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "60"))
settings.register_profile(
    "penstock",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("penstock")


@given(scenario=scenarios())
def test_engine_agrees_with_the_reference(scenario: Scenario) -> None:
    scenario.check()
