"""Settings: ``spark.penstock.*``, read once when a query starts.

Law: what changes the meaning of a query is pinned in its checkpoint; everything else may change
from one run to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

import msgspec

from penstock.base.errors import ConfigError

PREFIX = "spark.penstock."
STRATEGIES = ("operator-set-cloud", "operator-cloud", "query-cloud")
_ALLOWED = {bool: "true or false", int: "a whole number"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How a query runs.

    Attributes:
        buckets: How many buckets keys are hashed to; pinned in the checkpoint.
        instances: How many instances each subquery has.
        strategy: How a query is split into subqueries.
        elastic: Rules for elasticity as text, such as ``min=1,max=8,target=0.6``.
        maxRefusedRows: How many rows may be refused in all before the query stops.
        maxRefusedFiles: How many files may be refused, or wait to be complete, before the query
            stops.
        fsync: Whether files are synced to disk before an epoch counts.
        retainEpochs: How many epochs back the state can be read, at least.
        retainSeconds: For how many seconds a past epoch's state can be read, at least.
        maxExecutors: How many executors the query may ask Spark for; 0 to ask for none unless it
            is elastic, and then for what a standalone cluster has.
        sparkFolder: Where Spark keeps its part of the checkpoint; in the checkpoint unless given.
        recentProgress: How many epochs ``recentProgress`` remembers.
        cacheBytes: How many bytes of state a worker process keeps in memory from one epoch to the
            next; 0 for a quarter of the machine's memory, shared out among the workers that can be
            busy at the same time.
    """

    buckets: int = 1024
    instances: int = 1
    strategy: str = "operator-set-cloud"
    elastic: str = ""
    maxRefusedRows: int = 10_000
    maxRefusedFiles: int = 1_000
    fsync: bool = True
    retainEpochs: int = 10
    retainSeconds: int = 60
    maxExecutors: int = 0
    sparkFolder: str = ""
    recentProgress: int = 100
    cacheBytes: int = 0

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            raise ConfigError(
                name=f"{PREFIX}strategy", value=self.strategy, allowed=", ".join(STRATEGIES)
            )
        for name, low in (
            ("buckets", 1),
            ("instances", 1),
            ("maxRefusedRows", 0),
            ("maxRefusedFiles", 0),
            ("retainEpochs", 1),
            ("retainSeconds", 0),
            ("recentProgress", 1),
            ("maxExecutors", 0),
            ("cacheBytes", 0),
        ):
            if getattr(self, name) < low:
                raise ConfigError(
                    name=f"{PREFIX}{name}", value=getattr(self, name), allowed=f"{low} or more"
                )

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], **overrides: Any) -> Config:
        """Return the config of Spark settings; overrides that are not None win.

        >>> Config.from_settings({"spark.penstock.instances": "4"}).instances
        4
        >>> Config.from_settings({"spark.penstock.instnaces": "4"})  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        penstock.base.errors.ConfigError: spark.penstock.instnaces='4' is not allowed; allowed: ...
        """
        known = get_type_hints(cls)
        values: dict[str, Any] = {}
        for key, text in settings.items():
            if not key.startswith(PREFIX):
                continue
            name = key.removeprefix(PREFIX)
            if name not in known:
                raise ConfigError(name=key, value=text, allowed=", ".join(known))
            values[name] = _convert(key, text, known[name])
        values |= {name: value for name, value in overrides.items() if value is not None}
        return cls(**values)


def _convert(key: str, text: str, kind: type) -> Any:
    try:
        return msgspec.convert(text.strip(), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(name=key, value=text, allowed=_ALLOWED[kind]) from error
