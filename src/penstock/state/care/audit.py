"""Audit a checkpoint: what was handed out, read, late, refused and written, and what is there.

Epochs whose manifests are kept are looked at one by one; the history before them by the sums that
every manifest carries. Law: an audit changes nothing, computes nothing the way a run does, and
counts rows from the footers of files.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.base.errors import CheckpointError
from penstock.base.words import pluralise
from penstock.files.place import Place, place_of
from penstock.plan.epoch import Output, StagedFile
from penstock.sinks.sink import LastingKind
from penstock.state.care.audited import Audit, EpochAudit, OutputAudit, Parting
from penstock.state.care.survey import Survey, lasting_kind, survey
from penstock.state.manifests import Manifest, output_name
from penstock.state.spark_log import files_of

_TRIES = 5


def audit(checkpoint: str | Path, spark_folder: str | Path | None = None) -> Audit:
    """Compare what a checkpoint says with itself, with its input and with its outputs.

    Args:
        checkpoint: Its path or URI.
        spark_folder: Where Spark keeps its part, if elsewhere.

    Raises:
        CheckpointError: There is no checkpoint of Penstock.
    """
    for _ in range(_TRIES):
        found = survey(checkpoint, spark_folder)
        result = _Auditor(found).audit()
        if result.agrees or max(found.log.epochs(), default=-1) == found.newest:
            break  # else the query runs, and has gone on while we looked
    return result


@dataclass
class _Auditor:
    found: Survey
    partings: list[Parting] = field(default_factory=list)
    missing: list[Parting] = field(default_factory=list)
    there: dict[tuple[str, int, int], Mapping[int, Place]] = field(default_factory=dict)

    def audit(self) -> Audit:
        found = self.found
        for epoch, error in found.unreadable.items():
            reason = str(error.fields["reason"])
            path = found.relative(found.log.place(epoch))
            self._part("manifest", path, f"the manifest cannot be read: {reason}", epoch)
        epochs = [self._epoch(found.manifests[epoch]) for epoch in sorted(found.manifests)]
        outputs = [*self._outputs()]
        return Audit(
            checkpoint=str(found.home),
            newest=found.newest,
            epochs=epochs,
            outputs=outputs,
            partings=self.partings,
            missing=self.missing,
        )

    def _part(self, kind: str, where: str, text: str, epoch: int | None = None) -> None:
        self.partings.append(Parting(kind=kind, where=where, text=text, epoch=epoch))

    # One epoch

    def _epoch(self, manifest: Manifest) -> EpochAudit:
        counts = self._counts(manifest)
        state, there = self._find_published(manifest)
        files = None if manifest.final else self._files(manifest)
        handed_out = None if files is None else self._rows_handed_out(manifest, files)
        if counts:
            self._check(manifest, counts, handed_out)
        return EpochAudit(
            epoch=manifest.epoch,
            files=None if files is None else len(files),
            handed_out=handed_out,
            read=counts.get("read"),
            processed=counts.get("processed"),
            late=counts.get("late"),
            refused=counts.get("refused"),
            written=counts.get("written"),
            in_folders=there,
            state=state,
        )

    def _files(self, manifest: Manifest) -> list[str] | None:
        """Return the files that Spark has handed out for an epoch, without those that wake it."""
        found = files_of(self.found.spark, manifest.epoch)
        if found is None:
            return None
        wake = f"{self.found.spark.parent / 'wake'}/"
        return [path for path in found if not str(place_of(path)).startswith(wake)]

    def _rows_handed_out(self, manifest: Manifest, files: Sequence[str]) -> int | None:
        """Return the rows of the files that an epoch could read; None if that cannot be told.

        Files that wait or were refused then have no part in it; those that it tried again do. Spark
        also lists files in folders below, which only a source with partitions reads.
        """
        before = self.found.manifests.get(manifest.epoch - 1, Manifest(epoch=-1))
        then, now = _list_unread(before), _list_unread(manifest)
        given = f"{self.found.spark.parent / 'rows'}/"
        new = [path for path in files if not str(place_of(path)).startswith(given)]
        seen = sum(manifest.files_seen.values()) - sum(before.files_seen.values())
        refused = {file.path for file in manifest.refused_files}
        if len(new) != seen or refused - {file.path for file in before.refused_files}:
            return None
        return _rows_of_files([*(path for path in files if path not in now), *sorted(then - now)])

    def _counts(self, manifest: Manifest) -> dict[str, int]:
        """Return what an epoch counted; nothing if the manifest before it is not kept."""
        before = self.found.manifests.get(manifest.epoch - 1)
        if before is None and manifest.epoch:
            return {}
        known: Mapping[str, int] = before.totals if before else {}
        return {name: rows - known.get(name, 0) for name, rows in manifest.totals.items()}

    def _check(self, manifest: Manifest, counts: Mapping[str, int], handed_out: int | None) -> None:
        epoch, where = manifest.epoch, f"epoch {manifest.epoch}"
        read, late = counts.get("read", 0), counts.get("late", 0)
        refused = counts.get("refused", 0)
        if handed_out is not None and handed_out != read:
            text = f"the sources handed out {pluralise(handed_out, 'row')} and {read:,} were read"
            self._part("input", where, text, epoch)
        known = counts.get("processed", 0) + late + refused
        if read != known:
            text = f"{read} rows were read and {known} processed, late or refused"
            self._part("rows", where, text, epoch)
        for kind, rows in (("late", late), ("output", counts.get("written", 0))):
            staged = sum(s.rows for s in manifest.staged if s.kind == kind)
            if staged != rows:
                word = "late" if kind == "late" else "written"
                text = f"{rows} rows were counted as {word} and {staged} given to outputs"
                self._part(word, where, text, epoch)
        letters = self._letters(manifest)
        if letters is not None and letters != refused:
            text = f"refused rows: {refused:,}; dead letters: {letters:,}"
            self._part("refused", where, text, epoch)

    def _letters(self, manifest: Manifest) -> int | None:
        """Return how many rows the dead letters of an epoch tell of; None if they are gone."""
        files = [staged for staged in manifest.staged if staged.kind == "dead"]
        if not files:
            return 0
        kind = lasting_kind(manifest.output(files[0].target))
        assert kind is not None  # the checkpoint's own outputs are folders
        folder = self._where(kind, manifest, files[0].target)
        places = [folder / e.name for e in folder.list()] or [place_of(f.path) for f in files]
        try:
            frames = [pl.read_parquet(io.BytesIO(place.read_named())) for place in places]
        except (CheckpointError, pl.exceptions.PolarsError, OSError):
            return None  # `penstock state verify` tells of damage
        letters = pl.concat(frames)
        placed = letters.filter(pl.col("position").is_not_null())
        whole = letters.filter(pl.col("position").is_null())["rows"].sum()
        return int(whole) + placed.select("source", "position").n_unique()

    def _here(self, target: str) -> str:
        """Return where an output is; those in the checkpoint may have been moved with it."""
        name = output_name(target)
        return target if name == target else str(self.found.root / name)

    def _where(self, kind: LastingKind, manifest: Manifest, target: str) -> Place:
        return kind.where(self._here(target), manifest.output(target).first + manifest.epoch)

    def _find_published(self, manifest: Manifest) -> tuple[str, int]:
        """Return the state of an epoch's lasting outputs, and how many of their rows are there."""
        states, there = set(), 0
        for target in sorted({staged.target for staged in manifest.staged}):
            kind = lasting_kind(manifest.output(target))
            if kind is not None:
                files = [s for s in manifest.staged if s.target == target]
                state, rows = self._epoch_of(kind, manifest, files)
                states.add(state)
                there += rows if files[0].kind != "dead" else 0
        order = ("missing", "waiting", "published")
        return next((state for state in order if state in states), "published"), there

    def _epoch_of(
        self, kind: LastingKind, manifest: Manifest, files: Sequence[StagedFile]
    ) -> tuple[str, int]:
        place = self._of_query(kind, manifest, files[0].target)
        if place is None:
            return ("waiting" if self._waits(manifest, files) else "missing"), 0
        expected, rows = sum(f.rows for f in files), self._rows_in(kind, place)
        if rows != expected and not self._is_given_up(place):
            text = f"{expected} rows were written and {rows} are there"
            self._part("output", self.found.relative(place), text, manifest.epoch)
        return "published", rows

    def _of_query(self, kind: LastingKind, manifest: Manifest, target: str) -> Place | None:
        """Return where an epoch is; None if it is gone, or if its place may be another's by now."""
        then, now = manifest.output(target), self.found.output(target)
        if (then.first, then.since) != (now.first, now.since):
            return None
        key = (target, then.first, then.since)
        if key not in self.there:
            self.there[key] = kind.find(self._here(target), manifest.query, then)
        return self.there[key].get(manifest.epoch)

    def _waits(self, manifest: Manifest, files: Sequence[StagedFile]) -> bool:
        """Return whether files wait to be published: only those of the newest epoch can."""
        newest = manifest.epoch == self.found.newest
        return newest and all(place_of(file.path).exists() for file in files)

    def _is_given_up(self, folder: Place) -> bool:
        path = f"{self.found.relative(folder)}/"
        return any(accepted.startswith(path) for accepted in self.found.accepted)

    def _rows_in(self, kind: LastingKind, place: Place) -> int:
        look = kind.count(place)
        for wrong in look.wrong:
            self._part("output", self.found.relative(wrong.path), wrong.reason)
        return look.rows

    # All epochs

    def _outputs(self) -> Iterator[OutputAudit]:
        last = self.found.readable
        for name, output in sorted(last.outputs.items()) if last else ():
            kind = lasting_kind(output)
            if kind is None:
                yield OutputAudit(output=name, epochs=output.epochs, rows=output.rows)
            else:
                yield self._output(kind, last, name, output)

    def _output(
        self, kind: LastingKind, last: Manifest | None, name: str, output: Output
    ) -> OutputAudit:
        assert last is not None
        side = str(self.found.root / name)
        target = side if output_name(side) == name else name
        files = [s for s in last.staged if output_name(s.target) == name]
        waits = not self._where(kind, last, target).exists() and self._waits(last, files)
        waiting = bool(files) and waits
        rows_waiting = sum(f.rows for f in files) if waiting else 0
        there = self.found.epochs_of(target)
        for epoch in [epoch for epoch in there if epoch > self.found.newest]:
            text = f"the folder has it, and the checkpoint's newest epoch is {self.found.newest}"
            self._part("output", self.found.relative(there.pop(epoch)), text, epoch)
        rows = sum(self._rows_in(kind, place) for place in there.values())
        gone = output.epochs - int(waiting) - len(there)
        lost = output.rows - rows_waiting - rows
        given_up = any(self._is_given_up(place) for place in there.values())
        where = self.found.relative(target)
        if gone > 0 and lost >= 0:
            text = f"{gone} of {output.epochs} epochs with {lost} rows are not there any more"
            self.missing.append(Parting(kind="missing", where=where, text=text, rows=lost))
        elif gone or (lost and not (given_up and lost > 0)):
            text = (
                f"{output.rows} rows in {output.epochs} epochs were written, {rows_waiting} wait, "
                f"and {rows} in {len(there)} epochs are there"
            )
            self._part("output", where, text)
        return OutputAudit(
            output=name,
            epochs=output.epochs,
            rows=output.rows,
            epochs_there=len(there),
            rows_there=rows,
            waiting=rows_waiting,
        )


def _list_unread(manifest: Manifest) -> set[str]:
    return {file.path for file in (*manifest.waiting_files, *manifest.refused_files)}


def _rows_of_files(paths: Sequence[str]) -> int | None:
    """Return how many rows some files have; None if one is gone or its format does not tell."""
    found = [_rows_of_file(place_of(path)) for path in paths]
    return None if None in found else sum(rows for rows in found if rows is not None)


def _rows_of_file(place: Place) -> int | None:
    try:
        with place.files.open(str(place)) as file:
            magic = file.read(6)
            file.seek(0)
            if magic.startswith(b"PAR1"):
                return int(pq.read_metadata(file).num_rows)
            if magic == b"ARROW1":
                reader = pa.ipc.open_file(file)
                batches = range(reader.num_record_batches)
                return sum(int(reader.get_batch(i).num_rows) for i in batches)
    except (OSError, pa.ArrowException):
        pass
    return None
