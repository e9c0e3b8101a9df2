"""Publish the outputs of a committed epoch.

Law: a reader of a sink's folder sees all of an epoch's rows or none, and sees them once, however
often publishing is interrupted and repeated.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from penstock.plan.epoch import StagedFile
from penstock.state.files import sync_folder


def publish_folder(
    target: Path,
    epoch: int,
    files: Sequence[StagedFile],
    *,
    fsync: bool = True,
) -> Path | None:
    """Move an epoch's staged files into ``target/epoch=N`` with one rename of the folder.

    Returns:
        The folder that readers now see, or None if the epoch has no rows for this sink.
    """
    if not files:
        return None
    final = target / f"epoch={epoch}"
    if final.is_dir():
        return final
    gathered = Path(files[0].path).parent / f"epoch={epoch}"
    gathered.mkdir(parents=True, exist_ok=True)
    for number, staged in enumerate(sorted(files, key=lambda f: f.path)):
        place = gathered / f"part-{number:05d}.parquet"
        if not place.exists():
            os.rename(staged.path, place)
    target.mkdir(parents=True, exist_ok=True)
    if fsync:
        sync_folder(gathered)
    os.rename(gathered, final)
    if fsync:
        sync_folder(target)
    return final
