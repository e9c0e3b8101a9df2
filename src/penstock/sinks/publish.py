"""Publish the outputs of a committed epoch.

Law: a reader of a sink's folder sees all of an epoch's rows or none, and sees them once, however
often publishing is interrupted and repeated, and by however many drivers.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import suppress

import polars as pl

from penstock.files.place import Place, name_by_hash
from penstock.plan.epoch import StagedFile
from penstock.sinks.epochs import epoch_name, epochs_in
from penstock.sinks.staged import parquet_bytes, read_staged


def publish_folder(target: Place, number: int, files: Sequence[StagedFile]) -> None:
    """Make an epoch's staged files visible in ``target/epoch=N``, in one step.

    Where folders cannot be moved, the rows become one file, which appears in one step too.

    Raises:
        CheckpointError: A staged file is damaged.
        FileNotFoundError: A staged file is missing, and the epoch is not published.
    """
    if not files:
        return
    folder = target / epoch_name(number)
    ordered = sorted(files, key=lambda file: file.path)
    if target.files.moves_folders:
        names = [name_by_hash(f"part-{i:05d}", f.sha256, ".parquet") for i, f in enumerate(ordered)]
        staged = [file.path for file in ordered]
        target.files.publish(str(folder), dict(zip(names, staged, strict=True)))
    else:
        _publish_one(folder / "part-00000.parquet", ordered)


def _publish_one(place: Place, files: Sequence[StagedFile]) -> None:
    if not place.exists():
        rows = pl.concat([read_staged(file) for file in files])
        with suppress(FileExistsError):  # another driver has published the same rows
            place.write_new(parquet_bytes(rows))
    for file in files:
        Place(place.files, file.path).delete()


def read_published(target: Place) -> dict[int, pl.DataFrame]:
    """Return the published rows by the number of their epoch, each file verified.

    Raises:
        CheckpointError: A file is damaged.
    """
    found = {}
    for number, name in epochs_in(target).items():
        frames = [_read(target / name / file.name) for file in (target / name).list()]
        if frames:
            found[number] = pl.concat(frames)
    return found


def _read(place: Place) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(place.read_named()))
