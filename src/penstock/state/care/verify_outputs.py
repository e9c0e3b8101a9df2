"""Verify outputs: files that wait, published epochs, late rows and dead letters.

Law: a file that is there is what was written, by the hash in its name and by the manifest where
that is kept. Readers may move or delete whole epochs, so one that is gone is only a note.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock.base.errors import CheckpointError
from penstock.files.place import Place, place_of
from penstock.plan.epoch import StagedFile
from penstock.sinks.registry import KINDS
from penstock.sinks.sink import Wrong
from penstock.state.care.findings import Finding, finding, note
from penstock.state.care.survey import Survey, lasting_kind
from penstock.state.manifests import Manifest

_WORDS = {"output": "published", "late": "late", "dead": "dead"}


def verify_outputs(found: Survey) -> Iterator[Finding]:
    """Yield what is wrong with the outputs."""
    known: set[tuple[str, int]] = set()
    for manifest in found.manifests.values():
        for target in sorted({staged.target for staged in manifest.staged}):
            known.add((target, manifest.epoch))
            yield from _epoch(found, manifest, target)
    for kind in ("late", "dead"):
        yield from _side_output(found, kind, known)
    yield from _note_unknown(found)


def _epoch(found: Survey, manifest: Manifest, target: str) -> Iterator[Finding]:
    files = [staged for staged in manifest.staged if staged.target == target]
    output, word = manifest.output(target), _WORDS[files[0].kind]
    kind = lasting_kind(output)
    if kind is None:
        yield from _verify_passed_on(found, manifest, files)
        return
    place = kind.where(target, output.first + manifest.epoch)
    if place.exists():
        wrong = kind.verify(place, files).wrong
        yield from _findings(found, wrong, word, manifest.epoch)
    elif manifest.epoch == found.newest and not found.was_published(manifest):
        yield from _verify_staged(found, manifest, files)
    elif manifest.epoch == found.newest and any(place_of(s.path).exists() for s in files):
        lost = "missing, though the epoch is marked as published and its files still wait"
        yield finding(found.relative(place), word, lost, epoch=manifest.epoch)
    else:
        yield _note_gone(found, place, word, manifest.epoch)


def _verify_passed_on(
    found: Survey, manifest: Manifest, files: Sequence[StagedFile]
) -> Iterator[Finding]:
    """Yield what is wrong with files for a sink whose epochs do not stay as files."""
    if manifest.epoch == found.newest:
        published = found.was_published(manifest)
        left = [s for s in files if not published or place_of(s.path).exists()]
        yield from _verify_staged(found, manifest, left)


def _verify_staged(
    found: Survey, manifest: Manifest, files: Iterable[StagedFile]
) -> Iterator[Finding]:
    for staged in files:
        place = place_of(staged.path)
        try:
            place.read_checked(size=staged.bytes, digest=staged.sha256)
        except CheckpointError as error:
            path, reason = found.relative(place), error.fields["reason"]
            yield finding(path, "staged", reason, epoch=manifest.epoch)


def _note_gone(found: Survey, place: Place, kind: str, epoch: int) -> Finding:
    means = "a published epoch was moved or deleted, which its readers may do"
    return note(found.relative(place), kind, "not there any more", means=means, epoch=epoch)


def _findings(
    found: Survey, wrong: Iterable[Wrong], kind: str, epoch: int | None
) -> Iterator[Finding]:
    """Yield what is wrong with a published epoch, without what a repair has given up."""
    for item in wrong:
        path = found.relative(item.path)
        if not item.lost or not any(given_up.startswith(path) for given_up in found.accepted):
            yield finding(path, kind, item.reason, epoch=epoch)


def _note_unknown(found: Survey) -> Iterator[Finding]:
    """Yield a note for each sink of a kind that this process does not know."""
    outputs = found.readable.outputs if found.readable else {}
    for name, output in outputs.items():
        if output.kind not in KINDS:
            means = "what the sink has published cannot be verified; register its kind first"
            yield note(name, "published", f"no kind of sink {output.kind!r}", means=means)


def _side_output(found: Survey, word: str, known: set[tuple[str, int]]) -> Iterator[Finding]:
    """Yield what is wrong with the late rows or dead letters of epochs without a manifest."""
    for target in [t for t, of in found.targets().items() if of == word]:
        kind = lasting_kind(found.output(target))
        for epoch, place in found.epochs_of(target).items():
            if kind is not None and (target, epoch) not in known:
                yield from _findings(found, kind.verify(place, None).wrong, word, epoch)
    yield from _note_lost_rows(found, word)


def _note_lost_rows(found: Survey, word: str) -> Iterator[Finding]:
    """Yield a note if fewer late rows are there than were counted."""
    if word != "late" or found.last is None or not found.was_published(found.last):
        return
    rows = 0
    for target in [t for t, of in found.targets().items() if of == word]:
        kind = lasting_kind(found.output(target))
        for epoch, place in found.epochs_of(target).items():
            if kind is not None and epoch <= found.newest:
                rows += kind.verify(place, None).rows
    counted = found.last.totals.get("late", 0)
    if rows < counted:
        means = "epochs of late rows were moved or deleted, which their readers may do"
        wrong = f"{counted} late rows were counted and {rows} are there"
        yield note(found.relative(found.root / word), word, wrong, means=means)
