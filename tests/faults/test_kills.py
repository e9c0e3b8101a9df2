"""The pieces of the kill campaigns: who is killed, when, and that a broken store is noticed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import polars as pl
import psutil
import pytest

from faults.campaigns.kills import Deck, Ground
from faults.kill_child import Job, Order
from faults.kill_workload import (
    Outcome,
    batch_outcome,
    files_per_epoch,
    judge,
    run_in_process,
    run_outcome,
    write_files,
)
from faults.soak import Consumer, Generator
from penstock.driver.epoch import make_manifest
from penstock.plan.epoch import TaskReport
from penstock.state.cache import StateCache
from penstock.testing.faults.kills import Family, Step

FILES = 8
# A stand-in for a Spark application: a driver, below it a daemon in a group of its own, which forks
# two workers; what counts is how they are called and who their parents are.
_DAEMON = """
import os, time
def stay():
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(60)
os.setpgid(0, 0)
for _ in range(2):
    if os.fork() == 0:
        stay()
        os._exit(0)
stay()
"""
_DRIVER = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {_DAEMON!r}, "pyspark.daemon"])
os.write(1, b"%d\\n" % os.getpid())
child.wait()
"""
_DIES = """
import sys
from penstock.testing.faults.kills import Step, SteppingDisk, Trigger, kill_self
disk = SteppingDisk(Trigger(Step("create: half", "segment"), 2, kill_self))
for name in "ab":
    disk.create(f"{sys.argv[1]}/{name}", b"12345678", sync=True)
"""


