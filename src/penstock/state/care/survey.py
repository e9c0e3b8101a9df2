"""A survey of a checkpoint: what is there, without judging it.

Law: a survey changes nothing and trusts nothing. What cannot be read is kept as the error that it
gave, and a file that vanishes while it is looked at was retired, not lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from penstock.base.errors import CheckpointError
from penstock.files.disk import Entry
from penstock.files.place import Place, place_of
from penstock.files.sealed import unseal
from penstock.plan.epoch import Output
from penstock.sinks.registry import KINDS
from penstock.sinks.sink import LastingKind
from penstock.state.manifests import Manifest, ManifestLog
from penstock.state.published import is_published
from penstock.state.spark_log import COMPACT

RECORD = "repair"
QUARANTINE = "quarantine"
_NUMBERED = re.compile(r"\.?(\d{12})[-.]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRecord:
    """What of a repair's record counts afterwards; people find more in it.

    Attributes:
        newest: The newest epoch after the repair.
        accepted: The files that it gave up.
    """

    newest: int
    accepted: tuple[str, ...]


@dataclass(frozen=True)
class Survey:
    """What a checkpoint holds.

    Attributes:
        home: The checkpoint.
        spark: Spark's own part of it.
        rows: The rows of the program.
        manifests: The manifests that can be read, by epoch.
        unreadable: Why the others cannot be.
        accepted: Files that a repair has given up, with the newest epoch at that time.
    """

    home: Place
    spark: Place
    rows: Place
    manifests: Mapping[int, Manifest]
    unreadable: Mapping[int, CheckpointError]
    accepted: Mapping[str, int] = field(default_factory=dict)

    @property
    def root(self) -> Place:
        """Penstock's own part of the checkpoint."""
        return self.home / "penstock"

    @property
    def log(self) -> ManifestLog:
        """The manifests."""
        return ManifestLog(self.root)

    @cached_property
    def epochs(self) -> tuple[int, ...]:
        """The epochs that have a manifest, readable or not, oldest first."""
        return tuple(sorted({*self.manifests, *self.unreadable}))

    @property
    def newest(self) -> int:
        """The newest epoch that has a manifest; -1 if none has."""
        return self.epochs[-1] if self.epochs else -1

    @property
    def last(self) -> Manifest | None:
        """The newest manifest, if it can be read."""
        return self.manifests.get(self.newest)

    def relative(self, place: Place | str) -> str:
        """Return a path as seen from the checkpoint; as it is if it lies elsewhere."""
        return str(place).removeprefix(f"{self.home}/")

    def targets(self) -> dict[str, str]:
        """Return where outputs that last go, each with what it is: output, late or dead."""
        found = {
            staged.target: staged.kind
            for manifest in self.manifests.values()
            for staged in manifest.staged
            if lasting_kind(manifest.output(staged.target)) is not None
        }
        for kind in ("late", "dead"):
            sources = [entry.name for entry in (self.root / kind).list() if entry.folder]
            found |= {f"{self.root}/{kind}/{name}": kind for name in sources}
        return found

    def list_published(self) -> list[tuple[str, int]]:
        """Return the epochs of this query that are there to be read, as target and epoch."""
        return [(target, epoch) for target in self.targets() for epoch in self.epochs_of(target)]

    def epochs_of(self, target: str) -> dict[int, Place]:
        """Return the places of this query's epochs in an output, by epoch."""
        output = self.output(target)
        kind = lasting_kind(output)
        return {} if kind is None else dict(kind.find(target, self.query, output))

    def epoch_with(self, place: Place, epoch: int) -> Place:
        """Return the published epoch that a file is of; the file itself if it is of none."""
        manifest = self.manifests.get(epoch)
        for target in self.targets():
            output = manifest.output(target) if manifest else self.output(target)
            kind = lasting_kind(output)
            whole = None if kind is None else kind.where(target, output.first + epoch)
            if whole is not None and str(place).startswith(f"{whole}/"):
                return whole
        return place

    @cached_property
    def readable(self) -> Manifest | None:
        """The newest manifest that can be read."""
        return self.manifests[max(self.manifests)] if self.manifests else None

    @property
    def query(self) -> str:
        """The query's own word."""
        return self.readable.query if self.readable else ""

    def output(self, target: str) -> Output:
        """Return what the newest manifest that can be read says of an output."""
        return self.readable.output(target) if self.readable else Output()

    def was_published(self, manifest: Manifest) -> bool:
        """Return whether an epoch was published: only then Spark commits it and goes on."""
        epoch = manifest.epoch
        return (
            is_published(self.root, manifest)
            or epoch in numbers(self.spark / "commits")
            or epoch + 1 in self.manifests
            or any(later > epoch for _, later in self.list_published())
        )

    def staging(self) -> list[Place]:
        """Return the folders in which outputs wait."""
        paths = {s.path.rpartition("/")[0] for m in self.manifests.values() for s in m.staged}
        return [place_of(path) for path in sorted(paths | {f"{self.root}/staged"})]

    def orphans(self) -> list[tuple[Place, Entry]]:
        """Return the files that no manifest names: left by attempts that died, or just written."""
        named = {
            f"{self.root}/state/{operator}/{name}"
            for manifest in self.manifests.values()
            for operator, name in manifest.segment_names()
        }
        named |= {s.path for s in self.last.staged} if self.last else set()
        operators = [e.name for e in (self.root / "state").list() if e.folder]
        folders = [*[self.root / "state" / name for name in operators], *self.staging()]
        found = [
            (folder / entry.name, entry)
            for folder in folders
            for entry in folder.list()
            if not entry.folder and f"{folder}/{entry.name}" not in named
        ]
        hidden = [(self.log.folder / e.name, e) for e in self.log.folder.list() if _is_hidden(e)]
        return found + hidden


