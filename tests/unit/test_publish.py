"""Publishing: however often it is interrupted and repeated, readers see an epoch once and whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from penstock.plan.epoch import EpochPlan, StagedFile
from penstock.sinks import publish
from penstock.sinks.publish import publish_folder
from penstock.sinks.staging import stage_frame, staging_folder
from penstock.state.files import sync_folder


class _InterruptionError(Exception):
    pass


def staged(target: Path, files: int) -> list[StagedFile]:
    plan = EpochPlan(epoch=4, checkpoint="", fsync=False)
    folder = staging_folder(str(target))
    return [
        stage_frame(folder, "output", 2, plan, pl.DataFrame({"n": [2 * i, 2 * i + 1]}))
        for i in range(files)
    ]


def seen(target: Path) -> list[int]:
    """Return what a reader of the sink's folder sees."""
    files = sorted(target.glob("**/*.parquet"))
    return sorted(n for file in files for n in pl.read_parquet(file, hive_partitioning=False)["n"])


@pytest.mark.parametrize("step", range(12))
def test_interrupted_at_each_step_and_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    target = tmp_path / "out"
    files = staged(target, 3)
    left = [step]

    def interrupted(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if left[0] == 0:
                raise _InterruptionError
            left[0] -= 1
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", interrupted(os.rename))
        patched.setattr(Path, "mkdir", interrupted(Path.mkdir))
        patched.setattr(publish, "sync_folder", interrupted(sync_folder))
        try:
            publish_folder(target, 4, files)
            done = True
        except _InterruptionError:
            done = False
        assert seen(target) in ([], [0, 1, 2, 3, 4, 5])
    assert done == (step >= 8)  # two folders are made, four renames and two syncs happen
    for _ in range(2):
        assert publish_folder(target, 4, files) == target / "epoch=4"
        assert seen(target) == [0, 1, 2, 3, 4, 5]


def test_an_epoch_without_rows_leaves_nothing(tmp_path: Path) -> None:
    assert publish_folder(tmp_path / "out", 0, []) is None
    assert not (tmp_path / "out").exists()
