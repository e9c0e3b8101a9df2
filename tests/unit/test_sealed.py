"""Sealed files: what is opened has the fields and types of its kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.errors import CheckpointError
from penstock.driver.sizing.sizes import FILE, Sizes, keep_first, read_first
from penstock.files.place import Place, place_of
from penstock.files.sealed import seal
from penstock.sinks.owners import newest_claim
from penstock.state.care.survey import survey
from penstock.state.care.verify import verify
from penstock.state.manifests import Manifest, ManifestLog
from penstock.state.pinned import read_pin
from penstock.state.planned import read_planned
from penstock.state.published import is_published, marks
from penstock.state.spark_log import read_folders


def claim(root: Place) -> object:
    return newest_claim(root / "out")


def pin(root: Place) -> object:
    return read_pin(root, 0)


def plan(root: Place) -> object:
    return read_planned(root, 0)


def marker(root: Place) -> object:
    return marks(root / "published" / "000000000000.done", Manifest(epoch=0))


def sources(root: Place) -> object:
    return read_folders(root / "spark")


READERS: dict[str, tuple[Callable[[Place], object], str, object]] = {
    "claim": (claim, ".out.owners/000000000000.json", {"owner": "q", "checkpoint": 3}),
    "query": (pin, "pinned/000000000000.json", {"buckets": 8}),
    "plan": (plan, "planned/000000000000.json", {"epoch": 0, "now": "noon"}),
    "marker": (marker, "published/000000000000.done", {"epoch": 0}),
    "sources": (sources, "spark-sources.json", {"folders": [0]}),
}


@pytest.mark.parametrize("kind", READERS)
def test_a_file_of_other_types_is_told_with_its_name(tmp_path: Path, kind: str) -> None:
    read, name, value = READERS[kind]
    root = place_of(tmp_path, fsync=False)
    (root / name).write_new(seal(kind, value))
    with pytest.raises(CheckpointError, match=f"not what a {kind} holds") as caught:
        read(root)
    assert caught.value.fields["path"] == str(tmp_path / name)


def test_the_plan_of_another_epoch_is_noticed(tmp_path: Path) -> None:
    root = place_of(tmp_path, fsync=False)
    (root / "planned/000000000003.json").write_new(seal("plan", {"epoch": 2, "now": 1.0}))
    with pytest.raises(CheckpointError, match="plan of epoch 2"):
        read_planned(root, 3)


def test_a_marker_of_other_types_counts_as_none(tmp_path: Path) -> None:
    root = place_of(tmp_path, fsync=False)
    (root / "published/000000000000.done").write_new(seal("marker", {"epoch": "0"}))
    assert not is_published(root, Manifest(epoch=0))


def test_sizes_of_other_types_count_as_none(tmp_path: Path) -> None:
    root = place_of(tmp_path, fsync=False)
    sizes = Sizes(instances={0: 1, 1: 4}, rows=10)
    keep_first(root, sizes)
    assert read_first(root) == sizes
    (tmp_path / FILE).write_bytes(seal("sample", {"instances": {"zero": 1}}))
    assert read_first(root) is None


def test_a_repair_record_of_other_types_gives_nothing_up(tmp_path: Path) -> None:
    root = place_of(tmp_path, fsync=False) / "penstock"
    ManifestLog(root).commit(Manifest(epoch=0))
    record = root / "quarantine" / "then" / "repair.json"
    record.write_new(seal("repair", {"newest": "0", "accepted": ["pinned/000000000000.json"]}))
    assert survey(tmp_path).accepted == {}
    found = {item.path: item.wrong for item in verify(tmp_path).findings}
    assert "not what a repair holds" in found["penstock/quarantine/then/repair.json"]
