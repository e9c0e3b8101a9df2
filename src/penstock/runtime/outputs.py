"""The outputs of committed epochs: sinks, late rows, dead letters.

Law: what a committed epoch has staged is published once, by the driver that committed it or by the
next one; a file goes where it was meant to go when it was staged, whatever the query is now.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import polars as pl

from penstock.errors import CheckpointError
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import SinkPlan, StagedFile
from penstock.query.nodes import Sink
from penstock.runtime.pinned import sink_name
from penstock.sinks.publish import epoch_folder, publish_folder, read_published
from penstock.sinks.staging import read_staged, staging_folder
from penstock.state.files import Place, place_of
from penstock.state.manifests import Manifest
from penstock.state.published import is_published, mark_published, published_marker


class Publisher(Protocol):
    """Gives the rows of a committed epoch to a sink that is not a folder."""

    def __call__(self, sink: int, epoch: int, files: Sequence[StagedFile]) -> None:
        """Publish one epoch for one sink; may be called again for the same epoch."""
        ...


class Outputs:
    """Where a query's outputs wait, and how they become visible."""

    def __init__(
        self, root: Place, query: CompiledQuery, publisher: Publisher, *, fsync: bool
    ) -> None:
        """Find out where the sinks of a query are."""
        self.root, self.publisher, self.fsync = root, publisher, fsync
        names = _named(query)
        self.plans = {number: _plan(root, names[number], sink) for number, sink in query.sinks}
        self.folders = {n for n, sink in query.sinks if sink.kind == "parquet"}
        self._published: tuple[StagedFile, ...] = ()

    @property
    def staging(self) -> list[Place]:
        """The folders beside sinks in which their files wait."""
        return [
            place_of(plan.staging, fsync=self.fsync)
            for number, plan in self.plans.items()
            if number in self.folders
        ]

    def publish(self, manifest: Manifest, *, verify: bool = False) -> None:
        """Make what an epoch has staged visible, unless that was done before.

        Args:
            manifest: The manifest of the epoch.
            verify: Whether to read the files first; after a crash, they may be damaged.

        Raises:
            CheckpointError: A staged file is missing or damaged.
        """
        if is_published(self.root, manifest):
            return
        called = {plan.target for n, plan in self.plans.items() if n not in self.folders}
        for target in sorted({staged.target for staged in manifest.staged} - called):
            files = [staged for staged in manifest.staged if staged.target == target]
            self._publish_folder(target, manifest.epoch, files, verify=verify)
        for number, plan in self.plans.items():
            if number not in self.folders:
                files = [staged for staged in manifest.staged if staged.target == plan.target]
                self.publisher(number, manifest.epoch, files)
        mark_published(self.root, manifest)
        self._forget(manifest)

    def _publish_folder(
        self, target: str, epoch: int, files: Sequence[StagedFile], *, verify: bool
    ) -> None:
        if not target.startswith("/") and "://" not in target:
            return  # a sink that is no folder, of a query that had one more
        place = place_of(target, fsync=self.fsync)
        published = epoch_folder(place, epoch)
        if verify and not published.exists():
            try:
                _verify(files)
            except CheckpointError:  # unless another driver has just published them
                if not published.exists():
                    raise
        publish_folder(place, epoch, files)

    def _forget(self, manifest: Manifest) -> None:
        """Remove what the epoch before has left: its marker and files for other sinks.

        A sink's function may use its frame for as long as the next epoch has not come.
        """
        published_marker(self.root, manifest.epoch - 1).delete()
        for staged in self._published:
            place_of(staged.path, fsync=self.fsync).delete()
        ours = f"{self.root}/staged/"
        self._published = tuple(s for s in manifest.staged if s.path.startswith(ours))

    def close(self) -> None:
        """Remove the staging folders that are empty."""
        for folder in self.staging:
            with suppress(OSError):
                folder.delete()


def _plan(root: Place, name: str, sink: Sink) -> SinkPlan:
    if sink.kind != "parquet":
        return SinkPlan(target=name, staging=f"{root}/staged")
    target = str(place_of(sink.target))
    return SinkPlan(target=target, staging=staging_folder(target))


def _named(query: CompiledQuery) -> dict[int, str]:
    """Return the name of each sink; of several with one name, all but the first get a number."""
    names: dict[int, str] = {}
    for number, sink in query.sinks:
        name = sink_name(sink)
        same = sum(sink_name(query.sinks[i][1]) == name for i in range(len(names)))
        names[number] = f"{name} #{same + 1}" if same else name
    return names


def read_side_output(root: Place, kind: str) -> dict[int, pl.DataFrame]:
    """Return the published late rows or dead letters of a checkpoint, by source.

    Raises:
        CheckpointError: A file is damaged.
    """
    found = {}
    for entry in (root / kind).list():
        epochs = read_published(root / kind / entry.name)
        frames = [
            frame.with_columns(pl.lit(epoch, dtype=pl.Int64).alias("epoch"))
            for epoch, frame in epochs.items()
        ]
        if frames:
            found[int(entry.name)] = pl.concat(frames, how="diagonal")
    return found


def _verify(files: Sequence[StagedFile]) -> None:
    for file in files:
        read_staged(file)
