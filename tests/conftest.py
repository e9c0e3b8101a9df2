"""Hypothesis for all tests: no deadlines, and in CI always the same examples."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "penstock",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    max_examples=int(os.environ.get("PENSTOCK_EXAMPLES", "100")),
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("penstock")
