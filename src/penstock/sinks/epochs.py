"""The names of published epochs.

Law: names sort as their numbers do, so that a reader who goes through a folder by name gets the
epochs in order. They are Hive partitions: Spark and Polars read the number as an integer.
"""

from __future__ import annotations

from penstock.files.place import Place

EPOCH = "epoch="
_DIGITS = 10


def epoch_name(number: int) -> str:
    """Return the name of an epoch's folder.

    >>> epoch_name(12)
    'epoch=0000000012'
    """
    return f"{EPOCH}{number:0{_DIGITS}d}"


def published_epoch(name: str) -> int | None:
    """Return the number of an epoch's folder; None if the name is not that of one.

    >>> published_epoch("epoch=0000000012"), published_epoch("epoch=12"), published_epoch("_x")
    (12, 12, None)
    """
    number = name.removeprefix(EPOCH)
    return int(number) if name.startswith(EPOCH) and number.isdigit() else None


def epochs_in(target: Place) -> dict[int, str]:
    """Return the names of the epochs in a sink's folder by number, in order."""
    found = {published_epoch(entry.name): entry.name for entry in target.list() if entry.folder}
    return {number: found[number] for number in sorted(n for n in found if n is not None)}
