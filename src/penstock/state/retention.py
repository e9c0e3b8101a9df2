"""Retention: which manifests and files of the past go, and when.

A file that carries the number of an epoch up to the newest manifest, and that no kept manifest
names, can never be named again: manifests are written once, and later epochs name only what the
newest names and what they write themselves. Laws: nothing else is removed, so neither a driver that
runs beside this one nor a task that writes late loses a file that counts; a manifest stays for a
number of epochs and for some time, so a slow reader finds its files.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.base.errors import CheckpointError
from penstock.files.place import Place
from penstock.state.manifests import Manifest, ManifestLog

_LOG = logging.getLogger(__name__)
SWEEP = 16
"""Every so many epochs all folders are looked through for what dead attempts left behind."""
_NUMBERED = re.compile(r"\.?(\d{12})[-.]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A manifest of the past that can still be read."""

    epoch: int
    committed_at: float
    segments: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, manifest: Manifest) -> Kept:
        """Return what retention needs to know of a manifest."""
        return cls(
            epoch=manifest.epoch,
            committed_at=manifest.committed_at,
            segments=frozenset(manifest.segment_names()),
        )


class Retention:
    """Keeps the past of a checkpoint short."""

    def __init__(self, root: Place, *, epochs: int, seconds: float) -> None:
        """Keep manifests for at least so many epochs and so many seconds."""
        self.root, self.log = root, ManifestLog(root)
        self.epochs, self.seconds = epochs, seconds
        self.kept: deque[Kept] = deque()
        self._named: Counter[tuple[str, str]] = Counter()

    def open(self) -> None:
        """Look at the manifests that are there; one that is damaged keeps nothing alive.

        The driver has read the newest and knows that it is whole.
        """
        for epoch in self.log.epochs():
            try:
                manifest = self.log.read(epoch)
            except CheckpointError:  # history; `penstock state verify` tells of it
                continue
            if manifest is not None:
                self._keep(manifest)

    def committed(self, manifest: Manifest, staging: Iterable[Place]) -> None:
        """Take note of a new manifest, and remove what nobody needs any more."""
        self._keep(manifest)
        self._retire(manifest)
        if manifest.epoch % SWEEP == 0:
            self.sweep(manifest, staging)

    def _keep(self, manifest: Manifest) -> None:
        self.kept.append(Kept.of(manifest))
        self._named.update(self.kept[-1].segments)

    def _retire(self, newest: Manifest) -> None:
        while self._is_outlived(self.kept[0], newest):
            gone = self.kept.popleft()
            self.log.place(gone.epoch).delete()
            self._named.subtract(gone.segments)
            for operator, name in gone.segments:
                if not self._named[operator, name]:
                    del self._named[operator, name]
                    (self.root / "state" / operator / name).delete()

    def _is_outlived(self, kept: Kept, newest: Manifest) -> bool:
        old = kept.epoch < newest.epoch - self.epochs
        return old and kept.committed_at < newest.committed_at - self.seconds

    def sweep(self, newest: Manifest, staging: Iterable[Place]) -> int:
        """Remove what attempts that died left behind; return how many files.

        Args:
            newest: The newest manifest.
            staging: The folders in which outputs wait.
        """
        named = {name for _, name in self._named}
        # If another driver has gone on since, the manifests that were to tell may be retired; of
        # what is as old as this one, later ones name only what it names.
        named |= {name for _, name in newest.segment_names()}
        named |= {staged.path.rpartition("/")[2] for staged in newest.staged}
        named |= {f"{newest.epoch:012d}.done"}
        operators = [self.root / "state" / e.name for e in (self.root / "state").list() if e.folder]
        others = [self.root / name for name in ("staged", "planned", "published")]
        folders = [self.log.folder, *operators, *others, *staging]
        gone = sum(self._sweep_folder(f, newest.epoch, named) for f in folders)
        events = [self.root / "events" / e.name for e in (self.root / "events").list() if e.folder]
        gone += sum(self._sweep_folder(f, newest.epoch, named, hidden=True) for f in events)
        if gone:
            _LOG.debug("%d files that no epoch names were removed", gone)
        return gone

    def _sweep_folder(
        self, folder: Place, newest: int, named: set[str], *, hidden: bool = False
    ) -> int:
        """Remove files of past epochs that nothing names; if ``hidden`` only unfinished ones."""
        gone = 0
        for entry in folder.list():
            found = _NUMBERED.match(entry.name)
            if found is None or entry.folder or int(found[1]) > newest or entry.name in named:
                continue
            if (hidden or folder == self.log.folder) and not entry.name.startswith("."):
                continue  # manifests are retired, events bound themselves
            (folder / entry.name).delete()
            gone += 1
        return gone
