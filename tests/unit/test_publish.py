"""Publishing: readers see an epoch once and whole, however often and by however many it is done."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pytest

from penstock.base.errors import CheckpointError
from penstock.files.place import place_of
from penstock.plan.epoch import SinkPlan, StagedFile
from penstock.sinks.folder import staging_folder
from penstock.sinks.publish import publish_folder, read_published
from penstock.sinks.staged import read_staged
from penstock.sinks.staging import stage_frame


def staged(target: Path, files: int) -> list[StagedFile]:
    sink = SinkPlan(target=str(target), staging=staging_folder(str(target), "q"))
    return [
        stage_frame(sink, "output", 4, pl.DataFrame({"n": [2 * i, 2 * i + 1]}), fsync=False)
        for i in range(files)
    ]


def seen(target: Path) -> list[int]:
    """Return what a reader of the sink's folder sees."""
    files = sorted(target.glob("**/*.parquet"))
    return sorted(n for file in files for n in pl.read_parquet(file, hive_partitioning=False)["n"])


def test_published_once_however_often(tmp_path: Path) -> None:
    target = tmp_path / "out"
    files = staged(target, 3)
    for _ in range(3):
        publish_folder(place_of(target), 4, files)
        assert seen(target) == [0, 1, 2, 3, 4, 5]
    assert list(Path(staging_folder(str(target), "q")).iterdir()) == []
    (rows,) = read_published(place_of(target)).values()
    assert sorted(rows["n"]) == [0, 1, 2, 3, 4, 5]


def test_published_once_by_several_at_once(tmp_path: Path) -> None:
    for trial in range(20):
        target = tmp_path / f"out{trial}"
        files = staged(target, 5)
        with ThreadPoolExecutor(4) as pool:
            publishing = [
                pool.submit(publish_folder, place_of(target, fsync=False), 4, files)
                for _ in range(4)
            ]
        assert [done.exception(timeout=60) for done in publishing] == [None] * 4
        assert seen(target) == list(range(10))
        assert list(Path(staging_folder(str(target), "q")).iterdir()) == []


def test_an_epoch_without_rows_leaves_nothing(tmp_path: Path) -> None:
    publish_folder(place_of(tmp_path / "out"), 0, [])
    assert not (tmp_path / "out").exists()


def test_a_staged_file_that_is_lost_is_an_error(tmp_path: Path) -> None:
    target = tmp_path / "out"
    files = staged(target, 2)
    Path(files[1].path).unlink()
    with pytest.raises(FileNotFoundError):
        publish_folder(place_of(target), 4, files)
    assert seen(target) == []


def test_damage_to_staged_and_published_files_is_noticed(tmp_path: Path) -> None:
    target = tmp_path / "out"
    files = staged(target, 1)
    path = Path(files[0].path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"?")
    with pytest.raises(CheckpointError, match="damaged"):
        read_staged(files[0])
    path.write_bytes(whole)
    publish_folder(place_of(target), 4, files)
    (part,) = target.glob("epoch=0000000004/*")
    part.write_bytes(whole[:-1] + b"?")
    with pytest.raises(CheckpointError, match="hash in its name"):
        read_published(place_of(target))
