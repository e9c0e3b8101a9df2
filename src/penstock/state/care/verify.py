"""Verify a checkpoint: every file of it, against everything that is known about it.

Law: any byte that is not as it was written, and any file that is missing, is found, unless nothing
depends on it. A query that runs meanwhile retires files; what is found is looked at again on a
fresh survey, so that this is not taken for damage.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from penstock.base.errors import CheckpointError
from penstock.base.hashing import BUCKET
from penstock.files.place import Place
from penstock.files.sealed import unseal
from penstock.plan.epoch import SegmentRef
from penstock.plan.tails import state_folder
from penstock.state.care.findings import Finding, Verification, finding, note
from penstock.state.care.survey import (
    QUARANTINE,
    RECORD,
    RepairRecord,
    Survey,
    epoch_of_name,
    numbers,
    survey,
    walk,
)
from penstock.state.care.verify_log import verify_log
from penstock.state.care.verify_outputs import verify_outputs
from penstock.state.pinned import pin_file, pin_numbers, read_pin
from penstock.state.planned import FOLDER as PLANNED
from penstock.state.planned import read_planned
from penstock.state.published import marks
from penstock.state.segments import read_frame


def verify(checkpoint: str | Path, spark_folder: str | Path | None = None) -> Verification:
    """Look at every file of a checkpoint; also while its query runs.

    Args:
        checkpoint: The checkpoint's path or URI.
        spark_folder: Where Spark keeps its part, if elsewhere.

    Raises:
        CheckpointError: There is no checkpoint of Penstock.
    """
    seen = survey(checkpoint, spark_folder)
    found = list(_examine(seen))
    if any(item.damage for item in found):
        suspects = {item.path for item in found}
        seen = survey(checkpoint, spark_folder)
        found = [item for item in _examine(seen) if not item.damage or item.path in suspects]
    files = [entry for _, entry in walk(seen.home, (QUARANTINE,))]
    return Verification(
        checkpoint=str(seen.home),
        newest=seen.newest,
        files=len(files),
        bytes=sum(entry.bytes for entry in files),
        findings=[item for item in found if item.damage],
        notes=[item for item in found if not item.damage],
        orphans=len(seen.orphans()),
    )


def _examine(found: Survey) -> Iterator[Finding]:
    yield from _pins(found)
    yield from _manifests(found)
    yield from _segments(found)
    yield from verify_outputs(found)
    yield from _rows(found)
    yield from _plans(found)
    yield from _markers(found)
    yield from _records(found)
    yield from verify_log(found)


def _pins(found: Survey) -> Iterator[Finding]:
    pins = pin_numbers(found.root)
    before: Mapping[str, Any] = {}
    for number in range(max(pins, default=0) + 1):
        path = found.relative(pin_file(found.root, number))
        try:
            facts = read_pin(found.root, number).facts
        except FileNotFoundError:
            given_up = path in found.accepted
            if found.epochs and not (
                given_up and (number < max(pins, default=0) or found.accepted[path] == found.newest)
            ):
                yield finding(path, "pin", "missing", repair="the next start pins its query anew")
            continue
        except CheckpointError as error:
            yield finding(path, "pin", error.fields["reason"])
            continue
        if not _grows(before, facts):
            yield finding(path, "pin", "damaged: it does not follow the pin before it")
        before = facts


def _grows(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Return whether a pin says everything that the one before said, and more."""
    kept = all(
        name in after
        and (
            after[name] == fact
            or (isinstance(fact, dict) and fact.items() <= dict(after[name]).items())
        )
        for name, fact in before.items()
    )
    return kept and dict(before) != dict(after)


def _manifests(found: Survey) -> Iterator[Finding]:
    for epoch, error in found.unreadable.items():
        path = found.relative(found.log.place(epoch))
        means = "the query does not start" if epoch == found.newest else None
        yield finding(path, "manifest", error.fields["reason"], epoch=epoch, means=means)
    reached = _find_reached(found)
    first = found.epochs[0] if found.epochs else max(reached, 0)
    for epoch in sorted(set(range(first, reached + 1)) - {*found.epochs}):
        path = found.relative(found.log.place(epoch))
        given_up = path in found.accepted
        if given_up and (epoch < found.newest or found.accepted[path] == found.newest):
            means = "a repair gave it up; the epoch is run again, or cannot be read"
            yield note(path, "manifest", "missing", means=means, epoch=epoch)
        else:
            yield finding(path, "manifest", "missing", epoch=epoch)
    for epoch, manifest in found.manifests.items():
        before = found.manifests.get(epoch - 1)
        if before is not None:
            try:
                found.log.check_follows(manifest, before)
            except CheckpointError as error:
                path = found.relative(found.log.place(epoch))
                yield finding(path, "manifest", error.fields["reason"], epoch=epoch)


