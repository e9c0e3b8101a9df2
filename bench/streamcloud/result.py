"""What a figure gives: the paper's claim, whether it holds here, by how much, and the numbers.

Law: a page or a picture shows nothing that is not in the result, so its JSON is all to be kept.
"""

import os
import platform
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

Number = float | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line, or the bars of one colour; `x` are numbers or names."""

    name: str
    x: tuple[float | str, ...]
    y: tuple[Number, ...]
    dashed: bool = False

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise ValueError(f"series {self.name!r}: {len(self.x)} x for {len(self.y)} y")


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Series that share their axes.

    `kind` is `line`, `step`, `bar` (side by side) or `stack` (one upon the other). `levels` are
    horizontal lines such as thresholds, `marks` vertical ones where something changes.
    """

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    kind: str = "line"
    levels: dict[str, float] = field(default_factory=dict)
    marks: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Where the runs were made, and how many cores others kept busy meanwhile."""

    cores: int
    memory_gib: float
    python: str
    system: str
    others_cores: float = 0.0

    @staticmethod
    def here(others_cores: float = 0.0) -> "Machine":
        """Return this machine."""
        return Machine(
            cores=os.cpu_count() or 1,
            memory_gib=round(psutil.virtual_memory().total / 2**30, 1),
            python=platform.python_version(),
            system=platform.platform(terse=True),
            others_cores=round(others_cores, 2),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a figure's function found: `by` says in sentences with numbers why it holds or not."""

    holds: bool
    by: str
    panels: tuple[Panel, ...]
    parameters: dict[str, float | int | str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A figure of the paper, measured here."""

    figure: str
    title: str
    claim: str
    holds: bool
    by: str
    series: tuple[Panel, ...]
    parameters: dict[str, float | int | str]
    notes: tuple[str, ...]
    machine: Machine
    command: str
    seconds: float
    quick: bool

    def to_json(self) -> bytes:
        """Return the result as JSON that a person can read."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1)

    @staticmethod
    def read(path: Path) -> "Result":
        """Return the result of a file that has the bytes of `to_json`."""
        return msgspec.json.decode(path.read_bytes(), type=Result)
