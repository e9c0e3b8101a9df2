"""Numbers in sentences."""

from __future__ import annotations


def count(number: float, noun: str) -> str:
    """Return a number and what there are so many of.

    >>> count(1, "instance"), count(2_000_000, "slot"), count(0.5, "core"), count(1.0, "core")
    ('1 instance', '2000000 slots', '0.5 cores', '1 core')
    """
    return f"{number:.12g} {noun}{'s' * (number != 1)}"
