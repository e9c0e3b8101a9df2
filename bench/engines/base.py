"""What an engine is given and what it gives back.

The law this module keeps: an engine's time runs from the start of the query to its end, with
the process up and the engine warmed on other data, for every engine alike.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.workloads import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineJob:
    """One timed run: a question, its input and a folder that is the engine's own."""

    engine: str
    workload: Workload
    calls: Path
    warm: Path
    out: Path
    work: Path
    files_per_epoch: int

    @property
    def name(self) -> str:
        """What the job is called in errors."""
        return self.workload.name

    def warmed(self) -> "EngineJob":
        """Return the same job on the small warm-up input, with its own output and state."""
        return EngineJob(
            engine=self.engine,
            workload=self.workload,
            calls=self.warm,
            warm=self.warm,
            out=self.work / "warm-out",
            work=self.work / "warm",
            files_per_epoch=1,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values that `from_json` takes."""
        return {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(self).items()
        }

    @staticmethod
    def from_json(values: dict[str, Any]) -> "EngineJob":
        """Return the job that `to_json` was given."""
        paths = {name: Path(values[name]) for name in ("calls", "warm", "out", "work")}
        workload = Workload(**values["workload"])
        return EngineJob(**{**values, **paths, "workload": workload})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTimes:
    """Seconds from start to end, and milliseconds of each epoch that read rows."""

    seconds: float
    epoch_ms: tuple[float, ...]
