"""What every kind of source promises, and a kind that exists only here (`tests.counter`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.base.config import Config
from penstock.base.errors import CheckpointError, QueryError
from penstock.compiler import compile_query
from penstock.compiler.explain import explain
from penstock.driver.driver import Driver
from penstock.driver.in_process import run_stages
from penstock.driver.outputs import read_side_output
from penstock.driver.sizing.sample import take_sample
from penstock.files.place import place_of
from penstock.plan.splits import Reached, Split, SplitAtHand
from penstock.query.nodes import Files, Reader, Source
from penstock.query.stream import Stream
from penstock.sources.admission import event_times
from penstock.sources.backlog import Backlog
from penstock.sources.reader import SampleError, SourceReader
from penstock.sources.registry import add_kind, reader_of
from penstock.sources.splits import assign, splits_in, to_payload
from penstock.sources.whole import read_whole_rows
from penstock.spark.frame import Frame
from penstock.testing import TestStream
from penstock.testing.runner import LocalRun
from tests.counter import Counter, CounterReader, count_to, rows_between

ROWS = rows_between(0, 100)


def folder_kind(form: str) -> Callable[[Path], tuple[Stream, Split]]:
    def make(home: Path) -> tuple[Stream, Split]:
        path = home / f"a.{form}"
        options = {"row_group_size": 16} if form == "parquet" else {}
        getattr(ROWS, f"write_{'ipc' if form == 'arrow' else form}")(path, **options)
        stream = getattr(ps, f"read_{form}")(home, time="ts", schema=ROWS.schema)
        return stream, Split(source=0, ordinal=(0,), path=str(path))

    return make


def rows_kind(home: Path) -> tuple[Stream, Split]:
    stream = ps.from_rows(ROWS, time="ts")
    place = place_of(home)
    source_reader(stream).prepare(place)
    (entry,) = place.list()
    source_reader(ps.from_rows(ROWS.head(3), time="ts")).prepare(place)
    assert [found.name for found in place.list()] == [entry.name], "what is there stays"
    return stream, Split(source=0, ordinal=(0,), path=str(place / entry.name))


def counter_kind(home: Path) -> tuple[Stream, Split]:
    return count_to(100, each=100), Split(source=0, ordinal=(0,), path="0-100")


def brought_along(home: Path) -> tuple[Stream, Split]:
    stream = count_to(100, each=100)
    return stream, source_reader(stream).split_of(0, ROWS, home / "unused")


def at_hand(home: Path) -> tuple[Stream, Split]:
    return count_to(100, each=100), SplitAtHand(source=0, ordinal=(0,), frame=ROWS)


def source_reader(stream: Stream) -> SourceReader[Any]:
    ((_, source),) = compile_query(stream.write_memory().sinks).sources
    return reader_of(source)


@pytest.mark.parametrize(
    "kind",
    [*map(folder_kind, ("parquet", "csv", "ndjson", "arrow")), rows_kind, counter_kind,
     brought_along, at_hand],
    ids=["parquet", "csv", "ndjson", "arrow", "rows", "counter", "brought along", "at hand"],
)  # fmt: skip
def test_what_is_announced_is_what_is_read(
    tmp_path: Path, kind: Callable[[Path], tuple[Stream, Split]]
) -> None:
    """A split gives its rows, whole or in parts, with more columns for late ones if asked."""
    stream, whole = kind(tmp_path)
    reader, columns = source_reader(stream), {n: ROWS.schema[n] for n in ("n", "ts")}
    opened = reader.open(columns, limit=10, every=True)
    assert opened.read(whole).rows.equals(ROWS.select("n", "ts"))
    assert opened.read(whole).rejected == ()
    read = []
    for part in reader.cut(whole, columns):
        found = opened.read(part)
        read.append(found.rows)
        if part.rows is not None:
            assert part.rows == found.rows.height
            assert part.highest == event_times(reader.source, found.rows).highest
        at = [found.rows.height - 2]
        late = read_whole_rows(found.whole(at), found.rows[at], reader.source.schema)
        assert late.equals(ROWS.filter(pl.col("n") == found.rows["n"][at[0]]))
    assert pl.concat(read).equals(ROWS.select("n", "ts"))


def run(folder: Path, epochs: list[list[Split]], instances: int) -> LocalRun:
    stream = count_to(100, each=25).select("n")
    query = compile_query(stream.write_memory(ordered=True).sinks, instances=instances)
    found = LocalRun(query, folder / f"{instances}-{len(epochs)}")
    for splits in epochs:
        found.splits(splits)
    found.finish()
    return found


def test_who_reads_a_split_changes_nothing(tmp_path: Path) -> None:
    splits = counter(count_to(100, each=25)).find(Reached(), 10)
    outcomes = []
    for instances in (1, 3):
        for epochs in ([splits], [splits[:3], [], splits[3:]]):
            done = run(tmp_path, epochs, instances)
            late = read_side_output(done.driver.root, "late")[0].drop("epoch")
            outcomes.append((done.table()["n"].to_list(), late.sort("n").rows()))
    in_time = [n for n in range(100) if n % 10 != 9]
    assert outcomes == [(in_time, rows_between(0, 100).filter(pl.col("n") % 10 == 9).rows())] * 4


def test_its_splits_are_dealt_to_all_instances() -> None:
    query = compile_query(count_to(100, each=25).write_memory().sinks, instances=4)
    whole = counter(count_to(100, each=25)).find(Reached(), 10)
    payloads = assign(query, whole, 4)
    for task in range(4):
        some = splits_in([p for p in payloads if p.task == task], [])[0]
        assert [split.rows for split in some] == [6, 6, 6, 7] * 4, "all hear of all"
        assert sum(split.mine for split in some) == 4


def counter(stream: Stream) -> CounterReader:
    found = source_reader(stream)
    assert isinstance(found, CounterReader)
    return found


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_goes_on_where_it_was_and_tells_what_waits(tmp_path: Path) -> None:
    """The loop that a driver of our own would have: find, run, commit; through a restart."""
    stream = count_to(100, each=25)
    query = compile_query(stream.write_memory().sinks)
    waiting, read, clock = [], [], Clock()
    for _ in range(2):
        driver = Driver(
            query, tmp_path, Config(fsync=False), backlog=Backlog(query, clock=clock),
        )  # fmt: skip
        for _ in range(2):
            rows = driver.last.rows_before[0] if driver.last else 0
            splits = counter(stream).find(Reached(rows=rows), 1)
            epoch = driver.last.epoch + 1 if driver.last else 0
            done = driver.run_epoch(epoch, partial(run_stages, splits=splits))
            assert done.statistics is not None
            waiting.append(done.statistics.backlog)
            clock.now += 2.0  # what waits is looked at once a second
            read.append(done.counts["read"])
        driver.close()
    assert read == [25, 25, 25, 25]
    assert waiting == [75, 50, 25, 0]


def test_files_are_counted_before_rows(tmp_path: Path) -> None:
    ROWS.write_parquet(tmp_path / "a.parquet")
    both = count_to(10, each=5).union(ps.read_parquet(tmp_path, time="ts"))
    query = compile_query(both.write_memory().sinks)
    numbers = {source.name: n for n, source in query.sources}
    reached = {numbers["numbers"]: Reached(rows=3), numbers[tmp_path.name]: Reached(newest_us=0)}
    assert Backlog(query)(reached) == 1
    alone = compile_query(count_to(10, each=5).write_memory().sinks)
    assert Backlog(alone)({0: Reached(rows=3)}) == 7
    told = compile_query(ps.from_rows(ROWS, time="ts").write_memory().sinks)
    assert Backlog(told)({0: Reached(rows=3)}) is None


def test_it_is_explained_sampled_and_tested_like_any_other() -> None:
    windows = count_to(5000, each=100).aggregate(
        by="even", window=ps.tumbling("1 minute"), n="count(*)"
    )
    sinks = windows.write_memory()
    assert "source numbers (counter)" in explain(compile_query(sinks.sinks))
    sample = take_sample(sinks.sinks, rows=2000)
    assert sample.rows == 2000 * 4 // 5, "the first of five epochs warms up"
    with TestStream(sinks) as test:
        test.add(rows_between(0, 200).to_dicts(), splits=3)
        test.expect_reference()


def test_what_it_pins_is_refused_by_name(tmp_path: Path) -> None:
    def start(end: int, each: int) -> LocalRun:
        query = compile_query(count_to(end, each=each).write_memory(ordered=True).sinks)
        return LocalRun(query, tmp_path)

    start(100, 25).finish()
    with pytest.raises(CheckpointError, match="source 0 was 'numbers to 100' and is now"):
        start(200, 25)


@pytest.mark.parametrize("instances", [1, 2])
def test_rows_that_do_not_fit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instances: int
) -> None:
    """A kind that gives other types than it has declared loses rows, and none in silence."""
    odd = pl.col("n").cast(pl.Float64) + pl.when(pl.col("n") == 3).then(0.5).otherwise(0.0)
    monkeypatch.setattr("tests.counter.rows_between", lambda *a: rows_between(*a).with_columns(odd))
    query = compile_query(count_to(8, each=8).write_memory().sinks, instances=instances)
    done = LocalRun(query, tmp_path)
    counts = done.splits([Split(source=0, ordinal=(0,), path="0-8")]).counts
    assert (counts["read"], counts["refused"]) == (8, 1)
    assert sorted(done.table()["n"]) == [0, 1, 2, 4, 5, 6, 7]


def test_a_kind_is_registered_once() -> None:
    add_kind(Counter, CounterReader)
    with pytest.raises(ValueError, match="Counter is read by CounterReader"):
        add_kind(Counter, type("Other", (CounterReader,), {}))

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Unknown(Reader):
        pass

    source = Source(schema=ROWS.schema, reader=Unknown(), time="ts", delay_us=0, name="what")
    with pytest.raises(QueryError, match=r"source what: no kind of source .*Unknown"):
        reader_of(source)


def test_a_source_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    gone = Files(path=str(tmp_path / "gone"), format="csv")
    there = Files(path=str(tmp_path), format="csv")
    remote = Files(path="s3://bucket/gone", format="csv")
    problems = [
        reader_of(Source(schema={}, reader=r, time="ts", delay_us=0, name="f")).find_problems()
        for r in (gone, there, remote)
    ]
    assert problems == [[f"source f: the folder {gone.path!r} does not exist"], [], []]
    assert counter(count_to(0, each=1)).find_problems() == ["source numbers: there is no number"]


def test_what_spark_reads_cannot_be_had_beforehand() -> None:
    value = Frame(frame=None)
    source = Source(schema=ROWS.schema, reader=value, time="ts", delay_us=0, name="frame")
    assert compile_query(Stream(source).write_memory().sinks).scattered
    assert reader_of(source).list_in("home") is None
    with pytest.raises(SampleError, match="frame is a streaming DataFrame of Spark"):
        reader_of(source).sample(10)


NUMBERS = st.none() | st.integers(-(2**63), 2**63 - 1)
SPLITS = st.builds(
    Split,
    source=st.integers(-1, 2**31),
    ordinal=st.lists(st.integers(0, 2**53) | st.text(), min_size=1).map(tuple),
    path=st.none() | st.text(),
    offset=NUMBERS,
    rows=NUMBERS,
    highest=NUMBERS,
    came_us=NUMBERS,
    problem=st.text(),
    body=st.binary(),
)


@given(split=SPLITS)
def test_a_split_arrives_as_it_was_sent(split: Split) -> None:
    payload = to_payload(split, 3)
    assert splits_in([payload], []) == {split.source: [split]}
    assert Split.decode(split.news.encode()).mine is False
    assert (split.news.rows, split.news.highest) == (split.rows, split.highest)


def test_rows_at_hand_are_not_sent() -> None:
    here = SplitAtHand(source=0, ordinal=(0,), frame=ROWS)
    assert here.mine
    with pytest.raises(TypeError):
        to_payload(here, 0)


def test_late_rows_come_from_the_time_that_they_had() -> None:
    assert rows_between(9, 10)["ts"].to_list() == [datetime(1969, 12, 31, 23, 59, 9)]
