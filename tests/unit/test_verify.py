"""Verify: what is damaged is found and named, what is retired meanwhile is not taken for damage."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

import penstock.state.care.verify as module
from penstock.base.errors import CheckpointError
from penstock.base.hashing import BUCKET
from penstock.files.place import place_of
from penstock.operators.kernel import UNTIL
from penstock.plan.epoch import SegmentRef
from penstock.state.care.findings import MEANING
from penstock.state.care.survey import Survey, survey
from penstock.state.care.verify import verify
from penstock.state.care.verify_log import checksum_bytes
from penstock.state.manifests import Manifest, ManifestLog
from penstock.state.pinned import Pin, write_pin


def replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def test_a_sound_checkpoint(home: Path) -> None:
    found = verify(home)
    assert found.sound
    assert not found.notes
    assert found.newest == 10
    assert found.files == sum(path.is_file() for path in home.rglob("*"))
    assert found.orphans == 0


def test_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no checkpoint of Penstock"):
        verify(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [
        ("penstock/manifests/*5.json", "manifest"),
        ("penstock/pinned/*0.json", "pin"),
        ("penstock/planned/*", "plan"),
        ("penstock/published/*", "marker"),
        ("penstock/state/aggregate-0/*", "segment"),
        ("penstock/late/0/epoch=0000000001/*", "late"),
        ("penstock/dead/0/epoch=0000000001/*", "dead"),
        ("../raw/epoch=0000000009/*", "published"),
        ("rows/1/*", "rows"),
        ("spark/offsets/3", "offsets"),
        ("spark/commits/3", "commits"),
        ("spark/sources/0/2", "sources"),
        ("spark/metadata", "metadata"),
    ],
)
def test_each_kind_of_file_is_looked_at(home: Path, pattern: str, kind: str) -> None:
    path = sorted(home.glob(pattern))[0]
    data = path.read_bytes()
    replace(path, data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[-3:])
    found = verify(home)
    assert [(item.kind, Path(item.path).name) for item in found.findings] == [(kind, path.name)]
    assert found.findings[0].means == MEANING[kind][0]
    assert found.findings[0].repair


def test_a_chain_that_does_not_hold(home: Path) -> None:
    path = home / "penstock" / "manifests" / "000000000008.json"
    replace(path, Manifest(epoch=8).to_bytes())
    wrong = [item.wrong for item in verify(home).findings if item.kind == "manifest"]
    assert any("does not follow the manifest of epoch 7" in text for text in wrong)
    assert any("does not follow the manifest of epoch 8" in text for text in wrong)


def test_a_missing_manifest(home: Path) -> None:
    (home / "penstock" / "manifests" / "000000000008.json").unlink()
    assert [item.wrong for item in verify(home).findings] == ["missing"]


def test_a_missing_newest_manifest_is_told_by_what_it_left(home: Path) -> None:
    (home / "penstock" / "manifests" / "000000000010.json").unlink()
    paths = {item.path for item in verify(home).findings}
    assert "penstock/manifests/000000000010.json" in paths
    assert "spark/commits/10" in paths


def test_deleted_outputs(home: Path) -> None:
    """A whole epoch may go; a part of one may not."""
    raw = home.parent / "raw"
    (part,) = (raw / "epoch=0000000008").iterdir()
    part.unlink()
    found = verify(home)
    assert ["epoch=0000000008" in item.path for item in found.findings] == [True]
    (raw / "epoch=0000000008").rmdir()
    found = verify(home)
    assert found.sound
    assert ["epoch=0000000008" in note.path for note in found.notes] == [True]


def test_what_another_program_left_is_no_damage(home: Path) -> None:
    (home / "penstock" / "manifests" / "2024-notes.txt").write_text("mine")
    (home / "penstock" / "state" / "aggregate-0" / "000000000003-zombie.arrow").write_text("x")
    (home / "penstock" / "late" / "notes.txt").write_text("mine")
    found = verify(home)
    assert found.sound
    assert found.orphans == 1


def test_spark_that_is_ahead(home: Path) -> None:
    data = (home / "spark" / "commits" / "10").read_bytes()
    (home / "spark" / "commits" / "12").write_bytes(data)
    assert "spark/commits/12" in {item.path for item in verify(home).findings}


@pytest.mark.parametrize(
    ("word", "other"),
    [(b"batchId", b"batcxId"), (b"path", b"pbth")],
)
def test_a_list_of_files_with_an_entry_that_is_none(home: Path, word: bytes, other: bytes) -> None:
    """Without Hadoop's checksum, which a plain copy of a checkpoint may lack."""
    path = next(p for p in sorted((home / "spark/sources/0").iterdir()) if p.name[0] != ".")
    replace(path, path.read_bytes().replace(word, other))
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    told = {item.path: item.wrong for item in verify(home).findings}
    assert "names no file" in told[f"spark/sources/0/{path.name}"]