def _is_hidden(entry: Entry) -> bool:
    return entry.name.startswith(".") and not entry.folder


def survey(checkpoint: str | Path, spark_folder: str | Path | None = None) -> Survey:
    """Look at a checkpoint.

    Args:
        checkpoint: Its path or URI.
        spark_folder: Where Spark keeps its part (``spark.penstock.sparkFolder``), if elsewhere.

    Raises:
        CheckpointError: There is no checkpoint of Penstock.
    """
    home, other = place_of(checkpoint), place_of(spark_folder or checkpoint)
    if not (home / "penstock").list():
        raise CheckpointError(path=str(home), reason="there is no checkpoint of Penstock here")
    manifests, unreadable = _manifests(ManifestLog(home / "penstock"))
    return Survey(
        home=home,
        spark=other / "spark",
        rows=other / "rows",
        manifests=manifests,
        unreadable=unreadable,
        accepted=_read_accepted(home / "penstock" / QUARANTINE),
    )


def _manifests(log: ManifestLog) -> tuple[dict[int, Manifest], dict[int, CheckpointError]]:
    manifests, unreadable = {}, {}
    for epoch in log.epochs():
        try:
            manifest = log.read(epoch)
        except CheckpointError as error:
            unreadable[epoch] = error
            continue
        if manifest is not None:
            manifests[epoch] = manifest
    return manifests, unreadable


def _read_accepted(quarantine: Place) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in quarantine.list():
        try:
            place = quarantine / entry.name / f"{RECORD}.json"
            record = unseal(RECORD, place, RepairRecord)
        except (FileNotFoundError, CheckpointError):
            continue
        found |= dict.fromkeys(record.accepted, record.newest)
    return found


def lasting_kind(output: Output) -> LastingKind | None:
    """Return the kind of an output; None if it does not last, or if this process knows it not."""
    kind = KINDS.get(output.kind)
    return kind if isinstance(kind, LastingKind) else None


def epoch_of_name(name: str) -> int | None:
    """Return the epoch in a file's name.

    >>> epoch_of_name("000000000007-ab.arrow"), epoch_of_name("notes.txt")
    (7, None)
    """
    found = _NUMBERED.match(name)
    return None if found is None else int(found[1])


def number_of(name: str) -> int | None:
    """Return the number that a file of Spark's log has as its name.

    >>> number_of("9.compact"), number_of("12"), number_of("metadata")
    (9, 12, None)
    """
    text = name.removesuffix(COMPACT)
    return int(text) if text.isdigit() else None


def numbers(folder: Place) -> list[int]:
    """Return the numbers of the files in a folder of Spark's log."""
    found = [number_of(entry.name) for entry in folder.list() if not entry.folder]
    return sorted({number for number in found if number is not None})


def walk(folder: Place, skip: tuple[str, ...] = ()) -> Iterator[tuple[Place, Entry]]:
    """Yield all files below a folder, with those of the folders in it."""
    for entry in folder.list():
        if entry.folder and entry.name not in skip:
            yield from walk(folder / entry.name, skip)
        elif not entry.folder:
            yield folder / entry.name, entry
