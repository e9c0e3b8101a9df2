"""What the engines are asked to compute over call records: means, a join, a product.

The law this module keeps: every engine reads the same `Workload`, so that no engine can be
given an easier question.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One question: what kind it is, its key, and the window's size and advance.

    `means`: count and mean duration per key and window. `join`: pairs of calls of one key within
    the window, farther apart than `ABOVE_KM`. `product`: pairs within the window that share a
    number and overlap.
    """

    name: str
    key: str
    size_seconds: int
    every_seconds: int
    kind: str = "means"

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
        Workload(name="W4", key="src", size_seconds=60, every_seconds=60, kind="join"),
        Workload(name="W5", key="src", size_seconds=60, every_seconds=60, kind="product"),
    )
}
"""The workloads by name; W1 is the hourly mean of StreamCloud's elasticity experiment.

W3, W4 and W5 are the aggregate, the join and the Cartesian product of its section X-A.
"""

ABOVE_KM = 800.0
"""W4 writes the pairs that are farther apart, so that it measures the join and not the disk."""
