"""The stager: rows that leave the query, in files that nobody sees until the commit.

Law: every row that was given is in exactly one staged file once all are flushed; files are neither
many nor huge.
"""

from __future__ import annotations

import polars as pl

from penstock.plan.epoch import EpochPlan, SinkPlan, StagedFile
from penstock.sinks.staging import stage_frame
from penstock.task.phases import Phases

FILE_ROWS = 1 << 20
"""A sink's rows are written once there are so many; the rest at the end."""


class Stager:
    """The staged files of an instance in an epoch.

    Attributes:
        files: What was staged.
        rows_out: How many rows each sink was given.
    """

    def __init__(self, plan: EpochPlan, phases: Phases) -> None:
        """Begin with none.

        Args:
            plan: The plan of the epoch.
            phases: Counts the time that staging takes.
        """
        self._plan, self._phases = plan, phases
        self._waiting: dict[int, list[pl.DataFrame]] = {}
        self.files: list[StagedFile] = []
        self.rows_out: dict[int, int] = {}

    def give(self, sink: int, rows: pl.DataFrame) -> None:
        """Take rows for a sink; they wait for others until there are enough for a file."""
        self.rows_out[sink] = self.rows_out.get(sink, 0) + rows.height
        waiting = self._waiting.setdefault(sink, [])
        waiting += [rows] if rows.height else []
        if sum(part.height for part in waiting) >= FILE_ROWS:
            self.flush()

    def flush(self) -> None:
        """Stage the rows of sinks that wait."""
        for sink, waiting in self._waiting.items():
            if waiting:
                self._stage("output", self._plan.sinks[sink], pl.concat(waiting))
                waiting.clear()

    def stage_late(self, source: int, rows: pl.DataFrame) -> None:
        """Stage late rows of a source."""
        self._stage("late", self._beside("late", source), rows)

    def stage_dead(self, letters: pl.DataFrame) -> None:
        """Stage dead letters."""
        self._stage("dead", self._beside("dead", 0), letters)

    def _beside(self, kind: str, number: int) -> SinkPlan:
        """Return where rows go that no sink gets: to the checkpoint."""
        root = self._plan.checkpoint
        return SinkPlan(target=f"{root}/{kind}/{number}", staging=f"{root}/staged")

    def _stage(self, kind: str, sink: SinkPlan, rows: pl.DataFrame) -> None:
        if rows.height:
            with self._phases.measure("stage"):
                epoch, fsync = self._plan.epoch, self._plan.fsync
                self.files.append(stage_frame(sink, kind, epoch, rows, fsync=fsync))
