"""Manifests: one commit point, sealed, a chain of hashes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from penstock.base.errors import CheckpointError, FencedError
from penstock.files.place import place_of
from penstock.files.sealed import seal
from penstock.plan.changes import USER, Reconfiguration
from penstock.plan.epoch import Output, SegmentRef, StagedFile
from penstock.plan.files import UnreadFile
from penstock.plan.progress import Progress
from penstock.plan.tails import Tail
from penstock.state.manifests import Manifest, ManifestLog


def ref(name: str) -> SegmentRef:
    return SegmentRef(name=name, rows=1, bytes=1, sha256="", until=0, live=((0, 8),), merged=("x",))


def full_manifest() -> Manifest:
    """Return a manifest with something in every field."""
    unread = UnreadFile(source=0, path="/a.csv", reason="short", since=1.5, tried=2.5, tries=2)
    move = Reconfiguration(
        id="3.0", epoch=3, at=1.0, subquery=1, name="a", kind="move", cause=USER,
        protocol="window", before=2, after=2, buckets=4, bytes=0, seconds=0.5, outcome="moving",
        sentence="it moves",
    )  # fmt: skip
    staged = StagedFile(kind="late", target="/late/0", path="p", rows=2, bytes=3, sha256="h")
    return Manifest(
        epoch=3,
        previous="before",
        writer="w",
        committed_at=2.5,
        seen={10: -5, 2: 2**62},
        rows_before={0: 7},
        watermarks={"sink-0": 3},
        progress={"sink-0": Progress(sets=((3, ((0, 2),)), (5, ((2, 8),))))},
        segments={"sink-0": (ref("a"),)},
        instances={1: 4},
        owners={"sink-0": ((0, 4), (1, 4))},
        reconfigured=(move,),
        tails=(
            Tail(operator="a", epoch=3, before_us=5, until_us=9, held=((0, 4, 1),), moves=(move,)),
        ),
        totals={"read": 7},
        files_seen={0: 3},
        files_read={0: 1},
        waiting_files=(unread,),
        refused_files=(unread,),
        source_names={0: "calls"},
        staged=(staged,),
        outputs={"/out": Output(rows=1, epochs=2, first=3, since=4)},
        query="word",
        heard_at={0: 1.5},
        spark_log={"offsets/0": "h"},
        final=True,
        repaired="it was",
    )


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
    manifest = full_manifest()
    bare = Manifest(epoch=4)
    same = [f.name for f in fields(Manifest) if getattr(bare, f.name) == getattr(manifest, f.name)]
    assert same == [], "the manifest of this test has something in every field"
    log.commit(manifest)
    found = log.read(3)
    assert found == manifest == log.newest()
    assert found.digest == manifest.digest
    assert log.read(4) is None


WRONG: dict[str, tuple[object, str]] = {
    "a text for a number": ({"epoch": "0"}, r"Expected `int`, got `str` - at `\$\.epoch`"),
    "no epoch": ({"totals": {}}, "missing required field `epoch`"),
    "a list": ([1, 2], "Expected `object`, got `array`"),
    "a segment without a hash": (
        {"epoch": 0, "segments": {"a": [{"name": "n", "rows": 1, "bytes": 1, "live": []}]}},
        r"missing required field `sha256` - at `\$\.segments\[\.\.\.\]\[0\]`",
    ),
    "a bucket at two marks": (
        {"epoch": 0, "progress": {"a": {"sets": [[1, [[0, 2]]], [2, [[1, 3]]]]}}},
        "a bucket stands at exactly one mark",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_sealed_and_is_no_manifest_is_told(tmp_path: Path, name: str) -> None:
    value, reason = WRONG[name]
    log = log_in(tmp_path)
    log.place(0).write_new(seal("manifest", value))
    with pytest.raises(CheckpointError, match=reason) as caught:
        log.newest()
    assert caught.value.fields["path"] == str(log.place(0))
    assert caught.value.fields["reason"].startswith("damaged: not what a manifest holds: ")


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
