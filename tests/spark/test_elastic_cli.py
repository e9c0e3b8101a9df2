"""A query that runs in one process, changed and watched from others; and the handle's own verbs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.base.errors import ConfigError
from tests.spark.conftest import call_rows, write_calls
from tests.spark.test_cli import BESIDE, QUERY

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = 2_000
RULES = "min=1,max=4,target=0.6,instance_cores=0.001,cooldown_seconds=0"


def penstock(*arguments: str, cwd: Path) -> tuple[int, Any]:
    """Run a command; return its exit code and its data."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments, "--json"],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def put_file(folder: Path, number: int) -> None:
    hidden = folder / f".{number}"
    modified = 1_700_000_000 + number
    write_calls(hidden, start=number * ROWS, rows=ROWS, modified=modified)
    hidden.rename(folder / f"{number:04d}.parquet")


@contextlib.contextmanager
def running(folder: Path, options: list[str], until: Callable[[str], bool]) -> Iterator[list[str]]:
    """Run a query in another process, and wait until a line of its messages fits."""
    command = [sys.executable, "-m", "penstock", "run", "query.py", "--checkpoint", "c", *options]
    process = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    lines: list[str] = []
    seen = threading.Event()
    assert process.stderr is not None

    def listen(stderr: Any) -> None:
        for line in stderr:
            lines.append(line)
            if until(line):
                seen.set()
        seen.set()

    listener = threading.Thread(target=listen, args=(process.stderr,))
    listener.start()
    try:
        assert seen.wait(300), lines
        assert process.poll() is None, lines
        yield lines
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 0, lines
    finally:
        process.kill()
        process.wait()
        listener.join()
        process.stderr.close()


@contextlib.contextmanager
def files_coming(folder: Path, first: int) -> Iterator[list[int]]:
    """Put a new file into a folder again and again; in the end it is known how many there are."""
    stop, written = threading.Event(), [first]

    def write() -> None:
        while not stop.is_set():
            put_file(folder, written[0])
            written[0] += 1
            stop.wait(0.5)

    worker = threading.Thread(target=write)
    worker.start()
    try:
        yield written
    finally:
        stop.set()
        worker.join()


def test_two_processes(tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    folder.mkdir()
    put_file(folder, 0)
    text = QUERY.format(folder="calls", out="out")
    (tmp_path / "query.py").write_text(text)
    (tmp_path / "beside.py").write_text(BESIDE)
    with (
        running(tmp_path, ["--elastic", RULES, "--dry-run"], lambda s: s.startswith("epoch 0")),
        files_coming(folder, 1) as written,
    ):
        asked = ["rescale", "c", "--subquery", "aggregate-0", "--instances", "3", "--wait", "120"]
        code, answer = penstock(*asked, cwd=tmp_path)
        assert (code, answer["outcome"]) == (0, "done"), answer
        assert answer["records"][0]["after"] == 3
        code, answer = penstock(
            "rescale", "c", "--subquery", "1", "--instances", "2000", "--wait", "120", cwd=tmp_path
        )
        assert (code, answer["outcome"]) == (1, "refused")
        code, top = penstock("top", "c", "--once", cwd=tmp_path)
        assert code == 0
        (aggregate,) = [s for s in top["subqueries"] if s["name"] == "aggregate-0"]
        assert len(aggregate["instances"]) == 3
        assert {one["host"] for one in aggregate["instances"]} != {""}
        assert top["rows_per_second"] > 0
        assert top["backlog"] is not None
        assert top["decision"]["dry_run"] is True
        assert [c["outcome"] for c in top["reconfigurations"]][-2:] == ["done", "refused"]
    code, replayed = penstock("replay", "c", cwd=tmp_path)
    assert (code, replayed["ok"]) == (0, True)
    assert len(replayed["decisions"]) >= 1
    assert os.listdir(tmp_path / "c" / "penstock" / "requests") == []
    # What is there at the end, from a plain restart that keeps the size.
    done = ["run", "query.py", "--checkpoint", "c", "--available-now", "--finish"]
    code, summary = penstock(*done, cwd=tmp_path)
    assert code == 0
    assert summary["totals"]["read"] == written[0] * ROWS
    code, top = penstock("top", "c", "--once", cwd=tmp_path)
    assert len(top["subqueries"][1]["instances"]) == 3
    counts = pl.read_parquet(tmp_path / "out").group_by("src").agg(pl.col("n").sum()).sort("src")
    rows = call_rows(0, written[0] * ROWS)
    assert counts.rows() == rows.group_by("src").len().sort("src").rows()


def test_the_handle(spark: SparkSession, calls: Path, tmp_path: Path) -> None:
    def next_epoch(number: int) -> None:
        write_calls(
            calls / f"{number}.parquet", start=number * 100, rows=100,
            modified=1_700_000_000 + number,
        )  # fmt: skip
        query.processAllAvailable()

    stream = ps.read_parquet(calls, time="ts", max_files_per_epoch=5)
    counted = stream.aggregate(by="src", window=ps.tumbling("1 minute"), n="count(*)")
    query = counted.write_memory("m").start(spark, checkpoint=tmp_path / "c", instances="auto")
    try:
        query.processAllAvailable()
        assert "no sample could be taken: source calls has 500 rows" in query.explain()
        assert query.rebalance("aggregate-0") == [
            "aggregate-0 has one instance, so there is nothing to balance"
        ]
        query.rescale("aggregate-0", 2)
        next_epoch(5)
        query.move("aggregate-0", dict.fromkeys(range(1024), 1))
        next_epoch(6)
        (sentence,) = query.rebalance(1)
        next_epoch(7)
        changes = query.reconfigurations
        assert changes["kind"].to_list() == ["rescale", "move", "rebalance"]
        assert changes["outcome"].unique().to_list() == ["done"]
        assert changes["after"].to_list() == [2, 2, 2]
        assert "buckets move" in sentence
        for wrong in (
            lambda: query.rescale("join-0", 2),
            lambda: query.move(1, {0: 7}),
            lambda: query.rebalance(9),
        ):
            with pytest.raises(ConfigError):
                wrong()
        statistics = query.statistics
        newest = statistics.filter(name="aggregate-0", epoch=statistics["epoch"].max())
        assert newest["instance"].to_list() == [0, 1]
        assert newest["epoch_rows"][0] == 100
        assert newest["backlog"][0] == 0
        assert newest["latency_seconds"][0] > 1e6, "the files of the test are old"
        assert query.decisions.height == 0
    finally:
        query.stop()
    assert query.exception() is None


def test_sizes_from_a_sample_at_the_first_start(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    folder.mkdir()
    put_file(folder, 0)
    stream = ps.read_parquet(folder, time="ts", max_files_per_epoch=1)
    counted = stream.aggregate(by="src", window=ps.tumbling("1 minute"), n="count(*)")

    def start() -> Any:
        query = counted.write_memory("m").start(
            spark, checkpoint=tmp_path / "c", available_now=True, elastic=ps.elastic(min=2, max=2)
        )
        query.awaitTermination()
        return query

    text = start().explain()
    assert "subquery 1: 2 instances" in text
    assert "== Sizes (from a sample of 1,600 rows) ==" in text
    (tmp_path / "c" / "penstock" / "sample.json").unlink()
    put_file(folder, 1)
    again = start()
    assert "== Sizes" not in again.explain(), "a second start measures nothing"
    assert again.totals["read"] == 2 * ROWS
