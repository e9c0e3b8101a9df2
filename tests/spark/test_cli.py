"""The command line, as a user calls it."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest

from tests.spark.conftest import write_calls

pytestmark = pytest.mark.spark

BESIDE = """
def as_it_is(frame):
    return frame
"""
QUERY = """
import penstock as ps
from beside import as_it_is
calls = ps.read_parquet({folder!r}, time="ts")
calls = calls.apply(as_it_is, schema=calls.schema)
per_minute = calls.aggregate(by="src", window=ps.tumbling("1 minute"), n="count(*)")
query = per_minute.write_parquet({out!r})
"""


def penstock(*arguments: str, cwd: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.fixture
def query_file(tmp_path: Path) -> Path:
    """A query with a function of a module beside it, in a folder that nobody has on their path."""
    folder = tmp_path / "calls"
    folder.mkdir()
    write_calls(folder / "0.parquet", start=0, rows=200, modified=1_700_000_000)
    path = tmp_path / "queries" / "query.py"
    path.parent.mkdir()
    (path.parent / "beside.py").write_text(BESIDE)
    path.write_text(QUERY.format(folder=str(folder), out=str(tmp_path / "out")))
    return path


def test_check_and_explain(query_file: Path, tmp_path: Path) -> None:
    done = penstock("check", str(query_file), cwd=tmp_path)
    assert done.returncode == 0
    assert "ok" in done.stderr
    shown = penstock("explain", str(query_file), "--instances", "2", cwd=tmp_path)
    assert "subquery 1: 2 instances" in shown.stdout
    chart = penstock("explain", str(query_file), "--mermaid", "--json", cwd=tmp_path)
    assert json.loads(chart.stdout)["explain"].startswith("flowchart")


def test_check_lists_all_mistakes(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(
        "import penstock as ps, polars as pl\n"
        "s = ps.from_rows(pl.DataFrame({'ts': [ps.at('2024-01-01')]}), time='ts')\n"
        "query = s.map(a='b', c='d').write_memory()\n"
    )
    done = penstock("check", str(path), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the query has 2 mistakes")
    assert "hint:" in done.stderr
    as_json = penstock("check", str(path), "--json", cwd=tmp_path)
    assert len(json.loads(as_json.stdout)["problems"]) == 2
    assert all("[bad.py:3]" in problem for problem in json.loads(as_json.stdout)["problems"])
    path.write_text("x = 1\ny = x / 0\n")
    broken = penstock("check", str(path), cwd=tmp_path)
    assert f"error: {path}: line 2: ZeroDivisionError" in broken.stderr
    assert "Traceback" not in broken.stderr
    missing = penstock("check", "nope.py", cwd=tmp_path)
    assert missing.returncode == 1
    assert "error: nope.py: no such file" in missing.stderr


def test_run(query_file: Path, tmp_path: Path) -> None:
    done = penstock(
        "run", str(query_file), "--checkpoint", "c", "--available-now", "--finish", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["totals"]["read"] == 200
    rows = pl.read_parquet(tmp_path / "out")
    assert rows["n"].sum() == 200


def test_ctrl_c_stops_a_run_after_its_epoch(
    query_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = uuid.uuid4().hex
    monkeypatch.setenv("PENSTOCK_TEST_MARK", mark)
    command = [sys.executable, "-m", "penstock", "run", str(query_file), "--checkpoint", "c"]
    running = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert running.stderr is not None
        lines = []
        for line in running.stderr:  # ends at the latest when the process does
            lines.append(line)
            if line.startswith("epoch 0"):
                break
        running.send_signal(signal.SIGINT)
        _, rest = running.communicate(timeout=90)
    finally:
        running.kill()
    assert running.returncode == 0, [*lines, rest]
    assert "200 rows in" in lines[-1]
    assert "Traceback" not in rest
    assert left_running(mark) == []


def test_demo_shows_results_and_leaves_nothing_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = uuid.uuid4().hex
    monkeypatch.setenv("PENSTOCK_TEST_MARK", mark)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    done = penstock("demo", "--seconds", "3", "--rate", "2000", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    assert summary["totals"]["read"] > 0
    assert re.search(r"epoch \d+: [\d,]+ rows/s", done.stderr), done.stderr
    assert "results:" in done.stderr
    assert pl.read_parquet(summary["results"]).height > 0
    assert left_running(mark) == []
    assert list((tmp_path / "temporary").iterdir()) == []


def test_doctor(tmp_path: Path) -> None:
    done = penstock("doctor", "--json", cwd=tmp_path)
    findings = json.loads(done.stdout)
    assert done.returncode == 0, findings
    assert {"java", "pyspark", "polars", "trial job"} <= {c["name"] for c in findings["checks"]}


def left_running(mark: str) -> list[str]:
    """Return the processes that were started, at any remove, with a mark in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("PENSTOCK_TEST_MARK") == mark:
                found.append(" ".join(process.cmdline())[:200])
    return found


SQL = """
CREATE TABLE calls (src VARCHAR, x BIGINT, ts TIMESTAMP)
  WITH (format = 'parquet', path = 'calls', time = 'ts');
CREATE TABLE pairs WITH (format = 'parquet', path = 'pairs', ordered = true);
INSERT INTO pairs
SELECT a.src, a.x AS first, b.x AS second FROM calls a JOIN calls b
ON a.src = b.src AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL '10 seconds'
WHERE a.x % 2 = 0;
"""


def test_a_file_of_sql_runs(query_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "pairs.sql"
    path.write_text(SQL)
    done = penstock("run", str(path), "--checkpoint", "checkpoint", "--available-now", "--finish",
                    "--json", cwd=tmp_path)  # fmt: skip
    assert json.loads(done.stdout)["totals"]["read"] == 200, done.stderr
    found = pl.read_parquet(tmp_path / "pairs" / "**" / "*.parquet").select("first", "second")
    # Row x has the key x % 7 and comes at second x: its partner within ten seconds is x + 7.
    assert found.rows() == [(x, x + 7) for x in range(0, 193, 2)]
    path.write_text(SQL.replace("a.x % 2 = 0", "a.y % 2 = 0 LIMIT 3"))
    wrong = penstock("check", str(path), cwd=tmp_path)
    assert wrong.returncode == 1
    assert "LIMIT" in wrong.stderr
    assert "line 8" in wrong.stderr
