"""The campaigns run, pass, count what they do, and leave nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import faults.__main__ as programme
from faults.campaigns import crash_points, io_errors, races, simulation, zombies
from faults.real import EPOCH, Stage, scratch
from faults.report import Campaign, CampaignResult, percentile, table_of
from penstock.files.place import place_of
from penstock.state.manifests import Manifest, ManifestLog
from penstock.testing.faults.disks import Point

CAMPAIGNS: list[tuple[Campaign, int]] = [
    (simulation.run, 10),
    (crash_points.run, 8),
    (io_errors.run, 8),
    (zombies.run, 6),
]


@pytest.mark.parametrize(("run", "trials"), CAMPAIGNS)
def test_a_campaign_passes_and_leaves_nothing(run: Campaign, trials: int) -> None:
    lines: list[str] = []
    before = set(Path("/dev/shm").glob("penstock-faults-run-*"))
    result = run(trials, 3, lines.append)
    assert result.passed, (result.as_dict(), lines)
    assert result.trials >= trials
    assert result.recovery_ms
    assert set(Path("/dev/shm").glob("penstock-faults-run-*")) <= before


def test_two_processes_race() -> None:
    lines: list[str] = []
    result = races.run(2, 1, lines.append)
    assert result.passed, (result.as_dict(), lines)
    assert result.detected > 0


def test_the_epoch_of_the_crash_points_does_everything() -> None:
    with scratch() as folder:
        stage = Stage(folder)
        points = stage.points()
        tails = sum(len(manifest.tails) for manifest in _manifests(stage))
        assert not stage.truth, stage.truth.notes
    done = {(point.call, _kind(point)) for point in points}
    assert {
        ("link", "state"),
        ("link", "manifests"),
        ("rename", "out"),
        ("rename", "late"),
        ("rename", "dead"),
        ("unlink", "manifests"),
        ("unlink", "state"),
        ("unlink", "staged"),
    } <= done
    merged = [p for p in points if p.call == "link" and f"/{EPOCH:012d}-" in p.path]
    assert len([p for p in merged if _kind(p) == "state"]) > 1, "nothing was compacted"
    assert any("orphan" in point.path for point in points if point.call == "unlink")
    assert tails >= 2, "no window was on its way"


def _manifests(stage: Stage) -> list[Manifest]:
    """Return the manifests after the epoch and before it."""
    log = ManifestLog(place_of(stage.folder / "checkpoint/penstock"))
    return [manifest for epoch in (EPOCH - 1, EPOCH) if (manifest := log.read(epoch)) is not None]


def _kind(point: Point) -> str:
    known = ("state", "manifests", "late", "dead", "staged", "out")
    return next((name for name in known if f"/{name}/" in point.path), "")


def test_the_programme_prints_a_table_or_json_and_says_whether_all_is_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = typer.Typer()
    app.command()(programme.main)
    arguments = ["--campaign", "simulation", "--seed", "5", "--trials", "1"]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["campaigns"]
    assert (found["campaign"], found["trials"], found["passed"]) == ("simulation", 1, True)
    assert CliRunner().invoke(app, ["--campaign", "nothing"]).exit_code == 2

    bad = CampaignResult(campaign="bad", trials=1, faults=1, lost=1, failing=[7])
    monkeypatch.setattr(programme, "_timed", lambda *arguments: bad)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "bad" in result.stdout


@pytest.mark.parametrize(
    "wrong", [{"lost": 1}, {"duplicated": 1}, {"differing": 1}, {"undetected": 1}, {"trials": 0}]
)
def test_anything_wrong_fails_a_campaign(wrong: dict[str, int]) -> None:
    assert CampaignResult(campaign="x", trials=1, faults=1).passed
    assert not CampaignResult(**{"campaign": "x", "trials": 1, "faults": 1, **wrong}).passed  # type: ignore[arg-type]


def test_the_table_has_a_row_for_each_campaign() -> None:
    results = [CampaignResult(campaign=name, trials=1, faults=1) for name in "ab"]
    assert table_of(results).row_count == 2
    assert percentile([], 0.5) is None
