"""Durations: one meaning each, and text that says it again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.durations import format_duration, parse_duration


@given(micros=st.integers(0, 10**15))
def test_what_is_formatted_is_read_back(micros: int) -> None:
    assert parse_duration(format_duration(micros)) == micros


@given(span=st.timedeltas(min_value=timedelta(days=-9999), max_value=timedelta(days=9999)))
def test_timedeltas_are_exact(span: timedelta) -> None:
    assert timedelta(microseconds=parse_duration(span)) == span


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1 hour", 3_600_000_000),
        ("90s", 90_000_000),
        ("1h 30m", 5_400_000_000),
        ("1 day and 1 minute", 86_460_000_000),
        ("1.5 seconds", 1_500_000),
        ("250 ms", 250_000),
        ("3 µs", 3),
        ("-5 s", -5_000_000),
        (" 2 weeks ", 1_209_600_000_000),
    ],
)
def test_spellings(text: str, micros: int) -> None:
    assert parse_duration(text) == micros


@pytest.mark.parametrize("text", ["", "soon", "5", "1 month", "2 years", "1 hour!", "s"])
def test_what_is_no_fixed_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="duration") as caught:
        parse_duration(text)
    assert repr(text) in str(caught.value)
