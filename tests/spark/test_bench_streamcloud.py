"""Figures of StreamCloud's evaluation in their short form: the shape, and what must be so."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark

FIELDS = {
    "figure", "title", "claim", "holds", "by", "series", "parameters", "notes", "machine",
    "command", "seconds", "quick",
}  # fmt: skip


def figure(name: str, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "bench", "streamcloud", "--figure", name,
         "--quick", "--json", "--out", str(folder / "out")],
        cwd=folder, capture_output=True, text=True, timeout=280, check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert set(found) == FIELDS
    assert found["figure"] == name
    assert isinstance(found["holds"], bool)
    files = {path.name for path in (folder / "out").iterdir()}
    assert files == {f"figure-{name}{ending}" for ending in (".json", ".png", ".html")}
    return dict(found)


def line(found: dict[str, Any], panel: str, name: str) -> list[float]:
    (wanted,) = [p for p in found["series"] if p["title"] == panel]
    (series,) = [s for s in wanted["series"] if s["name"] == name]
    return list(series["y"])


def test_instances_of_the_join(tmp_path: Path) -> None:
    found = figure("18", tmp_path)
    rates = line(found, "highest throughput of the join", "join")
    assert len(rates) == 2
    assert min(rates) > 0
    assert f"{rates[1]:,.0f}" in found["by"]


def test_balancing_moves_buckets_when_few_keys_have_the_load(tmp_path: Path) -> None:
    found = figure("20b", tmp_path)
    off, on = (line(found, "deviation of the rows", f"balancing {name}") for name in ("off", "on"))
    assert len(on) == len(off)
    assert min(off) > 0.2
    assert on[0] > 0.2
    assert on[-1] < 0.8 * off[-1]
    moved = re.search(r"(\d+) rebalances moved (\d+) buckets", found["by"])
    assert moved is not None
    assert min(int(number) for number in moved.groups()) >= 1


def test_window_recreation_reads_nothing(tmp_path: Path) -> None:
    found = figure("19", tmp_path)
    read = "bytes that new owners read"
    assert line(found, read, "WR, 1 s, 1 → 2") == [0, 0]
    few, many = line(found, read, "SR, 1 s, 1 → 2")
    assert many > 3 * few > 0
    times = line(found, "time to complete", "WR, 1 s, 1 → 2")
    assert all(seconds > 0 for seconds in times)


def test_an_unknown_figure_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "bench", "streamcloud", "--figure", "17"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "17" in done.stderr
    assert "20a" in done.stderr
