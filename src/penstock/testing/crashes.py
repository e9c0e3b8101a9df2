"""Crashes: a driver that dies in the middle of an epoch, and its successor.

Law: a crash is a point between two writes; what was written before it stays, nothing after it is.
"""

from __future__ import annotations

from penstock.files.place import Place
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import EpochPlan, TaskReport
from penstock.state.manifests import Manifest, ManifestLog
from penstock.testing.runner import Batch, LocalRun


class DriverDeathError(Exception):
    """The driver dies here; meant for tests alone."""


class DyingLog(ManifestLog):
    """Manifests of a driver that dies while it commits, before or after the manifest exists."""

    def __init__(self, root: Place, *, committed: bool) -> None:
        """Use a checkpoint's manifests; ``committed`` says whether the last one gets written."""
        super().__init__(root)
        self.committed = committed

    def commit(self, manifest: Manifest) -> None:
        """Commit an epoch, or do not, and die."""
        if self.committed:
            super().commit(manifest)
        raise DriverDeathError


class CrashingRun(LocalRun):
    """A run that can die in an epoch, and be asked for that epoch again, as Spark would."""

    def die_in(self, batch: Batch, *, committed: bool) -> None:
        """Run the tasks of an epoch and die before or right after its commit."""
        self.driver.log = DyingLog(self.driver.root, committed=committed)
        try:
            self.epoch(batch)
        except DriverDeathError:
            return
        raise AssertionError("the driver outlived its own crash")

    def again(self, epoch: int, batch: Batch) -> None:
        """Run an epoch by number, or only publish it if it was committed before."""
        if self.next_epoch == epoch:
            self.epoch(batch)
            return
        result = self.driver.run_epoch(epoch, _not_again)
        assert result.replayed


def _not_again(query: CompiledQuery, plan: EpochPlan) -> list[TaskReport]:
    raise AssertionError(f"epoch {plan.epoch} was committed and must not run again")
