"""Logs: a user who looks for what happened finds it, and the library shows nothing by itself."""

from __future__ import annotations

import ast
import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
from penstock.base.errors import FencedError
from penstock.cli.output import show_log
from penstock.compiler import compile_query
from penstock.files.place import place_of
from penstock.query.stream import Sinks
from penstock.spark.executors import Executor
from penstock.spark.resources import SparkResources
from penstock.state.care.repair import plan_repair
from penstock.state.care.repair_steps import carry_out
from penstock.state.manifests import Manifest, ManifestLog
from penstock.state.published import published_marker
from penstock.testing.runner import LocalRun
from penstock.testing.streams import TestStream

ROOT = Path(ps.__file__).parent
SCHEMA: dict[str, Any] = {"k": pl.String, "ts": pl.Datetime("us")}
SILENT = ("operators", "control", "compiler", "plan", "query", "exchange")
"""Folders of pure functions: they answer, and whoever asked may log."""


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="penstock")
    return caplog


def told(log: pytest.LogCaptureFixture, level: int) -> list[str]:
    found = [r.getMessage() for r in log.records if r.levelno == level]
    log.clear()
    return found


def query() -> Sinks:
    calls = ps.from_rows([], schema=SCHEMA, time="ts")
    window = ps.tumbling("10 seconds")
    return calls.aggregate(by="k", window=window, n="count(*)").write_memory()


def call(second: int) -> dict[str, Any]:
    return {"k": f"k{second % 3}", "ts": datetime(2024, 1, 1) + timedelta(seconds=second)}


def test_a_query_tells_of_its_start_its_epochs_and_its_changes(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    with TestStream(query(), tmp_path, instances=2, buckets=8) as stream:
        (started,) = told(log, logging.INFO)
        assert started.startswith(f"checkpoint {tmp_path}: the query begins; instances: ")
        assert started.endswith("aggregate-0: 2")
        stream.add([call(1), call(30), call(2)])
        (epoch,) = told(log, logging.DEBUG)
        assert epoch.startswith("epoch 0 is committed and published: rows read 3, ")
        assert "late 1," in epoch
        stream.rescale(1, 3)
        stream.add([call(31)])
        assert told(log, logging.INFO) == [stream.reconfigurations()[0].sentence]


def test_a_restart_tells_what_it_publishes(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    with TestStream(query(), tmp_path) as stream:
        stream.add([call(1), call(30)])
    log.clear()
    with TestStream(query(), tmp_path):
        assert told(log, logging.WARNING) == []
    published_marker(place_of(tmp_path) / "penstock", 0).delete()
    with TestStream(query(), tmp_path):
        assert "goes on after epoch 0" in log.text
        assert told(log, logging.WARNING) == [
            "epoch 0 is committed but not published; it is published now"
        ]


def test_files_that_wait_or_are_refused_are_named_once(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    folder, now = tmp_path / "in", [1000.0]
    folder.mkdir()
    stream = ps.read_parquet(folder, time="ts", schema=SCHEMA, patience="30 seconds")
    compiled = compile_query(stream.write_memory().sinks)
    run = LocalRun(compiled, tmp_path / "c", clock=lambda: now[0])
    log.clear()
    for name in range(7):
        (folder / f"{name}.parquet").write_bytes(b"PAR1 and no more")
    run.files({0: [f"{folder}/{name}.parquet" for name in range(7)]})
    waiting = told(log, logging.INFO)
    assert [line.partition(" of source 0 waits")[0] for line in waiting[:5]] == [
        f"file {folder}/{name}.parquet" for name in range(5)
    ]
    assert waiting[5:] == ["and 2 more files of the same epoch; `penstock retry` lists them"]
    now[0] += 5
    run.files({0: []})
    assert told(log, logging.INFO) == [], "they were told of before"
    now[0] += 100
    run.files({0: []})
    refused = told(log, logging.WARNING)
    assert len(refused) == 6
    assert "is refused: not a readable parquet file" in refused[0]


def test_a_driver_that_is_fenced_says_so(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    manifests = ManifestLog(place_of(tmp_path, fsync=False))
    manifests.commit(Manifest(epoch=0))
    with pytest.raises(FencedError):
        manifests.commit(Manifest(epoch=0))
    (fenced,) = told(log, logging.WARNING)
    assert "another driver has committed this epoch" in fenced


def test_a_repair_tells_its_steps(home: Path, log: pytest.LogCaptureFixture) -> None:
    newest = home / "penstock" / "manifests" / "000000000010.json"
    newest.unlink()
    newest.write_bytes(b"damaged")
    plan = plan_repair(home)
    log.clear()
    folder = carry_out(plan)
    steps = told(log, logging.INFO)
    assert len(steps) == len(plan.steps) + 1
    assert any(f"set aside {newest}: " in step for step in steps)
    assert steps[-1] == f"repair: what was set aside is in {folder}"


class OneExecutor:
    """An executor that can vanish."""

    def __init__(self) -> None:
        self.found = {"0": Executor(id="0", host="host-a", slots=2)}

    def mark(self) -> tuple[str, int]:
        return ",".join(self.found), len(self.found)

    def registered(self) -> dict[str, Executor]:
        return dict(self.found)

    def decommissioning(self, executor: str) -> bool:
        return False

    def request(self, total: int) -> bool:
        return True

    def release(self, executor: str) -> bool:
        return False


def test_executors_that_come_and_go_are_told_of(log: pytest.LogCaptureFixture) -> None:
    executors = OneExecutor()
    resources = SparkResources(executors, most_executors=4, first_executors=1)
    assert told(log, logging.INFO) == ["executor 0 on host-a: added"]
    resources.ask(8)
    assert resources._calling is not None
    resources._calling.result(timeout=30)
    assert told(log, logging.INFO) == ["asked Spark for 4 executors"]
    executors.found.clear()
    resources.slots()
    assert told(log, logging.WARNING) == ["executor 0 on host-a: lost"]
    resources.close()


@pytest.fixture
def penstock_log() -> Iterator[logging.Logger]:
    found = logging.getLogger("penstock")
    handlers, level = list(found.handlers), found.level
    yield found
    found.handlers[:] = handlers
    found.setLevel(level)


def test_verbose_shows_the_log_on_stderr(
    penstock_log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [type(handler) for handler in penstock_log.handlers] == [logging.NullHandler]
    show_log()
    logging.getLogger("penstock.driver.logs").info("epoch %d", 3)
    logging.getLogger("penstock.driver.logs").debug("hidden")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("INFO penstock.driver.logs: epoch 3\n")


def test_each_module_has_a_logger_of_its_own_and_pure_ones_have_none() -> None:
    users = []
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import) and any(name.name == "logging" for name in node.names):
                users.append(path.relative_to(ROOT))
            if isinstance(node, ast.Assign) and "getLogger" in ast.unparse(node.value):
                assert ast.unparse(node.value) == "logging.getLogger(__name__)" or (
                    path.parent.name == "cli"
                ), path
    assert len(users) > 8
    assert [str(path) for path in users if path.parts[0] in SILENT] == []
