"""Verify Spark's half of a checkpoint: offsets, commits, lists of files, checksums.

Law: what Spark would read wrongly, or not at all, after a restart is found here first. Hadoop's
checksum files are checked too, since they cover what no manifest does.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from penstock.files.place import Place
from penstock.state.care.findings import Finding, finding, note
from penstock.state.care.survey import Survey, number_of, numbers
from penstock.state.spark_log import COMPACT, check_log, find_logged_files

_MAGIC = b"crc\0"


def verify_log(found: Survey) -> Iterator[Finding]:
    """Yield what is wrong with Spark's log."""
    spark, wrong = found.spark, {}
    for error in check_log(spark, found.last.spark_log if found.last else {}):
        path = found.relative(error.fields["path"])
        wrong[path] = finding(path, _kind(found, path), error.fields["reason"])
    if spark.list():
        for item in [*_files(found), *_numbers(found)]:
            wrong.setdefault(item.path, item)
    yield from wrong.values()


def _kind(found: Survey, path: str) -> str:
    parts = PurePosixPath(path.removeprefix(found.relative(found.spark) + "/")).parts
    return parts[0] if parts[0] in ("offsets", "commits", "sources") else "metadata"


def _files(found: Survey) -> Iterator[Finding]:
    for folder in log_folders(found.spark):
        names = {entry.name for entry in folder.list() if not entry.folder}
        plain = sorted(name for name in names if not name.startswith("."))
        summed = {name for name in plain if f".{name}.crc" in names}
        for name in plain:
            yield from _file(found, folder / name, has_crc=name in summed, expects=bool(summed))
        for name in sorted(names):
            if name.endswith(".crc") and name[1:-4] not in names:
                path = found.relative(folder / name)
                yield note(path, "crc", "a checksum without its file", means="nobody reads it")


def log_folders(spark: Place) -> list[Place]:
    """Return the folders in which Spark keeps its log."""
    sources = [entry.name for entry in (spark / "sources").list() if entry.folder]
    lists = [spark / "sources" / name for name in sources]
    return [spark, spark / "offsets", spark / "commits", *lists]


def _file(found: Survey, place: Place, *, has_crc: bool, expects: bool) -> Iterator[Finding]:
    path = found.relative(place)
    kind = _kind(found, path)
    try:
        data = place.read()
    except FileNotFoundError:  # Spark removes old files of its log
        return
    reason = None if _is_kafka(kind, data) else _explain_unreadable(kind, place.name, data)
    if reason is not None:
        yield finding(path, kind, reason, epoch=number_of(place.name))
    elif has_crc:
        yield from _checksum(found, place, kind, data)
    elif expects:
        yield note(
            f"{path.removesuffix(place.name)}.{place.name}.crc",
            "crc",
            "the checksum of Spark's file system is missing",
            means="Spark reads the file unchecked",
        )


def _checksum(found: Survey, place: Place, kind: str, data: bytes) -> Iterator[Finding]:
    beside = checksum_of(place)
    try:
        fits, sane = _fits(beside.read(), data)
    except FileNotFoundError:
        return
    path, epoch = found.relative(place), number_of(place.name)
    if fits:
        return
    log = found.last.spark_log if found.last else {}
    vouched = path.removeprefix(found.relative(found.spark) + "/") in log
    if vouched or not sane:  # the file has the hash in the manifest, or the checksum is not one
        yield finding(found.relative(beside), "crc", "damaged: it does not fit its file")
    else:
        yield finding(path, kind, "damaged: its bytes do not fit Spark's checksum", epoch=epoch)


def checksum_of(place: Place) -> Place:
    """Return the checksum file that Hadoop keeps beside a file."""
    return place.parent / f".{place.name}.crc"


