"""The benchmark in a short form: all engines, equal outputs, the promised JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

ENGINES = {"penstock-files", "penstock-dataframe", "native", "polars"}
FIELDS = {
    "workload", "engine", "rows_per_second", "epoch_ms_p50", "epoch_ms_p99", "peak_rss_mb",
    "output_rows", "ratio_to_native",
}  # fmt: skip


def test_a_short_run(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "bench", "cdr", "--rows", "40000", "--workload", "W3",
         "--no-small", "--json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert {figure["engine"] for figure in figures} == ENGINES
    assert all(set(figure) == FIELDS for figure in figures)
    assert len({figure["output_rows"] for figure in figures}) == 1
    assert figures[0]["output_rows"] > 1000
    assert "outputs of 4 engines are equal" in done.stderr
    assert next(f for f in figures if f["engine"] == "native")["ratio_to_native"] == 1


def test_an_unknown_workload_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "bench", "cdr", "--workload", "W9", "--json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "W9" in done.stderr
    assert "hint:" in done.stderr
