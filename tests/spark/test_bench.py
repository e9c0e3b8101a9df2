"""The benchmark in a short form: all engines, equal outputs, the promised JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

ENGINES = {"penstock-files", "penstock-dataframe", "native", "polars"}
FIELDS = {
    "workload", "engine", "rows", "rows_per_second", "epoch_ms_p50", "epoch_ms_p99", "peak_rss_mb",
    "output_rows", "ratio_to_native", "comparisons_per_second_per_core",
}  # fmt: skip
APPLICATION_FIELDS = {
    "workload", "engine", "rows", "rows_per_second", "epoch_ms_p50", "epoch_ms_p99", "peak_rss_mb",
    "output_rows", "ratio_to_batch", "phases",
}  # fmt: skip


NEXMARK_FIELDS = {
    "query", "engine", "form", "rows", "rows_per_second", "equal", "epoch_ms_p50", "output_rows",
    "reason",
}  # fmt: skip


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", "bench", *arguments, "--json"],
        cwd=folder, capture_output=True, text=True, timeout=280, check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )  # fmt: skip


def test_a_short_run(tmp_path: Path) -> None:
    done = bench(tmp_path, "cdr", "--rows", "40000", "--workload", "W3", "--no-small")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert {figure["engine"] for figure in figures} == ENGINES
    assert all(set(figure) == FIELDS for figure in figures)
    assert len({figure["output_rows"] for figure in figures}) == 1
    assert figures[0]["output_rows"] > 1000
    assert "outputs of 4 engines are equal" in done.stderr
    assert next(f for f in figures if f["engine"] == "native")["ratio_to_native"] == 1


@pytest.mark.parametrize("workload", ["W4", "W5"])
def test_join_and_product(workload: str, tmp_path: Path) -> None:
    arguments = ("cdr", "--rows", "50000", "--workload", workload, "--no-small")
    done = bench(tmp_path, *arguments, "--engine", "penstock-files,native,polars")
    assert done.returncode == 0, done.stderr
    figures = {figure["engine"]: figure for figure in json.loads(done.stdout)}
    join = workload == "W4"
    assert set(figures) == {"penstock-files", "polars", *(["native"] if join else [])}
    assert figures["penstock-files"]["rows"] == (50_000 if join else 1_000)
    assert (figures["penstock-files"]["comparisons_per_second_per_core"] is None) == join
    assert len({figure["output_rows"] for figure in figures.values()}) == 1
    assert figures["polars"]["output_rows"] > 0
    assert "engines are equal" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("exchange",), ["exchange"]),
        (("tpcxbb", "--workload", "Q2,Q15"), ["Q2", "Q15"]),
        (("network",), ["network"]),
    ],
)
def test_applications(arguments: tuple[str, ...], names: list[str], tmp_path: Path) -> None:
    done = bench(tmp_path, *arguments, "--rows", "40000")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert [figure["workload"] for figure in figures] == [name for name in names for _ in "ab"]
    assert all(set(figure) == APPLICATION_FIELDS for figure in figures)
    assert all(figure["output_rows"] > 0 for figure in figures)
    assert "read" in figures[0]["phases"]
    assert done.stderr.count("outputs of 2 engines are equal") == len(names)


def test_nexmark(tmp_path: Path) -> None:
    done = bench(tmp_path, "nexmark", "--events", "2000", "--queries", "q5,q8,q9")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    ways = [(figure["query"], figure["engine"]) for figure in figures]
    engines = ("penstock-files", "native", "duckdb")
    assert ways == [(query, engine) for query in ("q5", "q8", "q9") for engine in engines]
    assert all(set(figure) == NEXMARK_FIELDS for figure in figures)
    unable = [figure for figure in figures if figure["rows_per_second"] is None]
    assert [(f["query"], f["engine"], f["equal"]) for f in unable] == [("q9", "native", None)]
    assert "stateful" in unable[0]["reason"]
    ran = [figure for figure in figures if figure not in unable]
    assert all(f["equal"] and f["output_rows"] >= 5 and f["rows_per_second"] > 0 for f in ran)


def test_nexmark_in_sql(tmp_path: Path) -> None:
    arguments = ("--events", "2000", "--queries", "q5,q9", "--engine", "penstock-files", "--sql")
    done = bench(tmp_path, "nexmark", *arguments)
    assert done.returncode == 0, done.stderr
    hot, won = json.loads(done.stdout)
    assert (hot["form"], hot["equal"], won["equal"]) == ("sql", True, None)
    assert "timer" in won["reason"]


def test_rescale(tmp_path: Path) -> None:
    arguments = ("--keys", "3000", "--rows-per-epoch", "500", "--rounds", "1")
    done = bench(tmp_path, "rescale", *arguments)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    ways = [(figure["engine"], figure["from"], figure["to"]) for figure in figures]
    assert ways == [
        (engine, *way) for engine in ("penstock", "native-rocksdb") for way in ((1, 4), (4, 1))
    ]
    assert all(figure["keys"] == 3000 and figure["rescales"] == 1 for figure in figures)
    for figure in figures:
        pause = figure["rescale_epoch_ms"] - figure["plain_epoch_ms"]
        assert figure["pause_ms"] == pytest.approx(pause, abs=0.2)
        ratio = pause / figure["plain_epoch_ms"]
        assert figure["extra_epochs"] == pytest.approx(ratio, abs=0.01)
        assert (figure["stopped_ms"] > 0) == (figure["engine"] == "native-rocksdb")
    assert done.stderr.count("gave the 3,000 rows of the batch job") == 2


@pytest.mark.parametrize("suite", ["cdr", "tpcxbb", "nexmark"])
def test_an_unknown_workload_is_named(suite: str, tmp_path: Path) -> None:
    done = bench(tmp_path, suite, "--workload", "W9")
    assert done.returncode == 1
    assert "W9" in done.stderr
    assert "hint:" in done.stderr
