"""Files that cannot be read: counted, tried again for a while, refused, and given back."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import penstock as ps
from penstock.base.config import Config
from penstock.base.errors import ConfigError, FinishedError, RefusedLimitError
from penstock.cli.app import app
from penstock.compiler import compile_query
from penstock.driver.again import Retries, Waker, give_back
from penstock.driver.driver import EpochResult
from penstock.driver.outputs import read_side_output
from penstock.files.place import place_of
from penstock.plan.files import UnreadFile, choose_again
from penstock.query.stream import Stream
from penstock.testing.faults.imitation import ImitatedRun
from penstock.testing.runner import LocalRun

FIRST = datetime(2024, 1, 1)
SCHEMA: dict[str, Any] = {"k": pl.String, "x": pl.Int64, "ts": pl.Datetime("us")}


def rows(start: int, number: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "k": [f"k{i % 3}" for i in range(start, start + number)],
            "x": list(range(start, start + number)),
            "ts": [FIRST + timedelta(seconds=i) for i in range(start, start + number)],
        },
        schema=SCHEMA,
    )


class Files:
    """A folder of files and a query that reads them, with a clock of its own."""

    def __init__(
        self,
        tmp_path: Path,
        form: str = "parquet",
        *,
        instances: int = 1,
        config: Config | None = None,
        **options: object,
    ) -> None:
        self.folder, self.now = tmp_path / "in", 1000.0
        self.folder.mkdir(exist_ok=True)
        read: Callable[..., Stream] = getattr(ps, f"read_{form}")
        stream = read(self.folder, time="ts", schema=SCHEMA, **options)
        self.query = compile_query(stream.select("x").write_memory().sinks, instances=instances)
        self.tmp_path, self.config = tmp_path, config
        self.start()

    def start(self) -> None:
        self.run = LocalRun(self.query, self.tmp_path / "c", self.config, clock=lambda: self.now)

    def add(self, *names: str) -> EpochResult:
        return self.run.files({0: [f"{self.folder}/{name}" for name in names]})

    @property
    def counts(self) -> tuple[int, ...]:
        last = self.run.driver.last
        assert last is not None
        totals = last.totals
        assert totals["read"] == totals["processed"] + totals["late"] + totals["refused"]
        return tuple(last.file_totals.values())

    @property
    def values(self) -> list[int]:
        return self.run.table()["x"].to_list()

    def letters(self) -> pl.DataFrame:
        found = read_side_output(self.run.driver.root, "dead")
        return pl.concat(found.values()) if found else pl.DataFrame()


def half(path: Path, start: int = 0) -> bytes:
    """Write the first half of a Parquet file; return the whole of it."""
    rows(start, 5).write_parquet(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    return whole


@pytest.mark.parametrize("instances", [1, 3])
def test_a_file_that_is_completed_in_time_is_read_once(tmp_path: Path, instances: int) -> None:
    files = Files(tmp_path, instances=instances)
    rows(0, 5).write_parquet(files.folder / "0.parquet")
    whole = half(files.folder / "1.parquet", 5)
    assert files.add("0.parquet", "1.parquet").files == {
        "seen": 2, "read": 1, "refused": 0, "waiting": 1,
    }  # fmt: skip
    assert files.letters().is_empty()
    (files.folder / "1.parquet").write_bytes(whole)
    files.now += 0.5  # it is not due yet
    files.add()
    assert files.counts == (2, 1, 0, 1)
    files.now += 1
    assert files.add().files == {"seen": 0, "read": 1, "refused": 0, "waiting": 0}
    files.now += 100
    files.add()
    assert files.counts == (2, 2, 0, 0)
    assert files.values == list(range(10))


@pytest.mark.parametrize("instances", [1, 3])
def test_a_file_is_refused_when_the_patience_has_run_out(tmp_path: Path, instances: int) -> None:
    files = Files(tmp_path, instances=instances, patience="30 seconds")
    half(files.folder / "0.parquet")
    files.add("0.parquet")
    files.now += 29
    files.add()
    assert files.counts == (1, 0, 0, 1)
    files.now += 1
    assert files.add().files["refused"] == 1
    assert files.counts == (1, 0, 1, 0)
    (letter,) = files.letters().to_dicts()
    assert letter["path"].endswith("0.parquet")
    assert letter["reason"].startswith("not a readable parquet file")
    assert files.run.driver.last is not None
    assert files.run.driver.last.totals["refused"] == 0


def test_without_patience_a_file_is_refused_at_once(tmp_path: Path) -> None:
    files = Files(tmp_path, patience="0 seconds")
    half(files.folder / "0.parquet")
    files.add("0.parquet")
    assert files.counts == (1, 0, 1, 0)
    assert files.letters().height == 1


def test_the_end_of_the_input_is_the_end_of_patience(tmp_path: Path) -> None:
    files = Files(tmp_path)
    whole = half(files.folder / "0.parquet")
    half(files.folder / "1.parquet")
    files.add("0.parquet", "1.parquet")
    (files.folder / "0.parquet").write_bytes(whole)
    files.run.finish()
    assert files.counts == (2, 1, 1, 0)
    assert files.values == list(range(5))
    with pytest.raises(FinishedError):
        give_back(files.run.driver.root, str(files.folder / "1.parquet"))


def test_a_restart_tries_all_files_that_wait(tmp_path: Path) -> None:
    files = Files(tmp_path, patience="1 hour")
    whole = half(files.folder / "0.parquet")
    files.add("0.parquet")
    (files.folder / "0.parquet").write_bytes(whole)
    files.start()
    assert files.run.driver.retries.wanted(files.run.driver.last)
    files.add()
    assert files.counts == (1, 1, 0, 0)
    assert not files.run.driver.retries.wanted(files.run.driver.last)


def test_an_epoch_that_dies_leaves_the_file_waiting(tmp_path: Path) -> None:
    files = Files(tmp_path)
    whole = half(files.folder / "0.parquet")
    files.add("0.parquet")
    (files.folder / "0.parquet").write_bytes(whole)
    files.now += 10
    driver = files.run.driver

    def die(*_: object) -> list[object]:
        raise OSError("the driver dies")

    with pytest.raises(OSError, match="dies"):
        driver.run_epoch(files.run.next_epoch, die)  # type: ignore[arg-type]
    files.start()
    assert files.counts == (1, 0, 0, 1)
    files.add()
    assert files.counts == (1, 1, 0, 0)
    assert files.values == list(range(5))


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_an_empty_file_is_not_complete(tmp_path: Path, form: str) -> None:
    files = Files(tmp_path, form)
    (files.folder / "0").touch()
    files.add("0")
    assert files.counts == (1, 0, 0, 1)


@pytest.mark.parametrize("form", ["csv", "ndjson"])
@pytest.mark.parametrize("content", ["", "\n"])
def test_an_empty_text_is_a_file_without_rows(tmp_path: Path, form: str, content: str) -> None:
    files = Files(tmp_path, form)
    (files.folder / "0").write_text(content)
    files.add("0")
    assert files.counts == (1, 1, 0, 0)
    assert files.letters().is_empty()


@pytest.mark.parametrize("instances", [1, 2])
def test_a_parquet_file_without_rows_is_read(tmp_path: Path, instances: int) -> None:
    files = Files(tmp_path, instances=instances)
    rows(0, 0).write_parquet(files.folder / "0.parquet")
    files.add("0.parquet")
    assert files.counts == (1, 1, 0, 0)


def test_a_file_that_is_gone_is_refused_at_once(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.add("0.parquet")
    assert files.counts == (1, 0, 1, 0)


def test_half_of_a_packed_file_waits(tmp_path: Path) -> None:
    files = Files(tmp_path, "csv")
    packed = gzip.compress(rows(0, 500).write_csv().encode())
    (files.folder / "0.csv.gz").write_bytes(packed[: len(packed) // 2])
    files.add("0.csv.gz")
    assert files.counts == (1, 0, 0, 1)
    (files.folder / "0.csv.gz").write_bytes(packed)
    files.now += 5
    files.add()
    assert files.counts == (1, 1, 0, 0)
    assert files.values == list(range(500))


@pytest.mark.parametrize("instances", [1, 2])
def test_a_damaged_row_group_costs_its_rows(tmp_path: Path, instances: int) -> None:
    """Its footer is whole, so the file is complete: the rows of the group are refused."""
    files = Files(tmp_path, instances=instances)
    path = files.folder / "0.parquet"
    rows(0, 30).write_parquet(path, row_group_size=10, compression="uncompressed")
    data = bytearray(path.read_bytes())
    column = pq.read_metadata(path).row_group(0).column(1)
    for at in range(column.data_page_offset, column.data_page_offset + 20):
        data[at] = 0xFF
    path.write_bytes(bytes(data))
    files.add("0.parquet")
    assert files.counts == (1, 1, 0, 0)
    last = files.run.driver.last
    assert last is not None
    assert (last.totals["read"], last.totals["refused"]) == (30, 10)
    assert files.values == list(range(10, 30))


def test_a_missing_column_is_a_refused_file_and_its_rows(tmp_path: Path) -> None:
    files = Files(tmp_path)
    rows(0, 3).drop("x").write_parquet(files.folder / "0.parquet")
    files.add("0.parquet")
    assert files.counts == (1, 0, 1, 0)
    rows(0, 3).write_parquet(files.folder / "0.parquet")
    give_back(files.run.driver.root, "0.parquet")
    files.add()
    assert files.counts == (1, 1, 0, 0)
    assert files.values == [0, 1, 2]


def test_a_refused_file_is_given_back(tmp_path: Path) -> None:
    files = Files(tmp_path, patience="0 seconds", delay="1 hour")
    root = files.run.driver.root
    whole = half(files.folder / "0.parquet")
    rows(5, 5).write_parquet(files.folder / "1.parquet")
    files.add("0.parquet", "1.parquet")
    with pytest.raises(ConfigError, match=r"0\.parquet\); this one was read"):
        give_back(root, str(files.folder / "1.parquet"))
    with pytest.raises(ConfigError, match="never seen it"):
        give_back(root, "7.parquet")
    give_back(root, str(files.folder / "0.parquet"))
    assert files.run.driver.retries.wanted(files.run.driver.last)
    files.add()  # nobody has mended it
    assert files.counts == (2, 1, 1, 0)
    assert files.letters().height == 2
    (files.folder / "0.parquet").write_bytes(whole)
    give_back(root, "0.parquet", source="0")
    give_back(root, "0.parquet", source="in")  # twice is once
    assert files.add().files == {"seen": 0, "read": 1, "refused": 0, "waiting": 0}
    assert files.counts == (2, 2, 0, 0)
    assert files.values == [*range(5, 10), *range(5)]
    assert not files.run.driver.retries.wanted(files.run.driver.last)
    files.add()
    assert files.counts == (2, 2, 0, 0)
    with pytest.raises(ConfigError, match="there is none"):
        give_back(root, "0.parquet")


def test_what_is_no_note_is_passed_over(tmp_path: Path) -> None:
    files = Files(tmp_path, patience="0 seconds")
    half(files.folder / "0.parquet")
    files.add("0.parquet")
    (files.run.driver.root / "again" / "x.json").write_new(b"rubbish")
    files.add()
    assert files.counts == (1, 0, 1, 0)
    assert not (files.run.driver.root / "again").list()


def test_too_many_unread_files_stop_the_query(tmp_path: Path) -> None:
    files = Files(tmp_path, config=Config(fsync=False, maxRefusedFiles=1))
    half(files.folder / "0.parquet")
    half(files.folder / "1.parquet")
    with pytest.raises(RefusedLimitError, match="refused files exceed the limit: refused=2"):
        files.add("0.parquet", "1.parquet")


def test_tries_are_spread_over_the_patience(tmp_path: Path) -> None:
    """Twice as long as before, up to a bound; the last one is when the patience ends."""
    file = UnreadFile(source=0, path="/a", since=0.0, tried=0.0, tries=1)
    tried = []
    now = 0.0
    while now < 101:
        now += 0.25
        found = choose_again([file], [], {0: 100.0}, now=now)
        if found:
            tried.append((now, found[0].last))
            file = UnreadFile(source=0, path="/a", since=0.0, tried=now, tries=file.tries + 1)
            if found[0].last:
                break
    assert tried == [(1, False), (3, False), (7, False), (15, False), (31, False), (61, False),
                     (91, False), (100, True)]  # fmt: skip


def test_queries_without_files_have_none_to_try(tmp_path: Path) -> None:
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    query = compile_query(stream.write_memory().sinks)
    run = LocalRun(query, tmp_path)
    run.epoch({0: [rows(0, 1)]})
    assert run.driver.last is not None
    assert run.driver.last.files_seen == {}
    retries = Retries(run.driver.root, query, lambda: 0.0)
    assert not retries.wanted(run.driver.last)


def test_an_imitated_run_tries_files_again_when_it_starts(tmp_path: Path) -> None:
    """It crashes before the commit of the epoch that reads the file, and replays it."""
    files = Files(tmp_path, "arrow", patience="1 hour")
    (files.folder / "0.arrow").touch()

    def start() -> ImitatedRun:
        return ImitatedRun(files.query, tmp_path / "imitated", Config(fsync=False))

    first = start()
    assert first.step()
    assert not first.step()  # it is not due
    rows(0, 5).write_ipc(files.folder / "0.arrow")
    start().die(committed=False)
    last = start()
    assert last.step()
    assert not last.step()
    assert last.driver.last is not None
    assert last.driver.last.file_totals == {"seen": 1, "read": 1, "refused": 0, "waiting": 0}
    assert last.driver.last.totals["read"] == 5


def test_wakes_that_spark_may_replay_stay(tmp_path: Path) -> None:
    folder = place_of(tmp_path) / "wake"
    for epoch in range(10):
        waker = Waker(folder, epoch)
        waker.wake(epoch)
        waker.wake(epoch)  # once is enough while nothing has happened
    names = sorted(entry.name for entry in folder.list())
    assert names[0] == ".wake"  # so that the folder is there, for Spark
    assert [int(name[5:17]) for name in names[1:]] == [4, 5, 6, 7, 8, 9]


def test_manifests_keep_what_is_known_of_files(tmp_path: Path) -> None:
    files = Files(tmp_path)
    half(files.folder / "0.parquet")
    files.add("0.parquet")
    last = files.run.driver.last
    assert last is not None
    assert files.run.driver.log.newest() == last
    (waiting,) = last.waiting_files
    assert (waiting.source, waiting.since, waiting.tries) == (0, 1000.0, 1)
    assert last.source_names == {0: "in"}


def test_the_command_lists_unread_files_and_gives_one_back(tmp_path: Path) -> None:
    files = Files(tmp_path, patience="0 seconds")
    half(files.folder / "0.parquet")
    rows(0, 1).write_parquet(files.folder / "1.parquet")
    files.add("0.parquet", "1.parquet")

    def command(*arguments: str) -> tuple[int, dict[str, Any]]:
        given = ["retry", str(tmp_path / "c"), *arguments, "--json"]
        done = CliRunner().invoke(app, given)
        return done.exit_code, json.loads(done.stdout)

    code, found = command()
    assert code == 0
    assert found["files"] == {"seen": 2, "read": 1, "refused": 1, "waiting": 0}
    (unread,) = found["unread"]
    assert (unread["status"], unread["name"]) == ("refused", "in")
    code, found = command("1.parquet")
    assert code == 1
    assert "would double its rows" in found["error"]
    code, found = command("0.parquet", "--source", "in")
    assert code == 0
    assert found["path"] == str(files.folder / "0.parquet")
    assert len((files.run.driver.root / "again").list()) == 1
