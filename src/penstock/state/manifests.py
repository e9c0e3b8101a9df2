"""Manifests: the one commit point of an epoch.

A manifest is a small sealed file with everything that an epoch leaves behind, a whole snapshot; it
exists or it does not. Laws: a manifest is created only if absent, so of two drivers one is fenced;
each names the hash of the one before, so a history that was tampered with is noticed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.base.errors import CheckpointError, FencedError
from penstock.files.place import Place, sha256
from penstock.files.sealed import seal, unseal
from penstock.plan.buckets import BucketSet
from penstock.plan.changes import Reconfiguration
from penstock.plan.epoch import Output, SegmentRef, StagedFile
from penstock.plan.files import FILE_COUNTERS, FileAccounts, UnreadFile
from penstock.plan.progress import Progress
from penstock.plan.tails import Tail, state_folder

KIND = "manifest"
_LOG = logging.getLogger(__name__)
_SIDE = re.compile(r"/penstock/((?:late|dead)/\d+)$")
_NAME = re.compile(r"(\d{12})\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Buckets of a live segment that stand at one mark.

    ``before_us`` is the time from which on its rows are also another lineage's, and count there;
    None if there is no such time. So every row that is kept is found once.
    """

    ref: SegmentRef
    mark: int
    buckets: BucketSet
    before_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an epoch left behind.

    Attributes:
        epoch: The epoch.
        previous: The hash of the manifest before it.
        writer: The run that wrote it; no two runs have the same.
        committed_at: When it was written, in seconds since 1970.
        seen: The highest event time of each source.
        rows_before: How many rows of each source have arrived in all.
        watermarks: The highest watermark that the input of each stateful operator has had.
        progress: How far the buckets of each stateful operator, and of each of its tails, are.
        segments: The live segments of each stateful operator, and of each of its tails.
        instances: How many instances each subquery had.
        owners: Who owned each bucket, as runs (`BucketMap.runs`), by the subquery's name.
        reconfigured: The changes that took effect, or ended, with this epoch.
        tails: Windows of buckets on their way that old owners still finish.
        totals: What became of all rows so far.
        files_seen: How many files each source has handed out.
        files_read: How many of them were read.
        waiting_files: Files that could not be read and will be tried again.
        refused_files: Files that were given up.
        source_names: What the sources are called; no two have the same name.
        staged: The files that the epoch publishes.
        outputs: What each output has got so far: sinks by target, late rows and dead letters by
            their folder in the checkpoint.
        query: The query's own word, the same for all runs on the checkpoint.
        heard_at: When each source last had rows.
        spark_log: The hashes of the files of Spark's own log that the epoch depends on.
        final: Whether the query has ended.
        repaired: What a repair changed, if one did.
    """

    epoch: int
    previous: str = ""
    writer: str = ""
    committed_at: float = 0.0
    seen: Mapping[int, int] = field(default_factory=dict)
    rows_before: Mapping[int, int] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    progress: Mapping[str, Progress] = field(default_factory=dict)
    segments: Mapping[str, tuple[SegmentRef, ...]] = field(default_factory=dict)
    instances: Mapping[int, int] = field(default_factory=dict)
    owners: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    reconfigured: tuple[Reconfiguration, ...] = ()
    tails: tuple[Tail, ...] = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    files_seen: Mapping[int, int] = field(default_factory=dict)
    files_read: Mapping[int, int] = field(default_factory=dict)
    waiting_files: tuple[UnreadFile, ...] = ()
    refused_files: tuple[UnreadFile, ...] = ()
    source_names: Mapping[int, str] = field(default_factory=dict)
    staged: tuple[StagedFile, ...] = ()
    outputs: Mapping[str, Output] = field(default_factory=dict)
    query: str = ""
    heard_at: Mapping[int, float] = field(default_factory=dict)
    spark_log: Mapping[str, str] = field(default_factory=dict)
    final: bool = False
    repaired: str = ""

    def to_bytes(self) -> bytes:
        """Return the manifest as the bytes of its file."""
        return seal(KIND, self)

    @property
    def digest(self) -> str:
        """The hash by which the next manifest names this one."""
        return sha256(self.to_bytes())

    @property
    def file_accounts(self) -> FileAccounts:
        """What is known of the files of all sources."""
        return FileAccounts(
            seen=self.files_seen,
            read=self.files_read,
            waiting=self.waiting_files,
            refused=self.refused_files,
        )

    @property
    def file_totals(self) -> dict[str, int]:
        """How many files were seen, read and refused so far, and how many wait."""
        counts = self.file_accounts.by_source().values()
        return {name: sum(count[name] for count in counts) for name in FILE_COUNTERS}

    def segment_names(self) -> set[tuple[str, str]]:
        """Return the (operator, file) pairs of the live segments."""
        return {(state_folder(op), ref.name) for op, refs in self.segments.items() for ref in refs}

    def output(self, target: str) -> Output:
        """Return what an output has got so far, by where its files go."""
        return self.outputs.get(output_name(target), Output())

    def lowest(self, operator: str) -> int:
        """Return the lowest mark of an operator's buckets, those of its tails included."""
        return min(p.lowest for name, p in self.progress.items() if state_folder(name) == operator)

    def kept(self, operator: str) -> list[Kept]:
        """Return the live segments of an operator and its tails, cut by marks."""
        before = {tail.name: tail.before_us for tail in self.tails}
        return [
            Kept(ref=ref, mark=mark, buckets=buckets, before_us=before.get(name))
            for name, refs in self.segments.items()
            if state_folder(name) == operator
            for ref in refs
            for mark, buckets in _cut(ref.buckets, self.progress[name])
        ]


