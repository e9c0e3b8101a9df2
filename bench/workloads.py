"""What the engines are asked to compute: count and mean duration of calls per key and window.

The law this module keeps: every engine reads the same `Workload`, so that no engine can be
given an easier question.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One question: the key to group by, and the window's size and advance."""

    name: str
    key: str
    size_seconds: int
    every_seconds: int

    @property
    def size(self) -> str:
        """The window's size in words."""
        return spell(self.size_seconds)

    @property
    def every(self) -> str:
        """The window's advance in words."""
        return spell(self.every_seconds)


def spell(seconds: int) -> str:
    """Say whole seconds in the largest unit that fits, as Spark and Penstock both read it.

    >>> spell(3600), spell(60), spell(10)
    ('1 hour', '1 minute', '10 seconds')
    """
    for unit, length in (("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds % length == 0:
            count = seconds // length
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    raise ValueError(f"seconds={seconds!r} is not a whole number")


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(name="W1", key="src", size_seconds=3600, every_seconds=60),
        Workload(name="W2", key="src", size_seconds=60, every_seconds=60),
        Workload(name="W3", key="district", size_seconds=60, every_seconds=10),
    )
}
"""The workloads by name; W1 is the hourly mean of StreamCloud's elasticity experiment."""
