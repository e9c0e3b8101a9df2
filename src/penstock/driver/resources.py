"""Where instances run: the seam between the driver and whoever lends it machines.

On Spark machines are executors (`penstock.spark.resources`); in local mode and in tests
there is a fixed number of slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from penstock.observe.events import ExecutorEvent


class Resources(Protocol):
    """Lends slots; one slot runs one task at a time."""

    def slots(self) -> int:
        """Return how many tasks can run at the same time now."""
        ...

    def slots_by_host(self) -> Mapping[str, int]:
        """Return how many tasks each host can run at the same time; nothing if all is one host."""
        ...

    def most(self) -> int:
        """Return how many slots there can be at most."""
        ...

    def ask(self, slots: int) -> None:
        """Ask for so many slots in all; they come later, or are given back after a while.

        It is called after every epoch with what the layout needs, and returns at once.
        """
        ...

    def events(self) -> tuple[ExecutorEvent, ...]:
        """Return which executors have come and gone since the last call."""
        ...

    def close(self) -> None:
        """Give back what only this query needed."""
        ...


class FixedSlots:
    """A number of slots that never changes: local mode."""

    def __init__(self, slots: int = 1) -> None:
        """Have so many slots."""
        self._slots = slots

    def slots_by_host(self) -> Mapping[str, int]:
        """Return nothing: all is one host, and instances need no place."""
        return {}

    def slots(self) -> int:
        """Return how many tasks can run at the same time."""
        return self._slots

    def most(self) -> int:
        """Return the same number."""
        return self._slots

    def ask(self, slots: int) -> None:
        """Do nothing: there are no more and no fewer."""

    def events(self) -> tuple[ExecutorEvent, ...]:
        """Return nothing: no executor comes or goes."""
        return ()

    def close(self) -> None:
        """Do nothing."""