def output_name(target: str) -> str:
    """Return the name under which an output is counted; it stays if the checkpoint is moved.

    >>> output_name("/ck/penstock/late/0"), output_name("/out"), output_name("memory results")
    ('late/0', '/out', 'memory results')
    """
    found = _SIDE.search(target)
    return found[1] if found else target


def _cut(stored: BucketSet, progress: Progress) -> list[tuple[int, BucketSet]]:
    """Return the buckets of a segment by their marks; all of a grid stand at one."""
    if len(progress.sets) == 1:
        return [(progress.lowest, stored)]
    return [(mark, mine & stored) for mark, mine in progress.shares if mine & stored]


class ManifestLog:
    """The manifests of a checkpoint."""

    def __init__(self, root: Place) -> None:
        """Use the manifests under a checkpoint's own folder."""
        self.folder = root / "manifests"

    def place(self, epoch: int) -> Place:
        """Return the file of an epoch's manifest."""
        return self.folder / f"{epoch:012d}.json"

    def epochs(self) -> list[int]:
        """Return the epochs whose manifests are kept, oldest first."""
        names = [_NAME.fullmatch(entry.name) for entry in self.folder.list()]
        return sorted(int(name[1]) for name in names if name is not None)

    def read(self, epoch: int) -> Manifest | None:
        """Return an epoch's manifest, or None if there is none.

        Raises:
            CheckpointError: It is damaged, or stands where another belongs.
        """
        place = self.place(epoch)
        try:
            manifest = unseal(KIND, place, Manifest)
        except FileNotFoundError:
            return None
        if manifest.epoch != epoch:
            reason = f"damaged: it is the manifest of epoch {manifest.epoch}"
            raise CheckpointError(path=str(place), reason=reason)
        return manifest

    def newest(self) -> Manifest | None:
        """Return the newest manifest, checked against the one before it."""
        epochs = self.epochs()
        if not epochs:
            return None
        newest = self.read(epochs[-1])
        if newest is None:
            raise CheckpointError(
                path=str(self.place(epochs[-1])), reason="the newest manifest has just vanished"
            )
        before = self.read(epochs[-1] - 1)
        if before is not None:
            self.check_follows(newest, before)
        return newest

    def check_follows(self, manifest: Manifest, before: Manifest) -> None:
        """Check that a manifest was written after another and for no other.

        Raises:
            CheckpointError: It was not.
        """
        if manifest.previous != before.digest:
            raise CheckpointError(
                path=str(self.place(manifest.epoch)),
                reason=f"damaged: it does not follow the manifest of epoch {before.epoch}",
            )

    def commit(self, manifest: Manifest) -> None:
        """Make an epoch happen.

        Raises:
            FencedError: Another driver has committed this epoch.
        """
        place = self.place(manifest.epoch)
        try:
            place.write_new(manifest.to_bytes())
        except FileExistsError as error:
            raise make_fenced_error(place) from error
        newest = max(self.epochs())
        if newest > manifest.epoch:
            following = self.read(manifest.epoch + 1)
            if following is None or following.previous != manifest.digest:
                place.delete()  # others went on for so long that this epoch is forgotten
            raise make_fenced_error(self.place(newest))


def make_fenced_error(place: Place) -> FencedError:
    """Return the error of a driver that finds an epoch committed by another."""
    error = FencedError(
        path=str(place),
        reason=(
            "another driver has committed this epoch, so two of them run on one checkpoint; this "
            "one stops and has changed nothing; stop one of the two for good"
        ),
    )
    _LOG.warning("%s", error)
    return error
