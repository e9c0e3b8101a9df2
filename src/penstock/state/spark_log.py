"""Spark's half of a checkpoint: the log that says which input belongs to which epoch.

Spark writes `offsets/N` and its list of files before it asks for epoch N, but never syncs them. If
the machine dies after our commit, they may be lost, and Spark would give the epoch's number to
other input. So before an epoch is committed its part of the log is synced, and its hashes go into
the manifest. Law: a committed epoch's input is known for as long as the epoch is the newest, and a
log that does not fit the manifest is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from penstock.base.errors import CheckpointError
from penstock.files.place import Place, sha256
from penstock.files.sealed import seal, unseal

COMPACT = ".compact"
_FOLDERS = "spark-sources.json"
"""Beside Spark's folder: which source each line of its offsets belongs to."""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A file of one of Spark's lists, of which Spark writes more.

    Attributes:
        path: The file, as a URI.
        batch: The number of the list that it came with.
        modified_ms: When it was modified, in milliseconds since 1970.
    """

    path: str
    batch: int = msgspec.field(name="batchId")
    modified_ms: int = msgspec.field(name="timestamp", default=0)


class _ListOffset(msgspec.Struct):
    """How far a list of files is, as Spark's offsets have it."""

    newest: int = msgspec.field(name="logOffset")


def seal_log(spark: Place, epoch: int, before: Mapping[str, str]) -> dict[str, str]:
    """Sync what Spark logged for an epoch and return its hashes.

    Args:
        spark: Spark's checkpoint folder.
        epoch: The epoch that Spark has asked for.
        before: What the manifest of the epoch before holds.

    Raises:
        CheckpointError: Spark has no log of the epoch, or it goes back behind the epoch before.

    Returns:
        The hash of the epoch's offsets and, for each file source, of its list of files from its
        last compact form on.
    """
    offsets = spark / "offsets" / str(epoch)
    found = {f"offsets/{epoch}": _seal(offsets)}
    newest = find_logged_files(offsets)
    for number in sorted(newest.keys() | {_source(name) for name in before if _is_list(name)}):
        found |= _lists(spark, offsets, number, newest.get(number, -1), before)
    return found


def _lists(
    spark: Place, offsets: Place, number: int, newest: int, before: Mapping[str, str]
) -> dict[str, str]:
    """Return the hashes of a source's lists of files, from its last compact one on."""
    folder = f"sources/{number}/"
    known = {name: digest for name, digest in before.items() if name.startswith(folder)}
    last = max((_batch(name) for name in known), default=newest - 1)
    if newest < last:
        reason = f"Spark's log goes back: source {number} is at list {newest} and was at {last}"
        raise CheckpointError(path=str(offsets), reason=reason)
    for batch in range(last + 1, newest + 1):
        name = _find_existing(spark, folder + str(batch))
        known = {name: _seal(spark / name)} | ({} if name.endswith(COMPACT) else known)
    return known


def check_log(spark: Place, hashes: Mapping[str, str]) -> list[CheckpointError]:
    """Return what is wrong with the part of Spark's log that a manifest depends on."""
    wrong = []
    for name, digest in hashes.items():
        place = spark / name
        try:
            if sha256(place.read()) == digest:
                continue
            reason = "damaged: Spark's log has other bytes than when the epoch was committed"
        except FileNotFoundError:
            reason = "a file of Spark's log is missing; without it input may be lost or read twice"
        wrong.append(CheckpointError(path=str(place), reason=reason))
    return wrong


def _seal(place: Place) -> str:
    try:
        place.sync()
        return sha256(place.read())
    except FileNotFoundError as error:
        raise CheckpointError(path=str(place), reason="Spark's log lacks this file") from error


def _find_existing(spark: Place, name: str) -> str:
    """Return the name under which Spark keeps a batch of a list of files."""
    return name if (spark / name).exists() else name + COMPACT


def _is_list(name: str) -> bool:
    return name.startswith("sources/")


def _source(name: str) -> int:
    return int(name.split("/")[1])


def _batch(name: str) -> int:
    return int(name.rpartition("/")[2].removesuffix(COMPACT))


def keep_folders(spark: Place, folders: Sequence[int]) -> None:
    """Note which source each line of Spark's offsets belongs to, if it is not its own number."""
    if list(folders) == list(range(len(folders))):
        return
    with suppress(FileExistsError):
        (spark.parent / _FOLDERS).write_new(seal("sources", list(folders)))


def read_folders(spark: Place) -> list[int] | None:
    """Return which source each line of Spark's offsets belongs to; None if each has its own."""
    try:
        return unseal("sources", spark.parent / _FOLDERS, list[int])
    except FileNotFoundError:
        return None


def find_logged_files(offsets: Place) -> dict[int, int]:
    """Return the newest batch of each file source's list, by Spark's offsets of an epoch.

    Raises:
        FileNotFoundError: There are none.
    """
    return file_sources(offsets.read(), read_folders(offsets.parent.parent))


def files_of(spark: Place, epoch: int) -> list[str] | None:
    """Return the files that Spark has handed out for an epoch; None if its log does not say.

    Nothing can be said of a source that is not a list of files, or of an epoch that Spark forgot.
    """
    try:
        lines = (spark / "offsets" / str(epoch)).read().decode().splitlines()[2:]
        if not all("logOffset" in line for line in lines if line != "-"):
            return None
        return [file.path for file in list_files_of(spark, epoch)]
    except (FileNotFoundError, ValueError):
        return None


def list_files_of(spark: Place, epoch: int) -> list[Listed]:
    """Return the files that Spark's lists have got with an epoch.

    Raises:
        FileNotFoundError: Spark has forgotten the epoch, or the one before.
    """
    reached = find_logged_files(spark / "offsets" / str(epoch))
    before = find_logged_files(spark / "offsets" / str(epoch - 1)) if epoch else {}
    return [
        file
        for number, newest in reached.items()
        for batch in range(before.get(number, -1) + 1, newest + 1)
        for file in _read_listed(spark / f"sources/{number}", batch)
    ]


def _read_listed(folder: Place, batch: int) -> list[Listed]:
    """Return the files of a batch; from the compact list after it, if it was merged."""
    lines = _batch_data(folder, batch).splitlines()[1:]
    entries = [msgspec.json.decode(line, type=Listed) for line in lines]
    return [entry for entry in entries if entry.batch == batch]


def _batch_data(folder: Place, batch: int) -> bytes:
    try:
        return (folder / str(batch)).read()
    except FileNotFoundError:
        numbers = [int(e.name.removesuffix(COMPACT)) for e in folder.list() if e.name[0] != "."]
        merged = min((n for n in numbers if n >= batch), default=batch)
        return (folder / f"{merged}{COMPACT}").read()


def file_sources(offsets: bytes, folders: Sequence[int] | None = None) -> dict[int, int]:
    r"""Return the newest batch of each file source's list, from Spark's offsets of an epoch.

    Args:
        offsets: Spark's file.
        folders: The source of each line, if some have several; see `read_folders`.

    >>> file_sources(b'v1\n{"conf":{}}\n{"logOffset":3}\n-\n{"t":{"0":5}}')
    {0: 3}
    """
    found = {}
    for number, line in enumerate(offsets.decode().splitlines()[2:]):
        with suppress(msgspec.MsgspecError):  # another kind of source
            reached = msgspec.json.decode(line, type=_ListOffset).newest
            found[number if folders is None else folders[number]] = reached
    return {number: batch for number, batch in found.items() if batch >= 0}
