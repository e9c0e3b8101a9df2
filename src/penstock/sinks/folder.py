"""Folders of Parquet files, one folder for each epoch: what `write_parquet` writes.

Late rows and dead letters are such folders, too, in the checkpoint. Laws: a reader sees an epoch
whole or not at all, and once, whoever publishes it and however often; an epoch appears only under a
number that belongs to its query (`penstock.sinks.owners`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import polars as pl

from penstock.base.errors import CheckpointError, OutputError
from penstock.files.place import Place, place_of
from penstock.plan.epoch import Output, SinkPlan, StagedFile
from penstock.query.nodes import Sink
from penstock.sinks.epochs import epoch_name, epochs_in
from penstock.sinks.owners import Claimant, check_owner, claim_folder, end_of
from penstock.sinks.parts import count_parts, verify_parts
from penstock.sinks.publish import publish_folder, read_published
from penstock.sinks.sink import Committed, LastingKind, Look, Opening, OpenSink, TableOptions
from penstock.sinks.staged import read_staged_bytes


class Folder(LastingKind):
    """Writes results to a folder that belongs to the query."""

    table_options = TableOptions(target="path", options=("mode",))

    def place(self, sink: Sink) -> str:
        """Return the folder's path, absolute and without a slash at its end."""
        text = str(sink.target).removeprefix("file://")
        remote = "://" in text
        return text.rstrip("/") if remote else str(Path(text).expanduser().absolute())

    def name(self, sink: Sink) -> str:
        """Return the folder's path or URI."""
        return str(place_of(sink.target))

    def open(self, sink: Sink, opening: Opening) -> OpenFolder:
        """Make the folder the query's own, or find that it is."""
        place = place_of(opening.target, fsync=opening.fsync)
        claimant = Claimant(
            owner=opening.owner,
            checkpoint=str(opening.root.parent),
            next_epoch=opening.next_epoch,
            mode=sink.mode,
            known=opening.known,
            waits=opening.waits,
        )
        try:
            claim = claim_folder(place, claimant)
        except OSError as error:
            reason = f"it cannot be written: {error}; give a folder beside which files can be made"
            raise OutputError(path=opening.target, reason=reason) from error
        plan = SinkPlan(
            kind=sink.kind,
            target=opening.target,
            staging=staging_folder(opening.target, opening.owner),
            first=claim.first,
            since=claim.begin - claim.first,
        )
        return OpenFolder(plan, owner=opening.owner, fsync=opening.fsync)

    def take_over(self, target: str, *, owner: str, fsync: bool) -> OpenFolder:
        """Return who publishes in a folder of which only the files tell."""
        plan = SinkPlan(target=target, staging=staging_folder(target, owner))
        return OpenFolder(plan, owner=owner, fsync=fsync)

    def where(self, target: str, number: int) -> Place:
        """Return the folder of an epoch."""
        return place_of(target) / epoch_name(number)

    def find(self, target: str, owner: str, output: Output) -> Mapping[int, Place]:
        """Return the folders of a query's epochs: those between its claim and the next."""
        place, begin = place_of(target), output.first + output.since
        end = end_of(place, owner, begin)
        return {
            number - output.first: place / name
            for number, name in epochs_in(place).items()
            if number >= begin and (end is None or number < end)
        }

    def verify(self, place: Place, files: Sequence[StagedFile] | None) -> Look:
        """Compare the files of an epoch with those that were staged, or with their own names."""
        return verify_parts(place, files)

    def count(self, place: Place) -> Look:
        """Count the rows of an epoch by the footers of its files."""
        return count_parts(place)

    def read(self, target: str) -> dict[int, pl.DataFrame]:
        """Return the rows by the number of their epoch in the folder."""
        return read_published(place_of(target))


class OpenFolder(OpenSink):
    """A folder to which a query publishes."""

    def __init__(self, plan: SinkPlan, *, owner: str, fsync: bool) -> None:
        """Publish to the folder of a plan for a query, by its own word."""
        super().__init__(plan)
        self.owner, self.fsync = owner, fsync
        self.folder = place_of(plan.target, fsync=fsync)

    def publish(self, committed: Committed) -> None:
        """Make an epoch appear in the folder, unless it is there."""
        if not committed.files:
            return
        if committed.files[0].kind == "output":  # the checkpoint's own folders have no claims
            check_owner(self.folder, self.owner, committed.number)
        if committed.recovered:
            self._verify(committed)
        try:
            publish_folder(self.folder, committed.number, committed.files)
        except FileNotFoundError as error:
            reason = (
                f"it was moved or removed while the query ran, and its files with it: {error}; put "
                f"back what is missing and start again; epoch {committed.number} is committed and "
                "waits"
            )
            raise OutputError(path=self.plan.target, reason=reason) from error

    def _verify(self, committed: Committed) -> None:
        published = self.folder / epoch_name(committed.number)
        if published.exists():
            return
        try:
            for file in committed.files:
                read_staged_bytes(file)
        except CheckpointError:  # unless another driver has just published them
            if not published.exists():
                raise

    def close(self) -> None:
        """Remove the folder in which files waited, if it is empty."""
        with suppress(OSError):
            place_of(self.plan.staging, fsync=self.fsync).delete()


def staging_folder(target: str, owner: str) -> str:
    """Return the folder beside a sink's folder where the files of a query wait.

    Each has its own, since a query sweeps away what it does not know.

    >>> staging_folder("/out/heavy", "1a2b3c4d5e6f")
    '/out/.heavy.staging-1a2b3c4d'
    """
    parent, _, name = target.rstrip("/").rpartition("/")
    return f"{parent}/.{name}.staging-{owner[:8]}"
