"""The state benchmark in a short form: equal outputs and the promised JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

PROMISED = {"engine", "keys", "epoch_ms_p50", "epoch_ms_p95", "bytes_written", "state_bytes"}


def bench_state(*options: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "bench", "state", "--json", *options],
        cwd=folder, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip


def test_a_short_run(tmp_path: Path) -> None:
    done = bench_state(
        "--keys", "1000", "--epochs", "3", "--engine", "penstock,native-rocksdb", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert [figure["engine"] for figure in figures] == ["penstock", "native-rocksdb"]
    for figure in figures:
        assert set(figure) >= PROMISED
        assert figure["failed"] is None
        assert (figure["keys"], figure["epochs"], figure["rows_per_epoch"]) == (1000, 3, 1000)
        assert figure["epoch_ms_p50"] > 0
        assert 1000 < figure["bytes_written"] < figure["state_bytes"]
    assert done.stderr.count("gave the 1,000 rows of the batch job") == 2


def test_an_unknown_engine_is_named(tmp_path: Path) -> None:
    done = bench_state("--engine", "abacus", folder=tmp_path)
    assert done.returncode == 1
    assert "abacus" in done.stderr
    assert "hint:" in done.stderr


def test_keys_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    done = bench_state("--keys", "many", folder=tmp_path)
    assert done.returncode == 1
    assert "many" in done.stderr
