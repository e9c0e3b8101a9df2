"""Spark's half of a checkpoint: what a committed epoch depends on is known and checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.base.errors import CheckpointError
from penstock.files.place import place_of
from penstock.state.spark_log import check_log, seal_log


class SparkLog:
    """Imitates what Spark writes before it asks for an epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, place_of(folder)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def epoch(self, number: int, *batches: int | None) -> None:
        lines = ["v1", "{}"]
        for source, batch in enumerate(batches):
            lines.append("-" if batch is None else f'{{"logOffset":{batch}}}')
            if batch is not None and batch >= 0:
                ending = ".compact" if batch % 10 == 9 else ""
                self.write(f"sources/{source}/{batch}{ending}", f"v1\n{source}-{batch}")
        self.write(f"offsets/{number}", "\n".join(lines))


def test_the_hashes_cover_offsets_and_lists_of_files_from_the_last_compact_one_on(
    tmp_path: Path,
) -> None:
    log = SparkLog(tmp_path)
    sealed: dict[str, str] = {}
    for epoch in range(12):
        log.epoch(epoch, epoch, None if epoch < 5 else 0)
        sealed = seal_log(log.place, epoch, sealed)
    lists = {"sources/0/9.compact", "sources/0/10", "sources/0/11", "sources/1/0"}
    assert set(sealed) == {"offsets/11", *lists}
    assert check_log(log.place, sealed) == []


def test_a_source_without_news_keeps_what_is_known_of_it(tmp_path: Path) -> None:
    log = SparkLog(tmp_path)
    log.epoch(0, 0, -1)
    first = seal_log(log.place, 0, {})
    log.epoch(1, 0, 0)
    second = seal_log(log.place, 1, first)
    assert set(second) == {"offsets/1", "sources/0/0", "sources/1/0"}


@pytest.mark.parametrize("name", ["offsets/1", "sources/0/0", "sources/0/1"])
def test_a_log_that_does_not_fit_is_refused(tmp_path: Path, name: str) -> None:
    log = SparkLog(tmp_path)
    log.epoch(0, 0)
    log.epoch(1, 1)
    sealed = seal_log(log.place, 1, seal_log(log.place, 0, {}))
    log.write(name, "v1\nsomething else")
    (found,) = check_log(log.place, sealed)
    assert name in str(found)
    assert "damaged" in str(found)
    (tmp_path / name).unlink()
    (found,) = check_log(log.place, sealed)
    assert "missing" in str(found)


@pytest.mark.parametrize("batches", [(0, 0), (1, None)])
def test_a_log_that_goes_back_is_refused(tmp_path: Path, batches: tuple[int | None, ...]) -> None:
    log = SparkLog(tmp_path)
    log.epoch(0, 0, 0)
    log.epoch(1, 1, 0)
    sealed = seal_log(log.place, 1, seal_log(log.place, 0, {}))
    log.epoch(2, *batches)
    with pytest.raises(CheckpointError, match="goes back"):
        seal_log(log.place, 2, sealed)
