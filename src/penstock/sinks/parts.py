"""Look at the Parquet files of a published epoch.

Law: a file that is there is what was written, by the hash in its name and by the manifest where
that is kept.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.base.errors import CheckpointError
from penstock.files.place import Place, name_by_hash
from penstock.plan.epoch import StagedFile
from penstock.sinks.sink import Look, Wrong

_PART = re.compile(r"part-(\d{5})(-[0-9a-f]{16})?\.parquet")


def verify_parts(folder: Place, files: Sequence[StagedFile] | None) -> Look:
    """Verify the files of an epoch.

    Args:
        folder: The epoch's folder.
        files: The staged files that became it; None to go by the names of those that are there.
    """
    if files is None:
        return _verify_by_name(folder)
    ordered = sorted(files, key=lambda file: file.path)
    wanted = {
        name_by_hash(f"part-{i:05d}", file.sha256, ".parquet"): file
        for i, file in enumerate(ordered)
    }
    there = [entry.name for entry in folder.list()]
    others = [name for name in there if name not in wanted and _PART.fullmatch(name)]
    rows = sum(file.rows for file in files)
    if others or not there:  # published by an earlier attempt, or as one file
        return _verify_other_attempt(folder, rows)
    found = [_verify_file(folder / name, file) for name, file in wanted.items()]
    return Look(rows=rows, wrong=tuple(wrong for wrong in found if wrong is not None))


def _verify_file(place: Place, staged: StagedFile) -> Wrong | None:
    try:
        place.read_checked(size=staged.bytes, digest=staged.sha256)
    except CheckpointError as error:
        return Wrong(path=str(place), reason=error.fields["reason"], lost=not place.exists())
    return None


def _verify_other_attempt(folder: Place, rows: int) -> Look:
    """Verify an epoch whose files have other names than in the manifest.

    A run that went back publishes an epoch again, and its folder stays as it was: the same rows,
    but perhaps in another order.
    """
    look = _verify_by_name(folder)
    if look.wrong or look.rows == rows:
        return look
    reason = f"damaged: {look.rows} rows instead of {rows}"
    return Look(rows=look.rows, wrong=(Wrong(path=str(folder), reason=reason, lost=True),))


def _verify_by_name(folder: Place) -> Look:
    """Verify files by the hashes and numbers in their names."""
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
            wrong.append(Wrong(path=str(place), reason=error.fields["reason"]))
        except (pl.exceptions.PolarsError, OSError) as error:
            reason = f"damaged: not a Parquet file: {error}".splitlines()[0]
            wrong.append(Wrong(path=str(place), reason=reason))
    for number in sorted(set(range(max(present, default=0) + 1)) - present):
        path = f"{folder}/part-{number:05d}"
        wrong.append(Wrong(path=path, reason="a file of the epoch is missing", lost=True))
    return Look(rows=rows, wrong=tuple(wrong))


def count_parts(folder: Place) -> Look:
    """Count the rows of an epoch's files by their footers."""
    rows, wrong = 0, []
    for entry in folder.list():
        place = folder / entry.name
        try:
            with place.files.open(str(place)) as file:
                rows += int(pq.read_metadata(file).num_rows)
        except (OSError, pa.ArrowException) as error:
            reason = f"not a Parquet file: {error}".splitlines()[0]
            wrong.append(Wrong(path=str(place), reason=reason))
    return Look(rows=rows, wrong=tuple(wrong))
