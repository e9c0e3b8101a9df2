"""Retention: only what nobody can need any more goes, whoever else is at work."""

from __future__ import annotations

from pathlib import Path

from penstock.files.place import Place, place_of
from penstock.plan.epoch import SegmentRef, StagedFile
from penstock.state.manifests import Manifest, ManifestLog
from penstock.state.retention import SWEEP, Retention


def ref(name: str) -> SegmentRef:
    return SegmentRef(name=name, rows=1, bytes=1, sha256="", until=0, live=((0, 8),))


def segment(epoch: int, word: str = "a") -> str:
    return f"{epoch:012d}-{word}.arrow"


def write(place: Place) -> None:
    place.write_new(b"x")


class History:
    """A checkpoint in which every epoch writes a segment that lives for two epochs."""

    def __init__(self, folder: Path, *, epochs: int = 3, seconds: float = 0) -> None:
        self.root = place_of(folder, fsync=False)
        self.state = self.root / "state" / "aggregate-0"
        self.log = ManifestLog(self.root)
        self.retention = Retention(self.root, epochs=epochs, seconds=seconds)
        self.retention.open()
        self.newest: Manifest | None = None

    def run(self, epochs: int, *, gap_seconds: float = 1.0) -> None:
        for _ in range(epochs):
            epoch = self.newest.epoch + 1 if self.newest else 0
            write(self.state / segment(epoch))
            names = [segment(e) for e in (epoch - 1, epoch) if e >= 0]
            manifest = Manifest(
                epoch=epoch,
                committed_at=epoch * gap_seconds,
                segments={"aggregate-0": tuple(map(ref, names))},
            )
            self.log.commit(manifest)
            self.newest = manifest
            self.retention.committed(manifest, [])

    def files(self) -> list[str]:
        return [entry.name for entry in self.state.list()]


def test_old_manifests_go_with_the_segments_that_only_they_name(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.run(9)
    assert history.log.epochs() == [5, 6, 7, 8]
    assert history.files() == [segment(e) for e in (4, 5, 6, 7, 8)]


def test_a_manifest_stays_for_some_time_too(tmp_path: Path) -> None:
    history = History(tmp_path, seconds=6)
    history.run(10)
    assert history.log.epochs() == [3, 4, 5, 6, 7, 8, 9]


def test_a_successor_goes_on_where_the_driver_ended(tmp_path: Path) -> None:
    first = History(tmp_path)
    first.run(6)
    second = History(tmp_path)
    second.newest = first.newest
    second.run(3)
    assert second.log.epochs() == [5, 6, 7, 8]
    assert second.files() == [segment(e) for e in (4, 5, 6, 7, 8)]


def test_a_sweep_takes_what_dead_attempts_left_and_nothing_else(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.run(3)
    assert history.newest is not None
    stays = [
        history.state / segment(3, "the-other-driver-writes-it-now"),
        history.state / "notes.txt",
        history.root / "staged" / "000000000002-output-a.parquet",
    ]
    goes = [
        history.state / segment(2, "zombie"),
        history.state / f".{segment(1, 'torn')}.b.tmp",
        history.log.folder / ".000000000002.json.b.tmp",
        history.root / "staged" / "000000000002-output-b.parquet",
        history.root / "planned" / "000000000001.json",
        history.root / "published" / "000000000001.done",
    ]
    for place in [*stays, *goes, history.root / "published" / "000000000002.done"]:
        write(place)
    staged = StagedFile(kind="output", target="t", path=str(stays[2]), rows=1, bytes=1, sha256="")
    newest = Manifest(epoch=2, staged=(staged,))
    before = history.files()
    assert history.retention.sweep(newest, []) == len(goes)
    assert [place for place in goes if place.exists()] == []
    assert all(place.exists() for place in stays)
    assert (history.root / "published" / "000000000002.done").exists()
    assert set(history.files()) == set(before) - {place.name for place in goes}
    assert history.log.epochs() == [0, 1, 2]


def test_sweeps_come_by_themselves(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.run(2)
    write(history.state / segment(1, "zombie"))
    history.run(SWEEP)
    assert segment(1, "zombie") not in history.files()
