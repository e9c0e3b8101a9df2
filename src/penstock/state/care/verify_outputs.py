"""Verify outputs: files that wait, published epochs, late rows and dead letters.

Law: a file that is there is what was written, by the hash in its name and by the manifest where
that is kept. Readers may move or delete whole epochs, so one that is gone is only a note.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence

import polars as pl

from penstock.base.errors import CheckpointError
from penstock.files.place import Place, named_by_hash, place_of
from penstock.plan.epoch import StagedFile
from penstock.state.care.findings import Finding, finding, note
from penstock.state.care.survey import Survey, is_folder
from penstock.state.epochs import epoch_name
from penstock.state.manifests import Manifest

_PART = re.compile(r"part-(\d{5})(-[0-9a-f]{16})?\.parquet")
_WORDS = {"output": "published", "late": "late", "dead": "dead"}


def verify_outputs(found: Survey) -> Iterator[Finding]:
    """Yield what is wrong with the outputs."""
    known: set[tuple[str, int]] = set()
    for manifest in found.manifests.values():
        yield from _without_folder(found, manifest)
        for target in sorted({s.target for s in manifest.staged if is_folder(s.target)}):
            known.add((target, manifest.epoch))
            yield from _epoch(found, manifest, target)
    for kind in ("late", "dead"):
        yield from _side_output(found, kind, known)


def _without_folder(found: Survey, manifest: Manifest) -> Iterator[Finding]:
    """Yield what is wrong with files for sinks that are not folders."""
    if manifest.epoch != found.newest:
        return
    published = found.was_published(manifest)
    for staged in manifest.staged:
        place = place_of(staged.path)
        if not is_folder(staged.target) and (not published or place.exists()):
            yield from _staged(found, manifest, staged)


def _staged(found: Survey, manifest: Manifest, staged: StagedFile) -> Iterator[Finding]:
    place = place_of(staged.path)
    try:
        place.read_checked(size=staged.bytes, digest=staged.sha256)
    except CheckpointError as error:
        path, reason = found.relative(place), error.fields["reason"]
        yield finding(path, "staged", reason, epoch=manifest.epoch)


def _epoch(found: Survey, manifest: Manifest, target: str) -> Iterator[Finding]:
    files = sorted((s for s in manifest.staged if s.target == target), key=lambda s: s.path)
    folder = place_of(target) / epoch_name(manifest.output(target).first + manifest.epoch)
    if folder.exists():
        yield from _published(found, manifest, folder, files)
    elif manifest.epoch == found.newest and not found.was_published(manifest):
        for staged in files:
            yield from _staged(found, manifest, staged)
    elif manifest.epoch == found.newest and any(place_of(s.path).exists() for s in files):
        wrong = "missing, though the epoch is marked as published and its files still wait"
        yield finding(found.relative(folder), _WORDS[files[0].kind], wrong, epoch=manifest.epoch)
    else:
        yield _gone(found, folder, _WORDS[files[0].kind], manifest.epoch)


def _gone(found: Survey, folder: Place, kind: str, epoch: int) -> Finding:
    means = "a published epoch was moved or deleted, which its readers may do"
    return note(found.relative(folder), kind, "not there any more", means=means, epoch=epoch)


def _published(
    found: Survey, manifest: Manifest, folder: Place, files: Sequence[StagedFile]
) -> Iterator[Finding]:
    kind = _WORDS[files[0].kind]
    wanted = {named_by_hash(f"part-{i:05d}", f.sha256, ".parquet"): f for i, f in enumerate(files)}
    there = [entry.name for entry in folder.list()]
    others = [name for name in there if name not in wanted and _PART.fullmatch(name)]
    if others or not there:  # published by an earlier attempt, or as one file
        yield from _other_attempt(found, manifest, folder, sum(f.rows for f in files), kind)
        return
    for name, staged in wanted.items():
        place = folder / name
        try:
            place.read_checked(size=staged.bytes, digest=staged.sha256)
        except CheckpointError as error:
            path = found.relative(place)
            if path not in found.accepted or place.exists():
                yield finding(path, kind, error.fields["reason"], epoch=manifest.epoch)


def _other_attempt(
    found: Survey, manifest: Manifest, folder: Place, rows: int, kind: str
) -> Iterator[Finding]:
    """Yield what is wrong with an epoch whose files have other names than in the manifest.

    A run that went back publishes an epoch again, and its folder stays as it was: the same rows,
    but perhaps in another order.
    """
    wrong, height = _parts(found, folder, kind, manifest.epoch)
    yield from wrong
    given_up = any(path.startswith(f"{found.relative(folder)}/") for path in found.accepted)
    if not wrong and height != rows and not given_up:
        reason = f"{height} rows instead of {rows}"
        yield finding(found.relative(folder), kind, f"damaged: {reason}", epoch=manifest.epoch)


def _parts(found: Survey, folder: Place, kind: str, epoch: int | None) -> tuple[list[Finding], int]:
    """Return what is wrong with the files of an epoch by their own names, and their rows."""
    wrong, rows, present = [], 0, set()
    for entry in folder.list():
        part = _PART.fullmatch(entry.name)
        if part is None:
            continue
        place = folder / entry.name
        present.add(int(part[1]))
        try:
            rows += pl.read_parquet(io.BytesIO(place.read_named())).height
        except CheckpointError as error:
            reason = error.fields["reason"]
            wrong.append(finding(found.relative(place), kind, reason, epoch=epoch))
        except (pl.exceptions.PolarsError, OSError) as error:
            reason = f"damaged: not a Parquet file: {error}".splitlines()[0]
            wrong.append(finding(found.relative(place), kind, reason, epoch=epoch))
    for number in sorted(set(range(max(present, default=0) + 1)) - present):
        path = f"{found.relative(folder)}/part-{number:05d}"
        if not any(gone.startswith(path) for gone in found.accepted):
            wrong.append(finding(path, kind, "a file of the epoch is missing", epoch=epoch))
    return wrong, rows


def _side_output(found: Survey, kind: str, known: set[tuple[str, int]]) -> Iterator[Finding]:
    """Yield what is wrong with the late rows or dead letters of epochs without a manifest."""
    for target in [t for t, word in found.targets().items() if word == kind]:
        for epoch, folder in found.epochs_of(target).items():
            if (target, epoch) not in known:
                wrong, _ = _parts(found, folder, kind, epoch)
                yield from wrong
    yield from _lost_rows(found, kind)


def _lost_rows(found: Survey, kind: str) -> Iterator[Finding]:
    """Yield a note if fewer late rows are there than were counted."""
    if kind != "late" or found.last is None or not found.was_published(found.last):
        return
    rows = 0
    for target in [t for t, word in found.targets().items() if word == kind]:
        for epoch, folder in found.epochs_of(target).items():
            if epoch <= found.newest:
                rows += _parts(found, folder, kind, None)[1]
    counted = found.last.totals.get("late", 0)
    if rows < counted:
        means = "epochs of late rows were moved or deleted, which their readers may do"
        wrong = f"{counted} late rows were counted and {rows} are there"
        yield note(found.relative(found.root / kind), kind, wrong, means=means)
