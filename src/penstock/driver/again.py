"""Files to be read again: notes that give refused files back, and what wakes an idle query.

A note is a small sealed file under ``again/`` in the checkpoint that names a source and a file.
Laws: a note changes nothing unless the file is refused, so it may be found twice, or too late; it
goes only after an epoch that has tried the file is committed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from penstock.base.errors import CheckpointError, ConfigError, FinishedError
from penstock.files.place import Place
from penstock.files.sealed import seal, unseal
from penstock.plan.compiled import CompiledQuery
from penstock.plan.files import Again, UnreadFile, choose_again
from penstock.sources.files import local_path
from penstock.sources.registry import reader_of
from penstock.state.manifests import Manifest, ManifestLog

FOLDER = "again"
KIND = "note"
_WAKE = re.compile(r"wake-(\d{12})-")
_KEPT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Says that a refused file is to be read again."""

    source: int
    path: str


def give_back(root: Place, file: str, *, source: str = "") -> UnreadFile:
    """Leave a note that a refused file is to be read with the next epoch.

    Args:
        root: Penstock's folder in the checkpoint.
        file: The file's path, or its name if that is enough.
        source: The number or the unique name of its source, if several sources have refused it.

    Returns:
        The file as the checkpoint knows it.

    Raises:
        ConfigError: It is no refused file of this checkpoint.
        FinishedError: The query was finished.
    """
    last = ManifestLog(root).newest()
    if last is None:
        raise CheckpointError(path=str(root.parent), reason="no epoch has run on it yet")
    if last.final:
        raise FinishedError(path=str(root.parent), epoch=last.epoch)
    found = _matches(last.refused_files, file, source, last.source_names)
    if len(found) != 1:
        raise ConfigError(
            name="file", value=file, allowed=_describe_allowed(last, file, source, found)
        )
    note = Note(source=found[0].source, path=found[0].path)
    name = f"{int(time.time() * 1000):015d}-{root.files.unique()}.json"
    (root / FOLDER / name).write_new(seal(KIND, note))
    return found[0]


def _matches(
    files: tuple[UnreadFile, ...], file: str, source: str, names: Mapping[int, str]
) -> list[UnreadFile]:
    of_source = [f for f in files if source in ("", str(f.source), names.get(f.source))]
    path = local_path(file)
    whole = path if "://" in path else os.path.abspath(path)
    exact = [f for f in of_source if local_path(f.path) == whole or f.path == file]
    named = [f for f in of_source if local_path(f.path).rpartition("/")[2] == file]
    return exact or named


def _describe_allowed(last: Manifest, file: str, source: str, found: list[UnreadFile]) -> str:
    if found:
        places = ", ".join(f"{f.path} of source {f.source}" for f in found)
        return f"one of several refused files, by its path and --source: {places}"
    if _matches(last.waiting_files, file, source, last.source_names):
        return "a refused file; this one waits and is tried again without being asked for"
    refused = ", ".join(local_path(f.path) for f in last.refused_files[:10])
    return (
        f"a refused file ({refused or 'there is none'}); this one was read, and reading it again "
        "would double its rows, or the query has never seen it"
    )


class Retries:
    """The driver's side: which files the next epoch tries again."""

    def __init__(self, root: Place, query: CompiledQuery, clock: Callable[[], float]) -> None:
        """Look into a checkpoint for notes."""
        self.folder, self.clock = root / FOLDER, clock
        self.patience = {
            number: patience_us / 1e6
            for number, source in query.sources
            if (patience_us := reader_of(source).patience_us) is not None
        }
        self._started = False
        self._read: list[str] = []

    def plan(self, last: Manifest | None, *, now: float, final: bool) -> tuple[Again, ...]:
        """Return the files that an epoch tries again."""
        first, self._started = not self._started, True
        if last is None or not self.patience:
            return ()
        return choose_again(
            last.waiting_files,
            self._list_returned(last) if last.refused_files else (),
            self.patience,
            now=now,
            every=first,
            final=final,
        )

    def _list_returned(self, last: Manifest) -> list[UnreadFile]:
        """Return the refused files that notes give back; what is no note is passed over."""
        asked: set[tuple[int, str]] = set()
        self._read = [entry.name for entry in self.folder.list() if not entry.folder]
        for name in self._read:
            with suppress(CheckpointError, FileNotFoundError):
                note = unseal(KIND, self.folder / name, Note)
                asked.add((note.source, note.path))
        return [file for file in last.refused_files if (file.source, file.path) in asked]

    def committed(self) -> None:
        """Remove the notes that the epoch that was just committed has read."""
        read, self._read = self._read, []
        for name in read:
            with suppress(OSError):  # a note that stays changes nothing
                (self.folder / name).delete()

    def wanted(self, last: Manifest | None) -> bool:
        """Return whether an epoch would have a file to try again now."""
        if last is None or last.final or not self.patience:
            return False
        now = self.clock()
        if choose_again(last.waiting_files, (), self.patience, now=now, every=not self._started):
            return True
        return bool(last.refused_files) and any(not e.folder for e in self.folder.list())


class Waker:
    """Wakes Spark, which runs no epoch unless there is a new file: it gets an empty one.

    Which files an epoch tries again does not depend on what wakes it.
    """

    def __init__(self, folder: Place, last: int) -> None:
        """Use a folder that Spark watches.

        Args:
            folder: The folder.
            last: The last epoch. Files that Spark took long before it go; of newer ones Spark may
                still replay the epoch, and it stops if they are gone.
        """
        self.folder = folder
        self._woken_in: int | None = None
        for entry in folder.list():
            found = _WAKE.match(entry.name)
            if found and int(found[1]) < last - _KEPT:
                (folder / entry.name).delete()
        with suppress(FileExistsError):
            (folder / ".wake").write_new(b"")  # so that the folder is there

    def wake(self, epoch: int) -> None:
        """Ask for an epoch, once while the same epoch is the last."""
        if self._woken_in != epoch:
            self._woken_in = epoch
            name = f"wake-{epoch:012d}-{self.folder.files.unique()}"
            (self.folder / name).write_new(b"")
