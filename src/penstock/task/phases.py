"""How long a task spends on what.

Law: a moment counts for one phase: time in an inner phase is not the outer one's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Phases:
    """The seconds of each phase of a task."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Begin with none.

        Args:
            clock: Tells the time in seconds.
        """
        self.seconds: dict[str, float] = {}
        self._clock, self._inner = clock, 0.0

    @contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Count the time until the end for a phase, but for what inner phases take.

        >>> phases = Phases(iter([0.0, 1.0, 3.0, 4.0]).__next__)
        >>> with phases.measure("state"), phases.measure("send"):
        ...     pass
        >>> phases.seconds
        {'send': 2.0, 'state': 2.0}
        """
        outer, self._inner = self._inner, 0.0
        since = self._clock()
        try:
            yield
        finally:
            passed = self._clock() - since
            self.seconds[phase] = self.seconds.get(phase, 0.0) + passed - self._inner
            self._inner = outer + passed
