"""An imitation of Structured Streaming: a query on files, driven by a log like Spark's.

It writes and reads offsets, commits, lists of files and Hadoop's checksums as Spark does, so that
what happens to Spark's half of a checkpoint can be tried without Spark. Law: a restart reads the
log and nothing else; a log that Spark would refuse is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from penstock.base.config import Config
from penstock.base.errors import CheckpointError
from penstock.driver.driver import Driver
from penstock.files.place import Place, place_of
from penstock.plan.compiled import CompiledQuery
from penstock.plan.splits import Split
from penstock.sources.registry import reader_of
from penstock.state.care.survey import numbers
from penstock.state.care.verify_log import checksum_bytes, checksum_of
from penstock.state.spark_log import COMPACT
from penstock.task.worker import Worker
from penstock.testing.caught import catching
from penstock.testing.crashes import DriverDeathError, DyingLog
from penstock.testing.runner import run_stages

EPOCH_SECONDS = 10.0
COMPACT_EVERY = 5
Tables = dict[int, dict[int, list[dict[str, Any]]]]
"""What sinks that are no folders have got: rows by sink and epoch."""


class SparkLogError(CheckpointError):
    """A log with which Spark would not start."""


class ImitatedRun:
    """One run of a query on a checkpoint, from its start to its stop or death."""

    def __init__(
        self, query: CompiledQuery, checkpoint: Path, config: Config, tables: Tables | None = None
    ) -> None:
        """Open or begin a checkpoint, as ``start`` does.

        Args:
            query: The compiled query; its sources are folders of files or rows of the program.
            checkpoint: The checkpoint.
            config: How the query runs.
            tables: What sinks that are no folders got in earlier runs.

        Raises:
            CheckpointError: The checkpoint is damaged.
        """
        self.home = place_of(checkpoint, fsync=False)
        self.log = SparkLog(self.home / "spark")
        self.tables: Tables = {} if tables is None else tables
        self.now, self.worker = 1000.0, Worker()
        self.driver = Driver(
            query,
            checkpoint,
            config,
            kinds=catching(self._publish),
            clock=lambda: self.now,
            spark_log=str(self.home / "spark"),
        )
        self._prepare_sources()
        self.offsets, self.batch, self.logged = self.log.restart()

    def _publish(self, sink: int, epoch: int, rows: pl.DataFrame) -> None:
        self.tables.setdefault(sink, {})[epoch] = rows.to_dicts()

    def _prepare_sources(self) -> None:
        for number, source in self.driver.query.sources:
            reader_of(source).prepare(self.home / "rows" / str(number))

    def step(self) -> bool:
        """Run the next batch; return whether there was input for one."""
        wanted = self.logged or self._new_offsets()
        if wanted is None:
            return False
        self._run(self.batch, self._splits(wanted))
        self.log.write("commits", self.batch, [{"nextBatchWatermarkMs": 0}])
        self.offsets, self.batch, self.logged = wanted, self.batch + 1, None
        return True

    def run_until(self, epoch: int) -> None:
        """Run batches up to one, as far as there is input."""
        while self.batch <= epoch and self.step():
            pass

    def finish(self) -> None:
        """Run to the end of the input, then close all windows."""
        while self.step():
            pass
        self.driver.finish(lambda query, plan: run_stages(query, plan, [], self.worker))

    def die(self, *, committed: bool) -> None:
        """Run the tasks of the next batch and die before or right after its commit."""
        self.driver.log = DyingLog(self.driver.root, committed=committed)
        try:
            self.step()
        except DriverDeathError:
            return
        raise AssertionError("the driver outlived its own crash")

    def _run(self, epoch: int, splits: Sequence[Split]) -> None:
        self.now = 1000 + EPOCH_SECONDS * epoch
        self.driver.run_epoch(
            epoch, lambda query, plan: run_stages(query, plan, splits, self.worker)
        )

    def _new_offsets(self) -> dict[int, int] | None:
        found = {}
        for number, folder, limit in self._folders():
            seen = self.log.listed(number)
            there = [f"{folder}/{e.name}" for e in folder.list() if not e.folder]
            new = [path for path in there if path not in {entry["path"] for entry in seen}]
            if new:
                self.log.add_files(number, seen, new[:limit])
            found[number] = self.log.newest_list(number)
        woken = self.driver.retries.wanted(self.driver.last)
        if found == self.offsets and not woken:
            return None
        self.log.write_offsets(self.batch, found)
        return found

    def _folders(self) -> Iterable[tuple[int, Place, int | None]]:
        for number, source in self.driver.query.sources:
            listing = reader_of(source).list_in(str(self.home / "rows" / str(number)))
            assert listing is not None, "only Spark has the rows"
            yield number, place_of(listing.folder), listing.limit

    def _splits(self, wanted: Mapping[int, int]) -> list[Split]:
        found = []
        for number, last in wanted.items():
            first = self.offsets.get(number, -1)
            entries = [e for e in self.log.listed(number) if first < e["batchId"] <= last]
            found += [
                Split(source=number, ordinal=(i,), path=entry["path"])
                for i, entry in enumerate(entries)
            ]
        return found


class SparkLog:
    """The log of a streaming query, in Spark's layout."""

    def __init__(self, folder: Place) -> None:
        """Use Spark's folder in a checkpoint."""
        self.folder = folder
        if not (folder / "metadata").exists():
            self._put(folder / "metadata", b'{"id":"an-imitation"}')
        else:
            self._lines(folder / "metadata")

    def restart(self) -> tuple[dict[int, int], int, dict[int, int] | None]:
        """Return the offsets reached, the next batch, and its offsets if they are logged."""
        offsets, commits = numbers(self.folder / "offsets"), numbers(self.folder / "commits")
        if commits:
            self._read("commits", commits[-1])
        if not offsets:
            return {}, 0, None
        latest, wanted = offsets[-1], self._offsets(offsets[-1])
        before = self._offsets(latest - 1) if latest else {}
        if commits and commits[-1] == latest:
            return wanted, latest + 1, None
        return before, latest, wanted

    def _offsets(self, batch: int) -> dict[int, int]:
        lines = self._read("offsets", batch)[1:]
        return {i: line["logOffset"] for i, line in enumerate(lines) if isinstance(line, dict)}

    def _read(self, kind: str, batch: int) -> list[Any]:
        return self._lines(self.folder / kind / str(batch), version=True)

    def _lines(self, place: Place, *, version: bool = False) -> list[Any]:
        try:
            data = place.read()
        except FileNotFoundError as error:
            raise SparkLogError(path=str(place), reason="Spark misses it") from error
        beside = checksum_of(place)
        if beside.exists() and beside.read() != checksum_bytes(data):
            raise SparkLogError(path=str(place), reason="Spark finds another checksum")
        try:
            lines = data.decode().split("\n")
            if version and lines.pop(0) != "v1":
                raise ValueError("no version")
            return [line if line == "-" else json.loads(line) for line in lines]
        except ValueError as error:
            raise SparkLogError(path=str(place), reason=f"Spark cannot read it: {error}") from error

    def write_offsets(self, batch: int, offsets: Mapping[int, int]) -> None:
        """Log the input of a batch."""
        lines: list[Any] = [{"batchWatermarkMs": 0, "batchTimestampMs": 1000 * batch, "conf": {}}]
        lines += ["-" if n < 0 else {"logOffset": n} for _, n in sorted(offsets.items())]
        self.write("offsets", batch, lines)

    def write(self, kind: str, batch: int | str, lines: Sequence[Any]) -> None:
        """Write a file of the log with its checksum; one that is there stays."""
        place = self.folder / kind / str(batch)
        texts = ["-" if line == "-" else json.dumps(line) for line in lines]
        if not place.exists():
            self._put(place, "\n".join(["v1", *texts]).encode())

    def _put(self, place: Place, data: bytes) -> None:
        checksum_of(place).delete()
        checksum_of(place).write_new(checksum_bytes(data))
        place.write_new(data)

    def newest_list(self, source: int) -> int:
        """Return the number of the newest list of a source's files; -1 if there is none."""
        return max(numbers(self.folder / "sources" / str(source)), default=-1)

    def listed(self, source: int) -> list[dict[str, Any]]:
        """Return all files of a source that were ever listed."""
        folder = self.folder / "sources" / str(source)
        names = {entry.name for entry in folder.list()}
        found: list[dict[str, Any]] = []
        for number in range(self.newest_list(source), -1, -1):
            if f"{number}{COMPACT}" in names:
                found = [*self._lines(folder / f"{number}{COMPACT}", version=True), *found]
                break
            found = [*self._lines(folder / str(number), version=True), *found]
        return found

    def add_files(self, source: int, before: Sequence[dict[str, Any]], new: Sequence[str]) -> None:
        """List new files of a source."""
        number = self.newest_list(source) + 1
        entries = [{"path": path, "timestamp": 0, "batchId": number} for path in new]
        if (number + 1) % COMPACT_EVERY == 0:
            self.write(f"sources/{source}", f"{number}{COMPACT}", [*before, *entries])
        else:
            self.write(f"sources/{source}", number, entries)


def write_inputs(folder: Path, frames: Sequence[pl.DataFrame]) -> None:
    """Write the files of a source, one an epoch."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, frame in enumerate(frames):
        frame.write_ipc(folder / f"{number:05d}.arrow")
