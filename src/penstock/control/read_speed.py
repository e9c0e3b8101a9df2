"""How fast state is read: one estimate, from what tasks have measured.

Tasks tell how many bytes of state they read from segments and how long it took, until the operator
could go on. The guard weighs moves by it, and the choice of a protocol goes by it, so that both
believe the same. Law: it is a function of the epochs that were shown.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.statistics import EpochStatistics

READ_BYTES_PER_SECOND = 100e6
"""What is taken until something was measured: about what one core checks, decodes and sorts."""
LEAST_BYTES = 1_000_000
"""To read less tells how long it takes to open files, and nothing about the speed."""
_KEPT = 0.5
"""What an older epoch counts beside the next one that has read state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSpeed:
    """An estimate from bytes and seconds, of which older ones count less."""

    bytes: float = 0.0
    seconds: float = 0.0

    @property
    def bytes_per_second(self) -> float:
        """How fast one instance reads state; an assumption until something was measured."""
        return self.bytes / self.seconds if self.seconds > 0 else float(READ_BYTES_PER_SECOND)

    def after(self, epoch: EpochStatistics) -> ReadSpeed:
        """Return the estimate after one more epoch."""
        loads = [load for subquery in epoch.subqueries for load in subquery.instances]
        told = [one for one in loads if one.restored_bytes >= LEAST_BYTES and one.restored_seconds]
        if not told:
            return self
        return ReadSpeed(
            bytes=self.bytes * _KEPT + sum(one.restored_bytes for one in told),
            seconds=self.seconds * _KEPT + sum(one.restored_seconds for one in told),
        )
