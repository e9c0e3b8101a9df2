"""Numbers with their nouns, for sentences that people read."""

from __future__ import annotations


def pluralise(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one.

    >>> pluralise(1, "row"), pluralise(1200, "row"), pluralise(0, "file")
    ('1 row', '1,200 rows', '0 files')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
