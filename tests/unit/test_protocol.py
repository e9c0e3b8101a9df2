"""The choice between reading state and finishing windows."""

from __future__ import annotations

from typing import Any

import pytest

import penstock as ps
from penstock.control.protocol import choose

HOUR = ps.sliding("1 hour", every="1 minute")
MINUTE = ps.tumbling("1 minute")
GIGABYTE = 1e9


@pytest.mark.parametrize(
    ("given", "protocol", "reason"),
    [
        ({"moved_bytes": 0}, "state", "no state"),
        ({"window": None}, "state", "only windows by time"),
        ({"stays": False}, "state", "an old owner goes"),
        ({"moving": True}, "state", "on their way already"),
        ({"rest_epochs": None}, "state", "not known yet"),
        ({}, "window", "reading 1000.0 MB takes 10.00 s, finishing old windows 0.06 s"),
        ({"rest_epochs": 2000.0}, "state", "finishing old windows 20.00 s"),
        ({"moved_bytes": 1000.0}, "state", "reading 0.0 MB takes 0.00 s"),
        ({"window": HOUR}, "window", "finishing old windows 9.89 s"),
        ({"window": HOUR, "rest_epochs": 60.0}, "state", "finishing old windows 10.43 s"),
    ],
)
def test_the_cheaper_protocol_is_chosen(given: dict[str, Any], protocol: str, reason: str) -> None:
    usual: dict[str, Any] = {"moved_bytes": GIGABYTE, "window": MINUTE, "rest_epochs": 6.0}
    usual["read_bytes_per_second"] = 100e6
    choice = choose(**{**usual, **given})
    assert choice.protocol == protocol
    assert reason in choice.reason
