"""Manifests: one commit point, a chain of hashes, and only what is needed stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import CheckpointError, FencedError
from penstock.plan.epoch import SegmentRef, StagedFile
from penstock.state.manifests import KEPT, Manifest, ManifestLog


def ref(name: str) -> SegmentRef:
    return SegmentRef(name=name, rows=1, bytes=1, sha256="", until=0, live=((0, 8),))


def committed(log: ManifestLog, epochs: int) -> list[Manifest]:
    """Commit epochs, each with a segment of its own that lives for two epochs."""
    manifests: list[Manifest] = []
    for epoch in range(epochs):
        names = [f"{e}.arrow" for e in (epoch - 1, epoch) if e >= 0]
        path = log.state / "aggregate-0" / names[-1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        previous = manifests[-1].digest if manifests else ""
        manifest = Manifest(
            epoch=epoch, previous=previous, segments={"aggregate-0": tuple(map(ref, names))}
        )
        log.commit(manifest, fsync=False)
        manifests.append(manifest)
    return manifests


def test_a_manifest_reads_back_as_it_was_written(tmp_path: Path) -> None:
    log = ManifestLog(tmp_path)
    staged = StagedFile(kind="late", operator=1, path="p", rows=2, bytes=3, sha256="h")
    manifest = Manifest(
        epoch=0,
        seen={0: -5},
        rows_before={0: 7},
        watermarks={"sink-0": 3},
        segments={"sink-0": (ref("a"),)},
        totals={"read": 7},
        staged=(staged,),
        heard_at={0: 1.5},
        final=True,
    )
    log.commit(manifest)
    assert log.read(0) == manifest == log.newest()
    assert log.read(1) is None


def test_of_two_drivers_one_is_fenced(tmp_path: Path) -> None:
    log = ManifestLog(tmp_path)
    log.commit(Manifest(epoch=0))
    with pytest.raises(FencedError, match="another driver"):
        ManifestLog(tmp_path).commit(Manifest(epoch=0, totals={"read": 1}))
    assert log.read(0) == Manifest(epoch=0)
    assert [path.name for path in log.folder.iterdir()] == ["000000000000.json"]


def test_a_broken_chain_and_a_broken_file_are_noticed(tmp_path: Path) -> None:
    log = ManifestLog(tmp_path)
    committed(log, 3)
    log.path(1).write_bytes(Manifest(epoch=1, totals={"read": 9}).to_bytes())
    with pytest.raises(CheckpointError, match="does not follow"):
        log.newest()
    log.path(2).write_bytes(b'{"format": 1')
    with pytest.raises(CheckpointError, match="not a manifest"):
        log.newest()


def test_old_manifests_and_their_segments_retire(tmp_path: Path) -> None:
    log = ManifestLog(tmp_path)
    newest = KEPT + 5
    committed(log, newest + 1)
    log.retire(newest)
    assert log.epochs() == list(range(newest - KEPT, newest + 1))
    kept = {
        name
        for epoch in log.epochs()
        for _, name in (log.read(epoch) or Manifest(epoch=0)).segment_names()
    }
    assert {path.name for path in (log.state / "aggregate-0").iterdir()} == kept
    assert log.newest() is not None


def test_orphans_are_removed_and_nothing_else(tmp_path: Path) -> None:
    log = ManifestLog(tmp_path)
    committed(log, 2)
    (log.state / "aggregate-0" / "orphan.arrow").write_bytes(b"x")
    assert log.remove_orphans() == 1
    assert {path.name for path in (log.state / "aggregate-0").iterdir()} == {"0.arrow", "1.arrow"}
