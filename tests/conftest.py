"""For all tests: Hypothesis without deadlines, in CI always the same examples; one Spark at a time.

With several workers (`pytest -n`), all tests with Spark go to one of them, and so do those of the
fault programme, which look at what it leaves in the memory of the machine.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "penstock",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    max_examples=int(os.environ.get("PENSTOCK_EXAMPLES", "100")),
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("penstock")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif "faults" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group("faults"))
