"""Stores that are broken on purpose, so that the harness can show that it would notice.

Each breaks one rule of the real store, in the way in which a tired programmer would. Law: the
harness finds a fault with every one of them, and none with the sound store.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from penstock.driver import driver
from penstock.files.disk import Disk
from penstock.files.place import LocalFiles, Place
from penstock.sinks import folder, owners, publish
from penstock.sinks.owners import Claim, Claimant
from penstock.state import manifests, pinned
from penstock.state.manifests import Manifest
from penstock.state.retention import Kept, Retention
from penstock.testing.faults.machine import Store


class WithoutFileSync(LocalFiles):
    """Syncs folders, not files."""

    def _create(self, folder: str, hidden: str, data: bytes) -> None:
        self.disk.create(hidden, data, sync=False)


class WithoutFolderSync(LocalFiles):
    """Syncs files, not the folders that they are in."""

    def _sync(self, path: str) -> None:
        pass


class Overwriting(LocalFiles):
    """Renames a file to its name, whoever has made that name before."""

    def write_new(self, path: str, data: bytes) -> None:
        """Write a file over any other."""
        folder, name = posixpath.split(path)
        hidden = f"{folder}/.{name}.{self.unique()}.tmp"
        self._ensure(folder)
        self._create(folder, hidden, data)
        self.disk.rename(hidden, path)
        self._sync(folder)


class ReusedNames(Overwriting):
    """Names files by a number that begins anew with every process."""

    def __init__(self, disk: Disk, *, unique: Callable[[], str]) -> None:
        """Forget the names of the processes before."""
        self.made = 0
        super().__init__(disk, unique=self._next)

    def _next(self) -> str:
        self.made += 1
        return f"{self.made:08x}"


class OverwritingCommit(LocalFiles):
    """Commits an epoch over the manifest of another driver."""

    def write_new(self, path: str, data: bytes) -> None:
        """Write a file; a manifest over any other."""
        if "/manifests/" in path:
            Overwriting.write_new(self, path, data)  # type: ignore[arg-type]
        else:
            super().write_new(path, data)


class CommitFirst(LocalFiles):
    """Keeps state in memory until the manifest that names it is written."""

    def __init__(self, disk: Disk, *, unique: Callable[[], str]) -> None:
        """Begin with nothing kept back."""
        super().__init__(disk, unique=unique)
        self.waiting: dict[str, bytes] = {}

    def write_new(self, path: str, data: bytes) -> None:
        """Write a file, or keep it back for later."""
        if "/state/" in path:
            self.waiting[path] = data
            return
        super().write_new(path, data)
        if "/manifests/" in path:
            for kept in list(self.waiting):
                super().write_new(kept, self.waiting.pop(kept))

    def read(self, path: str) -> bytes:
        """Return the bytes of a file, written or not."""
        return self.waiting[path] if path in self.waiting else super().read(path)


class CopyingPublication(LocalFiles):
    """Publishes a folder file by file."""

    def publish(self, folder: str, files: Mapping[str, str]) -> None:
        """Make a folder and copy files into it, one after the other."""
        if self.disk.is_folder(folder):
            return
        self._ensure(folder)
        for new, old in files.items():
            LocalFiles.write_new(self, f"{folder}/{new}", self.read(old))
        for old in files.values():
            self.delete(old)


def _sweep_all(self: Retention, folder: Place, newest: int, named: set[str]) -> int:
    """Remove all that is not named, though an epoch that still runs may have written it."""
    gone = 0
    for entry in folder.list():
        known = entry.name in named or (folder == self.log.folder and entry.name[:1].isdigit())
        if not entry.folder and not known:
            (folder / entry.name).delete()
            gone += 1
    return gone


def _outlived_early(self: Retention, kept: Kept, newest: Manifest) -> bool:
    return kept.epoch <= newest.epoch - self.epochs


def _unseal_anything(kind: str, place: Place, shape: type[Any]) -> Any:
    return msgspec.json.decode(place.read().partition(b"\n")[2], type=shape)


BROKEN: tuple[Store, ...] = (
    Store(name="files are not synced", files=WithoutFileSync),
    Store(name="folders are not synced", files=WithoutFolderSync),
    Store(name="names are used again", files=ReusedNames),
    Store(name="the commit comes before the state", files=CommitFirst),
    Store(name="the commit overwrites", files=OverwritingCommit),
    Store(
        name="the sweep ignores epochs",
        changes=((Retention, "_sweep_folder", _sweep_all),),
    ),
    Store(name="publication copies", files=CopyingPublication),
    Store(
        name="retirement comes an epoch too early",
        changes=((Retention, "_is_outlived", _outlived_early),),
    ),
)


def _claim_nothing(target: Place, who: Claimant) -> Claim:
    return Claim(owner=who.owner, checkpoint=who.checkpoint)


def _clear_always(target: Place, who: Claimant) -> Claim:
    claim = owners.claim_folder(target, who)
    if who.mode == "overwrite":
        owners._clear(target, replace(claim, begin=2**31))
    return claim


def _number_from_zero(target: Place, who: Claimant, newest: Claim | None) -> Claim:
    return Claim(owner=who.owner, checkpoint=who.checkpoint, clears=who.mode == "overwrite")


def _name_without_zeros(number: int) -> str:
    return f"epoch={number}"


def _was_run_by_number(last: Manifest, epoch: int, *, final: bool) -> bool:
    return last.epoch == epoch


FORGETFUL: tuple[Store, ...] = (
    Store(
        name="folders belong to nobody",
        changes=(
            (folder, "claim_folder", _claim_nothing),
            (folder, "check_owner", lambda *_: None),
        ),
    ),
    Store(
        name="an owner is asked only at the start",
        changes=((folder, "check_owner", lambda *_: None),),
    ),
    Store(name="overwritten at every start", changes=((folder, "claim_folder", _clear_always),)),
    Store(
        name="all queries number their epochs from zero",
        changes=((owners, "_make_wanted", _number_from_zero),),
    ),
    Store(
        name="epochs are named without zeros",
        changes=(
            (folder, "epoch_name", _name_without_zeros),
            (publish, "epoch_name", _name_without_zeros),
        ),
    ),
    Store(
        name="input after the finish is taken for a replay",
        changes=((driver, "_was_run", _was_run_by_number),),
    ),
)
"""Drivers that forget whose a folder is, or what was finished; only histories can show these."""
UNCHECKED = Store(
    name="manifests are not checked",
    changes=(
        (manifests, "unseal", _unseal_anything),
        (pinned, "unseal", _unseal_anything),
        (manifests.ManifestLog, "check_follows", lambda self, manifest, before: None),
    ),
)
"""A crash cannot show this one, since synced files stay as they are; only damage can."""
