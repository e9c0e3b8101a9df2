"""Manifests: the one commit point of an epoch.

A manifest is a small sealed file with everything that an epoch leaves behind, a whole snapshot; it
exists or it does not. Laws: a manifest is created only if absent, so of two drivers one is fenced;
each names the hash of the one before, so a history that was tampered with is noticed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.errors import CheckpointError, FencedError
from penstock.plan.changes import Reconfiguration
from penstock.plan.epoch import SegmentRef, StagedFile, segment_ref
from penstock.plan.tails import Tail, state_folder
from penstock.state.files import Place, sha256
from penstock.state.sealed import seal, unseal

KIND = "manifest"
_NAME = re.compile(r"(\d{12})\.json")
_LATER = ("owners", "reconfigured", "tails")
"""Fields that the first manifests did not have; if empty they are left out, so hashes stay."""


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
        watermarks: The watermark of each stateful operator.
        segments: The live segments of each stateful operator, and of each of its tails.
        instances: How many instances each subquery had.
        owners: Who owned each bucket, as runs (`BucketMap.runs`), by the subquery's name.
        reconfigured: The changes that took effect, or ended, with this epoch.
        tails: Windows of buckets on their way that old owners still finish.
        totals: What became of all rows so far.
        staged: The files that the epoch publishes.
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
    segments: Mapping[str, tuple[SegmentRef, ...]] = field(default_factory=dict)
    instances: Mapping[int, int] = field(default_factory=dict)
    owners: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    reconfigured: tuple[Reconfiguration, ...] = ()
    tails: tuple[Tail, ...] = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    staged: tuple[StagedFile, ...] = ()
    heard_at: Mapping[int, float] = field(default_factory=dict)
    spark_log: Mapping[str, str] = field(default_factory=dict)
    final: bool = False
    repaired: str = ""

    def to_bytes(self) -> bytes:
        """Return the manifest as the bytes of its file."""
        value = msgspec.to_builtins(self)
        return seal(KIND, {n: v for n, v in value.items() if v or n not in _LATER})

    @classmethod
    def of_value(cls, raw: Mapping[str, Any]) -> Manifest:
        """Return the manifest of what its file holds."""
        numbered = ("seen", "rows_before", "heard_at", "instances")
        return cls(
            **dict(raw)
            | {name: {int(key): value for key, value in raw[name].items()} for name in numbered}
            | {
                "segments": {
                    op: tuple(segment_ref(r) for r in refs) for op, refs in raw["segments"].items()
                },
                "staged": tuple(StagedFile(**s) for s in raw["staged"]),
                "owners": {
                    name: tuple((int(o), int(n)) for o, n in runs)
                    for name, runs in raw.get("owners", {}).items()
                },
                "reconfigured": tuple(Reconfiguration(**r) for r in raw.get("reconfigured", ())),
                "tails": msgspec.convert(raw.get("tails", ()), type=tuple[Tail, ...]),
            }
        )

    @property
    def digest(self) -> str:
        """The hash by which the next manifest names this one."""
        return sha256(self.to_bytes())

    def segment_names(self) -> set[tuple[str, str]]:
        """Return the (operator, file) pairs of the live segments."""
        return {(state_folder(op), ref.name) for op, refs in self.segments.items() for ref in refs}

    def lineages(self, operator: str) -> list[tuple[SegmentRef, int | None]]:
        """Return the live segments of an operator and its tails.

        With each comes the time from which on its rows are also another's, and count there: None
        for the main lineage. So every row that is kept is found once.
        """
        before = {tail.name: tail.before_us for tail in self.tails}
        return [
            (ref, before.get(name))
            for name, refs in self.segments.items()
            if state_folder(name) == operator
            for ref in refs
        ]


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
            manifest = Manifest.of_value(unseal(KIND, place))
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
            raise fenced(place) from error
        newest = max(self.epochs())
        if newest > manifest.epoch:
            following = self.read(manifest.epoch + 1)
            if following is None or following.previous != manifest.digest:
                place.delete()  # others went on for so long that this epoch is forgotten
            raise fenced(self.place(newest))


def fenced(place: Place) -> FencedError:
    """Return the error of a driver that finds an epoch committed by another."""
    return FencedError(
        path=str(place),
        reason=(
            "another driver has committed this epoch, so two of them run on one checkpoint; this "
            "one stops and has changed nothing; stop one of the two for good"
        ),
    )
