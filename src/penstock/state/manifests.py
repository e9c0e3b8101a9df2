"""Manifests: the one commit point of an epoch.

A manifest is a small JSON file with everything that an epoch leaves behind; it exists or it does
not. Laws: a manifest is created only if absent, so of two drivers one is fenced; each names the
hash of the one before, so a history that was tampered with is noticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.errors import CheckpointError, FencedError
from penstock.plan.epoch import SegmentRef, StagedFile, segment_ref
from penstock.state.files import write_new

FORMAT = 1
KEPT = 10
"""How many manifests stay behind the newest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What an epoch left behind."""

    epoch: int
    previous: str = ""
    seen: Mapping[int, int] = field(default_factory=dict)
    rows_before: Mapping[int, int] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    segments: Mapping[str, tuple[SegmentRef, ...]] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    staged: tuple[StagedFile, ...] = ()
    heard_at: Mapping[int, float] = field(default_factory=dict)
    final: bool = False

    def to_bytes(self) -> bytes:
        """Return the manifest as the bytes of its file."""
        return json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Return the manifest of a file's bytes."""
        raw: dict[str, Any] = json.loads(data)
        if raw.pop("format") != FORMAT:
            raise ValueError("another format")
        return cls(
            **raw
            | {
                "seen": _by_number(raw["seen"]),
                "rows_before": _by_number(raw["rows_before"]),
                "heard_at": _by_number(raw["heard_at"]),
                "segments": {
                    op: tuple(segment_ref(r) for r in refs) for op, refs in raw["segments"].items()
                },
                "staged": tuple(StagedFile(**s) for s in raw["staged"]),
            }
        )

    @property
    def digest(self) -> str:
        """The hash by which the next manifest names this one."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def segment_names(self) -> set[tuple[str, str]]:
        """Return the (operator, file) pairs of the live segments."""
        return {(op, ref.name) for op, refs in self.segments.items() for ref in refs}


def _by_number(raw: Mapping[str, Any]) -> dict[int, Any]:
    return {int(key): value for key, value in raw.items()}


class ManifestLog:
    """The manifests of a checkpoint folder."""

    def __init__(self, root: Path) -> None:
        """Use the manifests under a checkpoint's own folder."""
        self.folder = root / "manifests"
        self.state = root / "state"

    def path(self, epoch: int) -> Path:
        """Return the file of an epoch's manifest."""
        return self.folder / f"{epoch:012d}.json"

    def epochs(self) -> list[int]:
        """Return the epochs whose manifests are kept, oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted(int(p.stem) for p in self.folder.glob("[0-9]*.json"))

    def read(self, epoch: int) -> Manifest | None:
        """Return an epoch's manifest, or None if the epoch was never committed."""
        path = self.path(epoch)
        try:
            return Manifest.from_bytes(path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(path=str(path), reason=f"not a manifest: {error}") from error

    def newest(self) -> Manifest | None:
        """Return the newest manifest, checked against the hash chain."""
        epochs = self.epochs()
        if not epochs:
            return None
        newest = self.read(epochs[-1])
        before = self.read(epochs[-2]) if len(epochs) > 1 else None
        assert newest is not None
        if before is not None and newest.previous != before.digest:
            raise CheckpointError(
                path=str(self.path(newest.epoch)),
                reason="the manifest does not follow the one before it",
            )
        return newest

    def commit(self, manifest: Manifest, *, fsync: bool = True) -> None:
        """Make an epoch happen.

        Raises:
            FencedError: Another driver has committed this epoch.
        """
        path = self.path(manifest.epoch)
        try:
            write_new(path, manifest.to_bytes(), fsync=fsync)
        except FileExistsError as error:
            raise FencedError(
                path=str(path),
                reason=("another driver has committed this epoch; this query has changed nothing"),
            ) from error

    def retire(self, newest: int) -> None:
        """Remove manifests beyond those kept, and the segments that only they name."""
        old = [epoch for epoch in self.epochs() if epoch < newest - KEPT]
        for epoch in old:
            manifest, after = self.read(epoch), self.read(epoch + 1)
            if manifest is not None and after is not None:
                for operator, name in manifest.segment_names() - after.segment_names():
                    (self.state / operator / name).unlink(missing_ok=True)
            self.path(epoch).unlink(missing_ok=True)

    def remove_orphans(self) -> int:
        """Remove segments that no kept manifest names; only safe before a run's first epoch."""
        named = {
            pair
            for epoch in self.epochs()
            if (m := self.read(epoch)) is not None
            for pair in m.segment_names()
        }
        orphans = [p for p in self.state.glob("*/*") if (p.parent.name, p.name) not in named]
        for path in orphans:
            path.unlink(missing_ok=True)
        return len(orphans)
