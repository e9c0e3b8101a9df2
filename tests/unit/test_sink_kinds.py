"""Kinds of sinks: what each promises, and that a new one is one class and one line.

`Lines` exists only here: a file of JSON lines for each epoch. It goes through all that sinks go
through, and no code of the product knows it.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.base.errors import CheckpointError, ConfigError, QueryError
from penstock.compiler import compile_query, explain
from penstock.driver.pinned import meaning
from penstock.files.place import LocalFiles, Place, in_place_of_local, place_of
from penstock.plan.epoch import Output, SinkPlan, StagedFile
from penstock.query.nodes import Sink
from penstock.sinks import registry
from penstock.sinks.memory import Table
from penstock.sinks.registry import KINDS, find_kind, register
from penstock.sinks.sink import (
    Committed,
    LastingKind,
    Look,
    Opening,
    OpenSink,
    TableOptions,
    Wrong,
)
from penstock.sinks.staged import read_staged_bytes, write_staged
from penstock.spark import foreach_batch
from penstock.sql.script import load_script
from penstock.state.care.audit import audit
from penstock.state.care.survey import survey
from penstock.state.care.verify import verify
from penstock.testing.crashes import CrashingRun
from penstock.testing.faults.disks import Crash, Fault, FaultyDisk, SimulatedDisk
from penstock.testing.runner import LocalRun
from penstock.testing.streams import TestStream


class Lines(LastingKind):
    """Writes a file of JSON lines for each epoch that has rows."""

    table_options = TableOptions(target="path")

    def place(self, sink: Sink) -> str:
        return str(Path(sink.target).absolute())

    def stage(
        self, plan: SinkPlan, word: str, epoch: int, frame: pl.DataFrame, *, fsync: bool
    ) -> StagedFile:
        data = frame.write_ndjson().encode()
        return write_staged(plan, word, epoch, data, ".ndjson", rows=frame.height, fsync=fsync)

    def open(self, sink: Sink, opening: Opening) -> OpenLines:
        return OpenLines(opening.plan(sink))

    def take_over(self, target: str, *, owner: str, fsync: bool) -> OpenLines:
        return OpenLines(SinkPlan(target=target, staging="", kind="lines"))

    def where(self, target: str, number: int) -> Place:
        return place_of(target.removeprefix("lines ")) / f"{number:06d}.ndjson"

    def find(self, target: str, owner: str, output: Output) -> Mapping[int, Place]:
        folder = self.where(target, 0).parent
        return {int(e.name[:6]): folder / e.name for e in folder.list() if e.name[0].isdigit()}

    def verify(self, place: Place, files: Sequence[StagedFile] | None) -> Look:
        look = self.count(place)
        expected = look.rows if files is None else sum(file.rows for file in files)
        if look.wrong or look.rows == expected:
            return look
        reason = f"{look.rows} lines instead of {expected}"
        return Look(rows=look.rows, wrong=(Wrong(path=str(place), reason=reason),))

    def count(self, place: Place) -> Look:
        try:
            return Look(rows=pl.read_ndjson(io.BytesIO(place.read())).height)
        except pl.exceptions.PolarsError as error:
            return Look(wrong=(Wrong(path=str(place), reason=f"no JSON: {error}"),))

    def read(self, target: str) -> dict[int, pl.DataFrame]:
        found = self.find(target, "", Output())
        return {n: pl.read_ndjson(io.BytesIO(place.read())) for n, place in sorted(found.items())}


class OpenLines(OpenSink):
    """Writes the file of an epoch if it is absent."""

    def publish(self, committed: Committed) -> None:
        place = Lines().where(self.plan.target, committed.number)
        if committed.files and not place.exists():
            data = b"".join(read_staged_bytes(file) for file in committed.files)
            with suppress(FileExistsError):
                place.write_new(data)
        for file in committed.files:
            place_of(file.path).delete()


PROMISES = {
    "parquet": "exactly once",
    "lines": "exactly once",
    "memory": "once in a run",
    "console": "at least once",
    "foreach_batch": "at least once",
}


@pytest.fixture(autouse=True)
def lines() -> Iterator[None]:
    register("lines", Lines())
    yield
    del registry._KINDS["lines"]


SCHEMA: dict[str, Any] = {"n": pl.Int64, "ts": pl.Datetime("us")}


def stream() -> ps.Stream:
    return ps.from_rows([], schema=SCHEMA, time="ts", name="numbers")


def rows(*numbers: int) -> pl.DataFrame:
    times = [ps.at(f"2024-01-01 00:{n:02d}:00") for n in numbers]
    return pl.DataFrame({"n": list(numbers), "ts": times}, schema=SCHEMA)


def begin(folder: Path) -> CrashingRun:
    sinks = stream().select("n", "ts").write_to("lines", str(folder / "out")).sinks
    return CrashingRun(compile_query(sinks), folder / "ck")


def held(folder: Path) -> list[int]:
    """Return what a reader of the files sees."""
    texts = [path.read_text() for path in sorted((folder / "out").iterdir())]
    return [json.loads(line)["n"] for text in texts for line in text.splitlines()]


# What every kind promises


def test_every_kind_has_a_promise_that_is_tested() -> None:
    assert set(PROMISES) == set(KINDS)


def node(key: str, target: Any) -> Sink:
    return stream().select("n").write_to(key, target).sinks[0]


def open_sink(key: str, target: Any, root: str, **more: Any) -> OpenSink:
    sink, kind = node(key, target), find_kind(key)
    opening = Opening(number=0, target=kind.name(sink), root=place_of(root), owner="query", **more)
    return kind.open(sink, opening)


def stage(sink: OpenSink, epoch: int) -> Committed:
    files = tuple(
        find_kind(sink.plan.kind).stage(
            sink.plan, "output", epoch, pl.DataFrame({"n": numbers}), fsync=True
        )
        for numbers in ([1, 2], [3])
    )
    return Committed(epoch=epoch, number=epoch, files=files)


@contextmanager
def using(disk: Any) -> Iterator[None]:
    files = LocalFiles(disk)
    with in_place_of_local(lambda fsync: files):
        yield


def lasting(key: str) -> LastingKind:
    kind = find_kind(key)
    assert isinstance(kind, LastingKind)
    return kind


def seen(key: str, sink: OpenSink) -> dict[int, list[int]]:
    found = lasting(key).read(sink.plan.target)
    return {number: sorted(frame["n"]) for number, frame in found.items()}


EXACT = sorted(key for key, promise in PROMISES.items() if promise == "exactly once")


def publish_on(disk: Any, key: str, committed: Committed) -> OpenSink:
    """Be a driver that finds a committed epoch at its start."""
    with using(disk):
        known = Output(kind=key)
        sink = open_sink(key, "/sim/out", "/sim/ck/penstock", known=known, waits=True)
        sink.publish(committed)
    return sink


@pytest.mark.parametrize("key", EXACT)
def test_an_epoch_is_seen_once_wherever_publication_dies(key: str) -> None:
    """Die at every call that publishing makes, lose what was not synced, and publish again."""
    disk = SimulatedDisk()
    with using(disk):
        first = open_sink(key, "/sim/out", "/sim/ck/penstock")
        committed = stage(first, 4)
    whole = FaultyDisk(disk.copy())
    publish_on(whole, key, committed)
    points = len(whole.trace)
    assert points > 3
    again = Committed(epoch=4, number=4, files=committed.files, recovered=True)
    for point in range(points):
        for seed in range(3):
            struck = disk.copy()
            with pytest.raises(Crash):
                publish_on(FaultyDisk(struck, [Fault(at=point)]), key, committed)
            struck.crash(random.Random(seed))
            with using(struck):
                assert seen(key, first) in ({}, {4: [1, 2, 3]}), "a part of an epoch was seen"
            for _ in range(2):
                publish_on(struck, key, again)
                with using(struck):
                    assert seen(key, first) == {4: [1, 2, 3]}, (point, seed)


@pytest.mark.parametrize("key", EXACT)
def test_what_was_published_is_found_and_verified(key: str, tmp_path: Path) -> None:
    sink = open_sink(key, str(tmp_path / "out"), str(tmp_path / "penstock"))
    kind, output = lasting(key), Output(kind=key)
    for epoch in (0, 5):
        committed = stage(sink, epoch)
        assert epoch not in kind.find(sink.plan.target, "query", output)
        sink.publish(committed)
        sink.publish(Committed(epoch=epoch + 10, number=epoch + 10, files=()))
    places = kind.find(sink.plan.target, "query", output)
    assert dict(places) == {n: kind.where(sink.plan.target, n) for n in (0, 5)}
    assert kind.verify(places[5], committed.files) == kind.count(places[5]) == Look(rows=3)
    assert kind.verify(places[0], None) == Look(rows=3)
    path = Path(str(places[5]))
    (path if path.is_file() else next(path.iterdir())).write_bytes(b"{]")
    assert kind.verify(places[5], committed.files).wrong
    assert kind.count(places[5]).wrong


@pytest.mark.parametrize("key", EXACT)
def test_damage_is_noticed_before_anybody_sees_it(key: str, tmp_path: Path) -> None:
    sink = open_sink(key, str(tmp_path / "out"), str(tmp_path / "penstock"))
    files = stage(sink, 4).files
    path = Path(files[0].path)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="damaged"):
        sink.publish(Committed(epoch=4, number=4, files=files, recovered=True))
    assert seen(key, sink) == {}


def test_a_table_has_an_epoch_once_however_often_it_comes(tmp_path: Path) -> None:
    table = open_sink("memory", "results", str(tmp_path))
    assert isinstance(table, Table)
    four, two = stage(table, 4), stage(table, 2)
    for committed in (four, two, four):
        table.publish(committed)
    assert table.read()["n"].to_list() == [1, 2, 3, 1, 2, 3]


def test_the_console_has_an_epoch_again_under_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printer = open_sink("console", 20, str(tmp_path))
    committed = stage(printer, 4)
    printer.publish(committed)
    once = capsys.readouterr().out
    assert once.startswith("epoch 4: 3 rows\n")
    printer.publish(committed)
    assert capsys.readouterr().out == once


def test_a_function_gets_an_epoch_again_with_its_number_and_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreach_batch, "spark_schema", lambda schema: schema)  # Java parses types
    got: list[tuple[list[int], int]] = []

    def take(frame: Any, epoch: int) -> None:
        got.append((frame, epoch))
        if len(got) == 1:
            raise RuntimeError("died after it has seen the rows")

    read = SimpleNamespace(
        parquet=lambda *paths: sorted(n for path in paths for n in pl.read_parquet(path)["n"])
    )
    session = SimpleNamespace(
        read=SimpleNamespace(schema=lambda schema: read), createDataFrame=lambda *_: []
    )
    batches = open_sink("foreach_batch", take, str(tmp_path), session=session)
    committed = stage(batches, 4)
    with pytest.raises(RuntimeError, match="died"):
        batches.publish(committed)
    batches.publish(committed)
    batches.publish(Committed(epoch=5, number=5, files=()))
    assert got == [([1, 2, 3], 4), ([1, 2, 3], 4), ([], 5)]


# A sink that exists only here, from its declaration to its audit


def test_it_is_compiled_explained_and_pinned(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    query = compile_query(stream().write_to("lines", out, ordered=True).sinks)
    assert f"write lines {out} in order" in explain(query)
    assert meaning(query)["sink-0 target"] == f"lines {out}"
    LocalRun(query, tmp_path / "ck").epoch({})
    other = compile_query(stream().write_to("lines", f"{out}2", ordered=True).sinks)
    with pytest.raises(CheckpointError, match="sink-0 target"):
        LocalRun(other, tmp_path / "ck")


def test_it_has_its_place_to_itself(tmp_path: Path) -> None:
    one = stream().write_to("lines", str(tmp_path / "out"))
    for other in (one, stream().write_parquet(tmp_path / "out")):
        with pytest.raises(QueryError, match="two sinks write to the same lines"):
            compile_query(one.also(other).sinks)
    compile_query(one.also(stream().write_parquet(tmp_path / "other")).sinks)


def test_a_kind_that_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'pigeons' is not allowed; allowed: console, foreach"):
        compile_query(stream().write_to("pigeons").sinks)
    with pytest.raises(QueryError, match="write_lines: mode='replace'; allowed: error, append"):
        stream().write_to("lines", "out", mode="replace")


def test_sql_can_declare_it(tmp_path: Path) -> None:
    text = f"""
    CREATE TABLE numbers (n BIGINT, ts TIMESTAMP)
    WITH (format = 'parquet', path = '{tmp_path}/in', time = 'ts');
    CREATE TABLE out WITH (format = 'lines', path = '{tmp_path}/out', ordered = true);
    INSERT INTO out SELECT n, ts FROM numbers;
    """
    assert [sink.title for sink in load_script(text).sinks] == [
        f"write lines {tmp_path}/out in order"
    ]
    with pytest.raises(QueryError, match="has no option 'mode'; options: format, ordered, path"):
        load_script(text.replace("ordered = true", "mode = 'append'"))


@pytest.mark.parametrize("committed", [True, False])
def test_an_epoch_in_which_the_driver_dies_is_published_once(
    tmp_path: Path, committed: bool
) -> None:
    run = begin(tmp_path)
    run.epoch({0: [rows(1, 2)]})
    run.die_in({0: [rows(3)]}, committed=committed)
    assert [path.suffix for path in (tmp_path / "ck/penstock/staged").iterdir()] == [".ndjson"]
    assert held(tmp_path) == [1, 2], "seen before it was published"
    again = begin(tmp_path)
    assert held(tmp_path) == [1, 2, *([3] if committed else [])]
    again.again(1, {0: [rows(3)]})
    again.epoch({0: [rows(4)]})
    begin(tmp_path)
    assert held(tmp_path) == [1, 2, 3, 4]


def test_an_epoch_that_waits_is_published_after_its_sink_was_taken_out(tmp_path: Path) -> None:
    run = begin(tmp_path)
    run.die_in({0: [rows(1)]}, committed=True)
    sinks = stream().select("n", "ts").write_memory().sinks
    LocalRun(compile_query(sinks), tmp_path / "ck")
    assert held(tmp_path) == [1]


def test_the_reference_agrees_through_crashes(tmp_path: Path) -> None:
    counted = stream().aggregate(window=ps.tumbling("2 minutes"), total="sum(n)")
    sinks = counted.select("total").write_to("lines", str(tmp_path / "out"), ordered=True)
    run = TestStream(sinks, tmp_path / "ck")
    run.add(rows(0, 1, 2).to_dicts())
    run.crash(rows(5, 6).to_dicts(), committed=True)
    run.crash(rows(9).to_dicts())
    run.finish()
    run.expect_reference()
    assert len(run.rows()) == 5


def published(folder: Path) -> LocalRun:
    run = begin(folder)
    run.epoch({0: [rows(1, 2)]})
    run.epoch({0: [rows(3, 4, 5)]})
    return run


def test_it_is_verified_and_audited(tmp_path: Path) -> None:
    published(tmp_path)
    checked, audited = verify(tmp_path / "ck"), audit(tmp_path / "ck")
    assert (checked.findings, checked.notes) == ([], [])
    assert (audited.agrees, [epoch.in_folders for epoch in audited.epochs]) == (True, [2, 3])
    (output,) = audited.outputs
    assert (output.output, output.rows, output.rows_there) == (f"lines {tmp_path}/out", 5, 5)


def test_a_line_that_is_lost_is_named(tmp_path: Path) -> None:
    published(tmp_path)
    path = tmp_path / "out" / "000001.ndjson"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))
    (found,) = verify(tmp_path / "ck").findings
    assert (found.kind, found.wrong, found.epoch) == ("published", "2 lines instead of 3", 1)
    assert found.path == str(path)
    texts = [parting.text for parting in audit(tmp_path / "ck").partings]
    assert texts[0] == "3 rows were written and 2 are there"
    path.write_text("{]")
    texts = [parting.text for parting in audit(tmp_path / "ck").partings]
    assert texts[0].startswith("no JSON")
    path.unlink()
    checked, audited = verify(tmp_path / "ck"), audit(tmp_path / "ck")
    assert (checked.sound, [item.wrong for item in checked.notes]) == (True, ["not there any more"])
    assert [(item.kind, item.rows) for item in audited.missing] == [("missing", 3)]


def test_an_epoch_that_waits_is_known_to_wait(tmp_path: Path) -> None:
    published(tmp_path)
    begin(tmp_path).die_in({0: [rows(6)]}, committed=True)
    found = audit(tmp_path / "ck")
    assert (found.agrees, found.epochs[-1].state, found.outputs[0].waiting) == (True, "waiting", 1)
    (staged,) = (tmp_path / "ck/penstock/staged").glob("*2-output-*")
    staged.write_text("{}")
    (item,) = verify(tmp_path / "ck").findings
    assert (item.kind, Path(item.path).name) == ("staged", staged.name)


def test_a_process_that_does_not_know_the_kind_says_so(tmp_path: Path) -> None:
    published(tmp_path)
    kind = registry._KINDS.pop("lines")
    checked, audited = verify(tmp_path / "ck"), audit(tmp_path / "ck")
    registry._KINDS["lines"] = kind
    assert [item.wrong for item in checked.notes] == ["no kind of sink 'lines'"]
    assert (checked.sound, audited.agrees) == (True, True)
    assert audited.outputs[0].rows_there is None


def test_only_lasting_epochs_are_set_aside_when_a_query_goes_back(tmp_path: Path) -> None:
    published(tmp_path)
    found = survey(tmp_path / "ck")
    assert found.list_published() == [(f"lines {tmp_path}/out", epoch) for epoch in (0, 1)]
    whole = place_of(tmp_path / "out" / "000001.ndjson")
    assert found.epoch_with(whole, 1) == whole
