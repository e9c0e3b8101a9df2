"""The store's laws: manifests chain and fence, segments are verified, publishing happens once."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock.plan.buckets import BucketMap, BucketSet
from penstock.plan.epoch import SegmentRef, StagedFile
from penstock.sinks.publish import publish_folder
from penstock.state.compaction import FANOUT, choose
from penstock.state.manifests import KEPT, Manifest, ManifestLog
from penstock.state.segments import read_segment, write_segment

ROWS = pl.DataFrame({"k": [f"key{i}" for i in range(200)], "__until": list(range(200))})


def segment(folder: Path) -> SegmentRef:
    everything = BucketSet(((0, 64),))
    return write_segment(folder, 3, ROWS, keys=["k"], buckets=64, live=everything, fsync=False)


def test_of_two_drivers_the_second_is_fenced_and_the_first_unharmed(tmp_path: Path) -> None:
    first, second = ManifestLog(tmp_path), ManifestLog(tmp_path)
    first.commit(Manifest(epoch=0, totals={"read": 1}))
    with pytest.raises(ps.FencedError, match="another driver has committed this epoch"):
        second.commit(Manifest(epoch=0, totals={"read": 2}))
    newest = first.newest()
    assert newest is not None
    assert newest.totals == {"read": 1}
    assert [p.name for p in first.folder.iterdir()] == ["000000000000.json"]


def test_a_manifest_that_does_not_follow_is_noticed(tmp_path: Path) -> None:
    log = ManifestLog(tmp_path)
    start = Manifest(epoch=0)
    log.commit(start)
    log.commit(Manifest(epoch=1, previous=start.digest))
    assert log.newest() is not None
    log.path(0).write_bytes(Manifest(epoch=0, totals={"read": 9}).to_bytes())
    with pytest.raises(ps.CheckpointError, match="does not follow"):
        log.newest()
    log.path(1).write_bytes(b"{}")
    with pytest.raises(ps.CheckpointError, match="not a manifest"):
        log.newest()


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    ref = segment(tmp_path / "state" / "aggregate-0")
    staged = StagedFile(kind="output", operator=2, path="x", rows=1, bytes=2, sha256="3")
    written = Manifest(
        epoch=5, seen={0: 7}, rows_before={0: 3}, watermarks={"aggregate-0": 4},
        segments={"aggregate-0": (ref,)}, staged=(staged,), heard_at={0: 1.5},
    )  # fmt: skip
    assert Manifest.from_bytes(written.to_bytes()) == written


def test_retiring_removes_what_only_old_manifests_name(tmp_path: Path) -> None:
    log = ManifestLog(tmp_path)
    kept, dropped = segment(log.state / "op"), segment(log.state / "op")
    last = None
    for epoch in range(KEPT + 3):
        refs = (kept, dropped) if epoch == 0 else (kept,)
        manifest = Manifest(
            epoch=epoch, previous=last.digest if last else "", segments={"op": refs}
        )
        log.commit(manifest, fsync=False)
        log.retire(epoch)
        last = manifest
    assert log.epochs() == list(range(2, KEPT + 3))
    assert [p.name for p in (log.state / "op").iterdir()] == [kept.name]
    (log.state / "op" / "orphan.arrow").write_bytes(b"from an attempt that died")
    assert log.remove_orphans() == 1


def test_owners_read_their_buckets_and_together_everything(tmp_path: Path) -> None:
    ref = segment(tmp_path)
    owners = BucketMap.even(64, 3)
    parts = [read_segment(tmp_path, ref, owners.owned_by(i)) for i in range(3)]
    assert sum(part.height for part in parts) == ROWS.height
    assert sorted(pl.concat(parts)["k"]) == sorted(ROWS["k"])


@pytest.mark.parametrize("damage", ["bit", "short", "gone", "other"])
def test_a_damaged_segment_is_never_read(tmp_path: Path, damage: str) -> None:
    ref = segment(tmp_path)
    path = tmp_path / ref.name
    data = bytearray(path.read_bytes())
    if damage == "bit":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif damage == "short":
        path.write_bytes(data[:-8])
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes((tmp_path / segment(tmp_path).name).read_bytes()[::-1])
    with pytest.raises(ps.CheckpointError, match=r"missing|damaged"):
        read_segment(tmp_path, ref, BucketSet(((0, 64),)))


def test_segments_stay_few(tmp_path: Path) -> None:
    refs: list[SegmentRef] = []
    most = 0
    for epoch in range(1000):
        refs.append(_ref(f"{epoch}", 10))
        while chosen := choose(refs):
            rest = [r for r in refs if r not in chosen]
            refs = [*rest, _ref(f"{epoch}-merged-{len(rest)}", sum(r.rows for r in chosen))]
        most = max(most, len(refs))
    assert sum(r.rows for r in refs) == 10_000
    assert most <= FANOUT * 8


def _ref(name: str, rows: int) -> SegmentRef:
    return SegmentRef(name=name, rows=rows, bytes=0, sha256="", until=0, live=((0, 1),))


@pytest.mark.parametrize("died_after", range(4))
def test_publishing_that_is_cut_off_and_repeated_happens_once(
    tmp_path: Path, died_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    files = []
    staging = tmp_path / ".out.staging"
    staging.mkdir()
    for i in range(3):
        path = staging / f"{i}.parquet"
        pl.DataFrame({"x": [i]}).write_parquet(path)
        files.append(
            StagedFile(kind="output", operator=1, path=str(path), rows=1, bytes=1, sha256="")
        )
    real = os.rename
    calls: list[object] = []

    def dying(source: object, target: object) -> None:
        if len(calls) == died_after:
            raise KeyboardInterrupt
        calls.append(source)
        real(source, target)  # type: ignore[arg-type]  # whatever publish hands over

    monkeypatch.setattr(os, "rename", dying)
    with pytest.raises(KeyboardInterrupt):
        publish_folder(tmp_path / "out", 7, files, fsync=False)
    visible = tmp_path / "out" / "epoch=7"
    assert not visible.exists(), "a reader would see a part of the epoch"
    monkeypatch.setattr(os, "rename", real)
    for _ in range(2):
        publish_folder(tmp_path / "out", 7, files, fsync=False)
        assert sorted(pl.read_parquet(visible)["x"]) == [0, 1, 2]
