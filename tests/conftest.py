"""For all tests: Hypothesis without deadlines, in CI always the same examples; one Spark at a time.

With several workers (`pytest -n`), all tests with Spark go to one of them, and so do those of the
fault programme, which look at what it leaves in the memory of the machine.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

settings.register_profile(
    "penstock",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    max_examples=int(os.environ.get("PENSTOCK_EXAMPLES", "100")),
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("penstock")


TOGETHER = ("tests/spark/", "tests/faults/")


class _InTwos(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Gives tests to workers one by one, but all of a folder in `TOGETHER` to the same worker."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _InTwos:
    return _InTwos(config, log)