@contextmanager
def family_of_four() -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    child = subprocess.Popen(
        [sys.executable, "-c", _DRIVER],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stdout is not None
        yield child, [int(child.stdout.readline()) for _ in range(4)]
    finally:
        Family.of(child.pid).kill("all")
        child.wait(timeout=10)
        assert child.stdout is not None
        child.stdout.close()


def test_the_family_is_found_by_its_session_and_nobody_else_is() -> None:
    with family_of_four() as (child, pids):
        family = Family.of(child.pid)
        assert {p.pid for p in family.all} == set(pids)
        assert os.getpid() not in {p.pid for p in family.all}
        assert child.pid in pids
        assert len(family.workers) == 2


def test_a_worker_is_killed_and_the_others_live() -> None:
    with family_of_four() as (child, pids):
        family = Family.of(child.pid)
        workers = {p.pid for p in family.workers}
        assert family.kill("worker", 1) == 1
        until = time.monotonic() + 10
        while len(left := {p.pid for p in Family.of(child.pid).all}) == 4:
            assert time.monotonic() < until
        assert len(set(pids) - left) == 1
        assert set(pids) - left <= workers


def test_orphans_of_a_dead_driver_are_still_found_and_killed() -> None:
    with family_of_four() as (child, pids):
        assert Family.of(child.pid).kill("driver") == 1
        child.wait(timeout=10)
        orphans = Family.of(child.pid)
        assert {p.pid for p in orphans.all} == set(pids) - {child.pid}
        assert orphans.kill("all") == 3
        psutil.wait_procs(list(orphans.all), timeout=10)
        assert not Family.of(child.pid).all


def test_a_step_inside_a_write_kills_the_process_there(tmp_path: Path) -> None:
    target = tmp_path / "penstock" / "state"
    target.mkdir(parents=True)
    done = subprocess.run([sys.executable, "-c", _DIES, str(target)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert (target / "a").read_bytes() == b"12345678"
    assert (target / "b").read_bytes() == b"1234"


def test_a_job_survives_its_line() -> None:
    job = Job(calls="c", out="o", checkpoint="p", order=Order(step="link, manifest", nth=2))
    assert Job.of_line(job.to_line()) == job


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    write_files(tmp_path / "calls", FILES)
    return tmp_path / "calls"


def run_here(calls: Path, folder: Path) -> Outcome:
    run_in_process(calls, folder, ordered=False)
    return run_outcome(folder / "checkpoint", folder / "out")


def test_an_undisturbed_run_is_right(calls: Path, tmp_path: Path) -> None:
    found = run_here(calls, tmp_path)
    verdict = judge(found, batch_outcome(calls), found, ordered=True)
    assert verdict.right, verdict.remarks
    assert found.late.height > 0
    assert found.totals["epoch"] == FILES


def _without_segments(report: TaskReport) -> TaskReport:
    return replace(report, added={})


def _without_outputs(report: TaskReport) -> TaskReport:
    return replace(report, staged=tuple(s for s in report.staged if s.kind != "output"))


def _without_late_rows(report: TaskReport) -> TaskReport:
    return replace(report, staged=tuple(s for s in report.staged if s.kind != "late"))


@pytest.mark.parametrize("broken", [_without_segments, _without_outputs, _without_late_rows])
def test_a_driver_that_forgets_is_noticed(
    calls: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[TaskReport], TaskReport],
) -> None:
    def forgetful(plan: object, before: object, reports: object, **options: object) -> object:
        if plan.epoch == 4:  # type: ignore[attr-defined]
            reports = tuple(broken(r) for r in reports)  # type: ignore[attr-defined]
        return make_manifest(plan, before, reports, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("penstock.driver.driver.make_manifest", forgetful)
    # A crash would lose what a worker hides.
    monkeypatch.setattr(StateCache, "get", lambda self, key: None)
    verdict = judge(run_here(calls, tmp_path), batch_outcome(calls), None, ordered=False)
    assert not verdict.right
    assert verdict.lost > 0


def test_rows_that_come_twice_or_in_another_epoch_are_noticed(calls: Path, tmp_path: Path) -> None:
    clean, batch = run_here(calls, tmp_path), batch_outcome(calls)
    twice = replace(clean, rows=pl.concat([clean.rows, clean.rows.head(2)]))
    assert judge(twice, batch, None, ordered=False).duplicated == 2
    moved = replace(clean, rows=clean.rows.with_columns(pl.col("epoch") + 1))
    assert judge(moved, batch, clean, ordered=False).differing == 1
    turned = replace(clean, rows=clean.rows.reverse())
    assert judge(turned, batch, clean, ordered=True).differing == 1
    assert judge(replace(clean, late=clean.late.head(1)), batch, None, ordered=False).lost > 0


def test_every_point_is_dealt_once(tmp_path: Path) -> None:
    nothing = Outcome(rows=pl.DataFrame(), late=pl.DataFrame())
    ground = Ground(
        folder=tmp_path,
        ordered=False,
        batch=nothing,
        clean=nothing,
        steps={"link, manifest": 30, "make folder, manifest": 1},
        worker_steps=["create: half, segment"],
        settings={},
    )
    deck = Deck(ground, seed=1)
    plans = [deck.deal(first=i % 4 == 0) for i in range(12)]
    points = [plan.point for plan in plans if plan.point is not None]
    assert sorted(points) == [
        "driver: link, manifest",
        "driver: make folder, manifest",
        "worker: create: half, segment",
    ]
    assert plans[0].point == "driver: make folder, manifest"


def test_the_soak_knows_its_windows_and_its_late_rows(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    calls.mkdir()
    generator = Generator(calls, rate=500, keep_seconds=100)
    generator.stop.set()
    import numpy as np

    for number in range(3):
        generator._write(np.random.default_rng(number), number)
    raw = pl.concat([pl.read_parquet(path) for path in sorted(calls.glob("*.parquet"))])
    ts = raw["ts"].to_physical()
    late = (ts < ts.cum_max().shift(1) - 2_000_000).fill_null(False)
    assert generator.made == 1500
    assert generator.late == late.sum()
    windows = generator.windows(2**62)
    assert sum(n for n, _ in windows.values()) == 6 * int((~late).sum())
    assert Consumer(tmp_path / "none").windows == {}


def test_stepping_sees_the_commit(calls: Path, tmp_path: Path) -> None:
    seen: list[Step] = []
    run_in_process(calls, tmp_path, ordered=False, hook=seen.append)
    assert seen.count(Step("linked", "manifest")) == FILES + 1
    assert Step("create: half", "segment") in seen
    assert Step("renamed", "output") in seen


def test_the_cut_into_epochs_is_read_from_sparks_log(calls: Path, tmp_path: Path) -> None:
    offsets = tmp_path / "checkpoint" / "spark" / "offsets"
    offsets.mkdir(parents=True)
    for epoch, reached in enumerate([0, 1, 3, 4, 5, 6, 7]):
        (offsets / str(epoch)).write_text(f'v1\n{{"conf":{{}}}}\n{{"logOffset":{reached}}}')
    cut = files_per_epoch(tmp_path / "checkpoint")
    assert cut == [1, 1, 2, 1, 1, 1, 1]
    run_in_process(calls, tmp_path / "cut", ordered=False, cut=cut)
    found = run_outcome(tmp_path / "cut" / "checkpoint", tmp_path / "cut" / "out")
    assert found.totals["epoch"] == FILES - 1
    assert judge(found, batch_outcome(calls), None, ordered=False).right
