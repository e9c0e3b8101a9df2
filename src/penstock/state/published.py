"""The marker that says that a committed epoch is published.

Law: a marker counts only for the manifest that it was written for. One that is damaged, or that
belongs to another epoch, counts as none, and the epoch is published again, which changes nothing
where it was published before.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from penstock.base.errors import CheckpointError
from penstock.files.place import Place
from penstock.files.sealed import seal, unseal
from penstock.state.manifests import Manifest

KIND = "marker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """Says that an epoch is published, by the hash of its manifest."""

    epoch: int
    manifest: str

    @classmethod
    def of(cls, manifest: Manifest) -> Marker:
        """Return the marker of a manifest."""
        return cls(epoch=manifest.epoch, manifest=manifest.digest)

    def to_bytes(self) -> bytes:
        """Return the marker as the bytes of its file."""
        return seal(KIND, self)


def published_marker(root: Place, epoch: int) -> Place:
    """Return the file that says that an epoch is published."""
    return root / "published" / f"{epoch:012d}.done"


def mark_published(root: Place, manifest: Manifest) -> None:
    """Write down that an epoch is published; another driver may have come to the same end."""
    with suppress(FileExistsError):
        published_marker(root, manifest.epoch).write_new(Marker.of(manifest).to_bytes())


def is_published(root: Place, manifest: Manifest) -> bool:
    """Return whether an epoch was published."""
    try:
        return marks(published_marker(root, manifest.epoch), manifest)
    except (FileNotFoundError, CheckpointError):
        return False


def marks(marker: Place, manifest: Manifest) -> bool:
    """Return whether a marker is the one of a manifest.

    Raises:
        FileNotFoundError: There is no marker.
        CheckpointError: It is damaged.
    """
    return unseal(KIND, marker, Marker) == Marker.of(manifest)