def test_a_log_elsewhere(home: Path, tmp_path: Path) -> None:
    (home / "spark").rename(tmp_path / "spark")
    (home / "rows").rename(tmp_path / "rows")
    assert not verify(home).sound
    assert verify(home, tmp_path).sound


def test_hadoops_checksum() -> None:
    """Taken from a file that Spark wrote."""
    data = b'v1\n{"nextBatchWatermarkMs":0}'
    assert checksum_bytes(data)[:8] == b"crc\0\0\0\x02\0"
    assert len(checksum_bytes(data * 40)) == 8 + 4 * 3


def frame(buckets: list[int], **columns: list[int]) -> pl.DataFrame:
    data = {"k": buckets, UNTIL: [9] * len(buckets), BUCKET: buckets} | columns
    return pl.DataFrame(data).with_columns(pl.col(BUCKET).cast(pl.Int32))


@pytest.mark.parametrize(
    ("second", "wrong"),
    [
        (frame([3, 1]), "not sorted"),
        (frame([1, 8]), "beyond the 8"),
        (frame([1, 2], more=[1, 2]), "columns"),
    ],
)
def test_what_is_wrong_inside_a_segment(tmp_path: Path, second: pl.DataFrame, wrong: str) -> None:
    root = place_of(tmp_path, fsync=False) / "penstock"
    write_pin(root, 0, Pin(query="q", facts={"buckets": 8}))
    refs = []
    for number, rows in enumerate((frame([1, 2]), second)):
        data = rows.write_ipc(None).getvalue()
        name = f"000000000000-{number}.arrow"
        digest = (root / "state" / "aggregate-0" / name).write_new(data)
        ref = SegmentRef(name=name, rows=2, bytes=len(data), sha256=digest, until=9, live=((0, 8),))
        refs.append(ref)
    ManifestLog(root).commit(Manifest(epoch=0, segments={"aggregate-0": tuple(refs)}))
    (item,) = verify(tmp_path).findings
    assert wrong in item.wrong
    assert item.path.endswith("000000000000-1.arrow")


def test_what_is_retired_meanwhile_is_not_damage(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the listing and the reading, a running query retires an epoch and its segments."""
    taken: list[Survey] = []

    def surveyed(checkpoint: Path, spark_folder: Path | None) -> Survey:
        found = survey(checkpoint, spark_folder)
        taken.append(found)
        if len(taken) == 1:
            kept = {pair for e in found.epochs[-1:] for pair in found.manifests[e].segment_names()}
            for epoch in found.epochs[:-1]:
                (home / "penstock" / "manifests" / f"{epoch:012d}.json").unlink()
                for operator, name in found.manifests[epoch].segment_names() - kept:
                    (home / "penstock" / "state" / operator / name).unlink(missing_ok=True)
        return found

    monkeypatch.setattr(module, "survey", surveyed)
    assert verify(home).sound
    assert len(taken) == 2, "nothing was retired that the first look could miss"
