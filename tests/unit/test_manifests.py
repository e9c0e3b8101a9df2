"""Manifests: one commit point, sealed, a chain of hashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.base.errors import CheckpointError, FencedError
from penstock.files.place import place_of
from penstock.plan.epoch import SegmentRef, StagedFile
from penstock.state.manifests import Manifest, ManifestLog


def ref(name: str) -> SegmentRef:
    return SegmentRef(name=name, rows=1, bytes=1, sha256="", until=0, live=((0, 8),), merged=("x",))


def log_in(folder: Path) -> ManifestLog:
    return ManifestLog(place_of(folder))


def committed(log: ManifestLog, epochs: int) -> list[Manifest]:
    manifests: list[Manifest] = []
    for epoch in range(epochs):
        previous = manifests[-1].digest if manifests else ""
        manifests.append(Manifest(epoch=epoch, previous=previous, totals={"read": epoch}))
        log.commit(manifests[-1])
    return manifests


def test_a_manifest_reads_back_as_it_was_written(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    staged = StagedFile(kind="late", target="/late/0", path="p", rows=2, bytes=3, sha256="h")
    manifest = Manifest(
        epoch=0,
        writer="w",
        committed_at=2.5,
        seen={0: -5},
        rows_before={0: 7},
        watermarks={"sink-0": 3},
        segments={"sink-0": (ref("a"),)},
        instances={1: 4},
        totals={"read": 7},
        staged=(staged,),
        heard_at={0: 1.5},
        spark_log={"offsets/0": "h"},
        final=True,
    )
    log.commit(manifest)
    assert log.read(0) == manifest == log.newest()
    assert log.read(1) is None


def test_of_two_drivers_one_is_fenced(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    log.commit(Manifest(epoch=0))
    with pytest.raises(FencedError, match="another driver"):
        log_in(tmp_path).commit(Manifest(epoch=0, totals={"read": 1}))
    assert log.read(0) == Manifest(epoch=0)
    assert [entry.name for entry in log.folder.list()] == ["000000000000.json"]


def test_a_driver_that_slept_until_its_epoch_was_forgotten_is_fenced(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    newest = committed(log, 9)[-1]
    for epoch in range(5):
        log.place(epoch).delete()
    with pytest.raises(FencedError, match="another driver"):
        log.commit(Manifest(epoch=3))
    assert log.epochs() == [5, 6, 7, 8]
    assert log.newest() == newest


def test_a_chain_that_does_not_hold_is_noticed(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    committed(log, 3)
    (tmp_path / "manifests/000000000001.json").write_bytes(Manifest(epoch=1).to_bytes())
    with pytest.raises(CheckpointError, match="does not follow"):
        log.newest()


def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    committed(log, 1)
    path = tmp_path / "manifests/000000000000.json"
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(CheckpointError, match=r"damaged|format"):
            log.newest()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match="damaged"):
            log.newest()


def test_a_manifest_in_another_ones_place_is_noticed(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    committed(log, 2)
    folder = tmp_path / "manifests"
    (folder / "000000000001.json").write_bytes((folder / "000000000000.json").read_bytes())
    with pytest.raises(CheckpointError, match="manifest of epoch 0"):
        log.newest()