def _fits(checksum: bytes, data: bytes) -> tuple[bool, bool]:
    """Return whether a checksum fits some bytes, and whether it has the form of one."""
    size = int.from_bytes(checksum[4:8], "big")
    if checksum[:4] != _MAGIC or size == 0 or len(checksum) != 8 + 4 * -(-len(data) // size):
        return False, False
    return checksum == checksum_bytes(data, size), True


def checksum_bytes(data: bytes, size: int = 512) -> bytes:
    """Return the bytes of Hadoop's checksum file of some bytes.

    >>> checksum_bytes(b"v1").hex()
    '63726300000002006962ccb5'
    """
    sums = [zlib.crc32(data[i : i + size]) for i in range(0, len(data), size)]
    return _MAGIC + size.to_bytes(4, "big") + b"".join(s.to_bytes(4, "big") for s in sums)


def _is_kafka(kind: str, data: bytes) -> bool:
    """Return whether a source's log is not a list of files: other sources keep what they like."""
    return kind == "sources" and not data.startswith(b"v1\n{") and data[:1] in (b"\0", b"{")


def _explain_unreadable(kind: str, name: str, data: bytes) -> str | None:
    """Return why Spark could not read a file of its log, or None."""
    try:
        lines = data.decode().split("\n")
        if kind != "metadata":
            if lines[0] != "v1":
                return f"damaged: it begins with {lines[0][:20]!r} instead of 'v1'"
            lines = lines[1:]
        values = [json.loads(line) for line in lines if line != "-"]  # "-": no offset yet
    except ValueError as error:
        return f"damaged: not JSON lines: {error}"
    return _explain_misplaced(name, values) if kind == "sources" else None


def _explain_misplaced(name: str, entries: list[Any]) -> str | None:
    """Return what is wrong with a list of files that stands where another belongs, or None."""
    files = [e for e in entries if isinstance(e, dict) and ("path" in e or "batchId" in e)]
    if not all(isinstance(e.get("batchId"), int) and isinstance(e.get("path"), str) for e in files):
        return "damaged: an entry names no file or no batch"
    batches = {entry["batchId"] for entry in files}
    number = number_of(name)
    if not batches or number is None:
        return None
    if max(batches) != number or (not name.endswith(COMPACT) and len(batches) > 1):
        return f"damaged: it is the list of batch {max(batches)}"
    return None


def _numbers(found: Survey) -> Iterator[Finding]:
    """Yield where the numbers of Spark's log do not fit one another or the manifests."""
    offsets, commits = numbers(found.spark / "offsets"), numbers(found.spark / "commits")
    for name, there, highest in (
        ("commits", commits, found.newest),
        ("offsets", offsets, found.newest + 1),
    ):
        for number in there:
            if number > highest:
                path = found.relative(found.spark / name / str(number))
                wrong = f"Spark is at epoch {number}, and the newest manifest is {found.newest}"
                yield finding(path, name, wrong, epoch=number)
        for number in sorted(set(range(min(there, default=0), max(there, default=-1))) - {*there}):
            yield _gap(found, name, number, needed=name == "offsets" and number >= offsets[-1] - 1)
    if offsets and offsets[-1] == found.newest + 1:
        yield from _next_lists(found, offsets[-1])
    for folder in log_folders(found.spark)[3:]:
        yield from _list_gaps(found, folder)


def _gap(found: Survey, name: str, number: int, *, needed: bool) -> Finding:
    path = found.relative(found.spark / name / str(number))
    if needed:
        return finding(path, name, "missing: Spark needs it to start", epoch=number)
    return note(path, name, "missing from Spark's log", means="nobody reads it", epoch=number)


def _next_lists(found: Survey, epoch: int) -> Iterator[Finding]:
    """Yield where the input of the epoch that comes next is not in the lists of files."""
    place = found.spark / "offsets" / str(epoch)
    before = found.spark / "offsets" / str(epoch - 1)
    try:
        wanted, last = find_logged_files(place), find_logged_files(before)
    except (FileNotFoundError, ValueError):
        return  # told of elsewhere
    for number, batch in wanted.items():
        there = numbers(found.spark / "sources" / str(number))
        if batch not in there or batch < last.get(number, -1):
            wrong = f"it names batch {batch} of source {number}, of which there are {there[-3:]}"
            yield finding(found.relative(place), "offsets", wrong, epoch=epoch)


def _list_gaps(found: Survey, folder: Place) -> Iterator[Finding]:
    there = numbers(folder)
    compacts = [number_of(e.name) for e in folder.list() if e.name.endswith(COMPACT)]
    first = max((number for number in compacts if number is not None), default=-1)
    for number in sorted(set(range(first + 1, max(there, default=0))) - {*there}):
        path = found.relative(folder / str(number))
        yield finding(path, "sources", "missing: Spark needs it to know what it has read")
