"""The engine: who explains and starts queries.

A seam: a query knows that it can be started, but neither Spark nor the driver, so that the packages
below it do not depend on those above. `penstock` itself says who the engine is when it is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.base.durations import Duration, parse_duration
from penstock.base.errors import QueryError
from penstock.query.nodes import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.control.elastic import Elastic
    from penstock.spark.handle import Query

Instances = int | Mapping[int, int] | str
"""How many instances: of each subquery, of some of them, or ``"auto"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOptions:
    """How a query is started; `penstock.query.sinks.Sinks.start` says what each option means."""

    checkpoint: str | Path
    name: str | None = None
    available_now: bool = False
    every: Duration | None = None
    finish: bool = False
    instances: Instances | None = None
    strategy: str | None = None
    elastic: Elastic | None = None

    def __post_init__(self) -> None:
        problems = []
        if self.finish and not self.available_now:
            problems.append("start: finish=True needs available_now=True; other input has no end")
        if self.available_now and self.every is not None:
            problems.append("start: give available_now or every, not both")
        if self.every is not None and parse_duration(self.every) <= 0:
            problems.append(f"start: every must be positive; every={self.every!r}")
        if problems:
            raise QueryError(problems=problems)


class Engine(Protocol):
    """Explains and starts whole queries."""

    def explain(
        self, sinks: tuple[Sink, ...], *, strategy: str, instances: int | str, mermaid: bool
    ) -> str:
        """Return how a query would run."""
        ...

    def start(self, sinks: tuple[Sink, ...], spark: SparkSession, options: StartOptions) -> Query:
        """Start a query."""
        ...


_ENGINES: list[Engine] = []


def use_engine(engine: Engine) -> None:
    """Let an engine explain and start all queries of this process."""
    _ENGINES[:] = [engine]


def the_engine() -> Engine:
    """Return the engine of this process."""
    return _ENGINES[0]
