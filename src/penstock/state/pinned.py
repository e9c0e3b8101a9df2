"""The pins of a checkpoint: the meaning of the query that it belongs to, as it is kept.

Law: a pin says everything that the one before it said, so the newest one says all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from penstock.files.place import Place
from penstock.files.sealed import seal, unseal

FOLDER = "pinned"
KIND = "query"
Facts = dict[str, Any]
_NAME = re.compile(r"\d{12}\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What is pinned.

    Attributes:
        query: The query's own word, by which the folders of its sinks know it.
        facts: The meaning, fact by fact; only `penstock.driver.pinned` knows what they say.
    """

    query: str
    facts: Facts


def pin_numbers(root: Place) -> list[int]:
    """Return the numbers of the pins that a checkpoint has, oldest first."""
    names = [entry.name for entry in (root / FOLDER).list()]
    return [int(name[:12]) for name in names if _NAME.fullmatch(name)]


def pin_file(root: Place, number: int) -> Place:
    """Return the file of a pin."""
    return root / FOLDER / f"{number:012d}.json"


def read_pin(root: Place, number: int) -> Pin:
    """Return a pin.

    Raises:
        FileNotFoundError: There is none of this number.
        CheckpointError: It is damaged.
    """
    return unseal(KIND, pin_file(root, number), Pin)


def write_pin(root: Place, number: int, pin: Pin) -> None:
    """Add a pin.

    Raises:
        FileExistsError: Another driver has added one of this number.
    """
    pin_file(root, number).write_new(seal(KIND, pin))
