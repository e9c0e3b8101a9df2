"""Local files: whole, lasting, created once; folders are made to last with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.errors import CheckpointError
from penstock.files.disk import RealDisk
from penstock.files.place import (
    LocalFiles,
    Place,
    in_place_of_local,
    name_by_hash,
    place_of,
    sha256,
)


class TracedDisk(RealDisk):
    """A real disk that remembers the order of what changed it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def create(self, path: str, data: bytes, *, sync: bool) -> None:
        self.calls.append(("create" + "+sync" * sync, Path(path).name.split(".")[-1]))
        super().create(path, data, sync=sync)

    def make_folder(self, path: str) -> None:
        self.calls.append(("make_folder", Path(path).name))
        super().make_folder(path)

    def link(self, old: str, new: str) -> None:
        self.calls.append(("link", Path(new).name))
        super().link(old, new)

    def sync(self, path: str) -> None:
        self.calls.append(("sync", Path(path).name))
        super().sync(path)


def test_a_file_and_its_folders_are_synced_in_the_order_that_makes_them_last(
    tmp_path: Path,
) -> None:
    disk = TracedDisk()
    root = Place(LocalFiles(disk), str(tmp_path))
    (root / "a" / "b" / "f").write_new(b"x")
    names = [call for call in disk.calls if call != ("sync", tmp_path.parent.name)]
    assert names == [
        ("make_folder", "a"),
        ("sync", tmp_path.name),
        ("make_folder", "b"),
        ("sync", "a"),
        ("create+sync", "tmp"),
        ("link", "f"),
        ("sync", "b"),
    ]
    disk.calls.clear()
    (root / "a" / "b" / "g").write_new(b"x")
    assert disk.calls == [("create+sync", "tmp"), ("link", "g"), ("sync", "b")]


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    place = place_of(tmp_path) / "f"
    assert place.write_new(b"first") == sha256(b"first")
    with pytest.raises(FileExistsError):
        place.write_new(b"second")
    assert place.read() == b"first"
    assert [entry.name for entry in place.parent.list()] == ["f"]


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    folder = place_of(tmp_path) / "staging"
    (folder / "f").write_new(b"x")
    (folder / "f").delete()
    (tmp_path / "staging").rmdir()  # as the driver does at its end, in another process
    (folder / "g").write_new(b"y")
    assert (folder / "g").read() == b"y"


def test_a_folder_that_can_never_be_made_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="/proc/checkpoint"):
        (place_of("/proc/checkpoint") / "penstock" / "f").write_new(b"x")


@pytest.mark.parametrize(
    ("spell", "path"),
    [
        (lambda folder: f"file://{folder}/a%20b", "a b"),
        (lambda folder: f"file:{folder}/c", "c"),
        (lambda folder: f"{folder}/x/../d/", "x/../d"),
    ],
)
def test_paths_and_uris_of_local_files(
    tmp_path: Path, spell: Callable[[Path], str], path: str
) -> None:
    assert str(place_of(spell(tmp_path))) == f"{tmp_path}/{path}"


def test_a_damaged_or_missing_file_is_noticed_before_it_is_used(tmp_path: Path) -> None:
    place = place_of(tmp_path) / name_by_hash("rows", sha256(b"whole"), ".arrow")
    with pytest.raises(CheckpointError, match="missing"):
        place.read_named()
    with pytest.raises(CheckpointError, match="missing"):
        place.read_checked(size=5, digest=sha256(b"whole"))
    place.write_new(b"whole")
    assert place.read_named() == place.read_checked(size=5, digest=sha256(b"whole")) == b"whole"
    Path(str(place)).write_bytes(b"whale")
    with pytest.raises(CheckpointError, match="hash in its name"):
        place.read_named()
    with pytest.raises(CheckpointError, match="another SHA-256"):
        place.read_checked(size=5, digest=sha256(b"whole"))
    with pytest.raises(CheckpointError, match="5 bytes instead of 6"):
        place.read_checked(size=6, digest=sha256(b"whole"))


def test_moving_never_replaces(tmp_path: Path) -> None:
    root = place_of(tmp_path)
    (root / "a" / "f").write_new(b"f")
    (root / "b").write_new(b"b")
    with pytest.raises(FileExistsError):
        root.files.move(str(root / "b"), str(root / "a" / "f"))
    root.files.move(str(root / "b"), str(root / "q" / "r" / "b"))
    assert (root / "q" / "r" / "b").read() == b"b"
    assert not (root / "b").exists()


def test_a_test_can_put_its_own_files_in_place_of_local_ones(tmp_path: Path) -> None:
    disk = TracedDisk()
    with in_place_of_local(lambda fsync: LocalFiles(disk, fsync=fsync, unique=lambda: "word")):
        (place_of(tmp_path, fsync=False) / "f").write_new(b"x")
        assert place_of(tmp_path).files.unique() == "word"
    assert disk.calls == [("create", "tmp"), ("link", "f")]
    assert place_of(tmp_path).files.unique() != "word"
