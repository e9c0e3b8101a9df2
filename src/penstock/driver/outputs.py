"""The outputs of committed epochs: sinks, late rows, dead letters.

Law: what a committed epoch has staged is published once, by the driver that committed it or by the
next one; a file goes where it was meant to go when it was staged, whatever the query is now.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import polars as pl

from penstock.base.errors import CheckpointError, OutputError
from penstock.driver.pinned import sink_name
from penstock.files.place import Place, place_of
from penstock.plan.compiled import CompiledQuery
from penstock.plan.epoch import SinkPlan, StagedFile
from penstock.query.nodes import Sink
from penstock.sinks.publish import publish_folder, read_published
from penstock.sinks.staging import read_staged, staging_folder
from penstock.state.epochs import epoch_name
from penstock.state.manifests import Manifest, output_name
from penstock.state.owners import Claimant, check_owner, claim_folder
from penstock.state.published import is_published, mark_published, published_marker


class Publisher(Protocol):
    """Gives the rows of a committed epoch to a sink that is not a folder."""

    def __call__(self, sink: int, epoch: int, files: Sequence[StagedFile]) -> None:
        """Publish one epoch for one sink; may be called again for the same epoch."""
        ...


class Outputs:
    """Where a query's outputs wait, and how they become visible."""

    def __init__(
        self,
        root: Place,
        query: CompiledQuery,
        publisher: Publisher,
        *,
        fsync: bool,
        owner: str,
        last: Manifest | None,
    ) -> None:
        """Find out where the sinks of a query are, and make their folders its own.

        Args:
            root: Penstock's folder in the checkpoint.
            query: The query.
            publisher: Gives rows to sinks that are not folders.
            fsync: Whether files are synced.
            owner: The query's own word.
            last: The newest manifest.

        Raises:
            OutputError: A folder belongs to another query.
        """
        self.root, self.publisher, self.fsync, self.owner = root, publisher, fsync, owner
        names = _named(query)
        self.plans = {n: self._plan(names[n], sink, last) for n, sink in query.sinks}
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
            number = manifest.output(target).first + manifest.epoch
            self._publish_folder(target, number, files, verify=verify)
        for number, plan in self.plans.items():
            if number not in self.folders:
                files = [staged for staged in manifest.staged if staged.target == plan.target]
                self.publisher(number, manifest.epoch, files)
        mark_published(self.root, manifest)
        self._forget(manifest)

    def _publish_folder(
        self, target: str, number: int, files: Sequence[StagedFile], *, verify: bool
    ) -> None:
        if not target.startswith("/") and "://" not in target:
            return  # a sink that is no folder, of a query that had one more
        place = place_of(target, fsync=self.fsync)
        published = place / epoch_name(number)
        if files[0].kind == "output":
            check_owner(place, self.owner, number)
        if verify and not published.exists():
            try:
                _verify(files)
            except CheckpointError:  # unless another driver has just published them
                if not published.exists():
                    raise
        try:
            publish_folder(place, number, files)
        except FileNotFoundError as error:
            reason = (
                f"it was moved or removed while the query ran, and its files with it: {error}; put "
                f"back what is missing and start again; epoch {number} is committed and waits"
            )
            raise OutputError(path=target, reason=reason) from error

    def _forget(self, manifest: Manifest) -> None:
        """Remove what the epoch before has left: its marker and files for other sinks.

        A sink's function may use its frame for as long as the next epoch has not come.
        """
        published_marker(self.root, manifest.epoch - 1).delete()
        for staged in self._published:
            place_of(staged.path, fsync=self.fsync).delete()
        ours = f"{self.root}/staged/"
        self._published = tuple(s for s in manifest.staged if s.path.startswith(ours))

    def _plan(self, name: str, sink: Sink, last: Manifest | None) -> SinkPlan:
        if sink.kind != "parquet":
            return SinkPlan(target=name, staging=f"{self.root}/staged")
        place = place_of(sink.target, fsync=self.fsync)
        target = str(place)
        known = last.outputs.get(output_name(target)) if last else None
        staged = last is not None and any(file.target == target for file in last.staged)
        claimant = Claimant(
            owner=self.owner,
            checkpoint=str(self.root.parent),
            next_epoch=last.epoch + 1 if last else 0,
            mode=sink.mode,
            known=known,
            waits=last is not None and staged and not is_published(self.root, last),
        )
        try:
            claim = claim_folder(place, claimant)
        except OSError as error:
            reason = f"it cannot be written: {error}; give a folder beside which files can be made"
            raise OutputError(path=target, reason=reason) from error
        staging = staging_folder(target, self.owner)
        since = claim.begin - claim.first
        return SinkPlan(target=target, staging=staging, first=claim.first, since=since)

    def close(self) -> None:
        """Remove the staging folders that are empty."""
        for folder in self.staging:
            with suppress(OSError):
                folder.delete()


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