def _find_reached(found: Survey) -> int:
    """Return the last epoch that was committed, going by everything that mentions one."""
    markers = [epoch_of_name(e.name) for e in (found.root / "published").list()]
    published = [epoch for _, epoch in found.list_published()]
    told = [epoch for epoch in [*markers, *published] if epoch is not None]
    return max([found.newest, *told, *numbers(found.spark / "commits")])


def _segments(found: Survey) -> Iterator[Finding]:
    buckets = _buckets(found)
    columns: dict[str, pl.Schema] = {}
    looked_at: set[tuple[str, str, str]] = set()
    for epoch in reversed(found.epochs):
        manifest = found.manifests.get(epoch)
        for operator, refs in manifest.segments.items() if manifest else ():
            for ref in refs:
                folder = state_folder(operator)
                if (folder, ref.name, ref.sha256) in looked_at:
                    continue
                looked_at.add((folder, ref.name, ref.sha256))
                place = found.root / "state" / folder / ref.name
                wrong = _segment(place.parent, ref, buckets, columns)
                if wrong is not None:
                    yield finding(found.relative(place), "segment", wrong, epoch=epoch)


def _buckets(found: Survey) -> int | None:
    pins = pin_numbers(found.root)
    try:
        buckets = read_pin(found.root, pins[-1]).facts.get("buckets") if pins else None
    except (CheckpointError, FileNotFoundError):
        return None  # reported elsewhere
    return buckets if isinstance(buckets, int) else None


def _segment(
    folder: Place, ref: SegmentRef, buckets: int | None, columns: dict[str, pl.Schema]
) -> str | None:
    """Return what is wrong with a segment, or None."""
    try:
        frame = read_frame(folder, ref)
    except CheckpointError as error:
        return str(error.fields["reason"])
    if not frame[BUCKET].is_sorted():
        return "damaged: its rows are not sorted by bucket"
    low, high = frame[BUCKET].min(), frame[BUCKET].max()
    top = 1 << 31 if buckets is None else buckets
    if frame.height and not (isinstance(low, int) and isinstance(high, int) and 0 <= low <= high):
        return "damaged: it has rows without a bucket"
    if (isinstance(high, int) and high >= top) or any(b > top for _, b in ref.live):
        return f"damaged: it has buckets beyond the {top} of the query"
    if columns.setdefault(folder.name, frame.schema) != frame.schema:
        return f"damaged: its columns are not those of other segments: {dict(frame.schema)}"
    return None


def _rows(found: Survey) -> Iterator[Finding]:
    for source in [e.name for e in found.rows.list() if e.folder]:
        folder = found.rows / source
        names = [e.name for e in folder.list() if e.name.startswith("rows-")]
        for name in names:
            place = folder / name
            try:
                pl.read_ipc(io.BytesIO(place.read_named()))
            except CheckpointError as error:
                yield finding(found.relative(place), "rows", error.fields["reason"])
            except (pl.exceptions.PolarsError, OSError) as error:
                reason = f"damaged: not an Arrow file: {error}".splitlines()[0]
                yield finding(found.relative(place), "rows", reason)
        if not names:
            means = "the next start writes them again"
            yield note(found.relative(folder), "rows", "its rows are missing", means=means)


def _plans(found: Survey) -> Iterator[Finding]:
    for entry in (found.root / PLANNED).list():
        epoch, place = epoch_of_name(entry.name), found.root / PLANNED / entry.name
        if epoch is None or entry.name.startswith("."):
            continue
        try:
            read_planned(found.root, epoch)
        except FileNotFoundError:
            continue
        except CheckpointError as error:
            yield finding(found.relative(place), "plan", error.fields["reason"], epoch=epoch)


def _markers(found: Survey) -> Iterator[Finding]:
    for entry in (found.root / "published").list():
        epoch, place = epoch_of_name(entry.name), found.root / "published" / entry.name
        if epoch is None or entry.name.startswith("."):
            continue
        manifest = found.manifests.get(epoch)
        try:
            fits = manifest is None or marks(place, manifest)
            reason = None if fits else "damaged: it is the marker of another manifest"
        except FileNotFoundError:
            continue
        except CheckpointError as error:
            reason = str(error.fields["reason"])
        if reason is not None:
            yield finding(found.relative(place), "marker", reason, epoch=epoch)


def _records(found: Survey) -> Iterator[Finding]:
    quarantine = found.root / QUARANTINE
    for entry in quarantine.list():
        place = quarantine / entry.name / f"{RECORD}.json"
        try:
            unseal(RECORD, place, RepairRecord)
        except FileNotFoundError:
            means = "a repair did not come to its end; run it again"
            path = found.relative(quarantine / entry.name)
            yield note(path, "record", "no record of the repair", means=means)
        except CheckpointError as error:
            yield finding(found.relative(place), "record", error.fields["reason"])
