"""The in-memory sink: tables in the driver, kept by epoch, so a repeated epoch adds nothing."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import polars as pl

from penstock.plan.epoch import StagedFile
from penstock.sinks.staging import read_staged


class Tables:
    """The memory sinks of one query."""

    def __init__(self, schemas: Mapping[str, Mapping[str, pl.DataType]]) -> None:
        """Make an empty table for each name."""
        self._schemas = {name: dict(schema) for name, schema in schemas.items()}
        self._epochs: dict[str, dict[int, pl.DataFrame]] = {name: {} for name in schemas}
        self._lock = threading.Lock()

    def put(self, name: str, epoch: int, files: Sequence[StagedFile]) -> None:
        """Take the rows of an epoch."""
        frames = [read_staged(file) for file in files]
        if frames:
            with self._lock:
                self._epochs[name][epoch] = pl.concat(frames)

    def read(self, name: str) -> pl.DataFrame:
        """Return the rows of a table, epoch by epoch.

        Raises:
            KeyError: No memory sink has the name.
        """
        if name not in self._schemas:
            raise KeyError(f"no memory sink {name!r}; memory sinks: {sorted(self._schemas)}")
        with self._lock:
            frames = [frame for _, frame in sorted(self._epochs[name].items())]
        return pl.concat([pl.DataFrame(schema=self._schemas[name]), *frames])
