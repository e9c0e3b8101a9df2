"""The corruption campaign: it passes on this store, and not on a broken one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from faults.campaigns import corruption as campaign
from penstock.base.errors import CheckpointError
from penstock.files import place as files
from penstock.files.place import Place
from penstock.state.care.repair import plan_repair
from penstock.state.care.repair_steps import carry_out
from penstock.state.care.verify import verify
from penstock.testing.faults.corruption import DAMAGES, Corruption, choose, files_by_kind
from penstock.testing.faults.specimens import naming

TRIALS = int(os.environ.get("PENSTOCK_CORRUPTIONS", "120"))


def test_damage_is_noticed_or_does_not_matter() -> None:
    lines: list[str] = []
    found = campaign.run(TRIALS, 0, lines.append)
    assert found.passed, lines
    assert found.trials == TRIALS
    assert found.detected > TRIALS / 2
    assert found.recovery_ms


def unchecked_read(self: Place, *, size: int, digest: str) -> bytes:
    return self.read()


def break_hashes() -> None:
    """Let files with another hash pass, as a careless store would."""
    files.Place.read_checked = unchecked_read  # type: ignore[method-assign]
    files.Place.read_named = files.Place.read  # type: ignore[method-assign]


def test_a_store_that_does_not_check_hashes_is_caught() -> None:
    lines: list[str] = []
    found = campaign.run(60, 0, lines.append, prepare=break_hashes)
    assert found.undetected
    assert found.failing
    assert not found.passed
    assert any("undetected" in line or "crashed" in line for line in lines)


def end_the_process(seed: int) -> campaign.Trial:
    os._exit(9)


def break_the_interpreter() -> None:
    campaign.Bench.trial = lambda self, seed: end_the_process(seed)  # type: ignore[method-assign]


def test_a_process_that_dies_is_counted() -> None:
    found = campaign.run(2, 0, print, prepare=break_the_interpreter)
    assert found.failing == [0, 1]
    assert found.differing == 2


def wait_for_ever() -> None:
    campaign.Bench.trial = lambda self, seed: signal.pause()  # type: ignore[assignment,method-assign,return-value]


def test_a_process_that_hangs_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "HANG_SECONDS", 0.0)
    found = campaign.run(1, 0, print, prepare=wait_for_ever)
    assert found.failing == [0]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> campaign.Bench:
    return campaign.Bench(tmp_path_factory.mktemp("bench"))


def test_every_kind_of_file_is_damaged_in_every_way(bench: campaign.Bench) -> None:
    kinds = {kind for files in bench.files.values() for kind in files}
    assert len(kinds) == campaign.KINDS
    assert {"manifest", "pin", "segment", "staged", "published", "late", "dead"} <= kinds
    assert {"rows", "plan", "marker", "orphan", "crc", "metadata"} <= kinds
    assert {"offsets", "commits", "sources"} <= kinds
    found = set()
    for state, files_there in bench.files.items():
        bench.specimens[state].fresh()
        for seed in range(1500):
            corruption = choose(seed, files_there)
            found.add((corruption.kind, corruption.damage))
    assert {damage for _, damage in found} == set(DAMAGES)
    assert len(found) == campaign.POINTS


def test_a_corruption_is_the_same_for_the_same_seed(bench: campaign.Bench, tmp_path: Path) -> None:
    other = campaign.Bench(tmp_path)
    for seed in (3, 7, 12):
        ours, theirs = bench.trial(seed), other.trial(seed)
        assert (ours.kind, ours.damage, ours.verdict) == (
            theirs.kind,
            theirs.damage,
            theirs.verdict,
        )


def test_a_corruption_leaves_what_it_does_not_name(bench: campaign.Bench) -> None:
    specimen = bench.specimens["stopped"]
    for seed in range(20):
        specimen.fresh()
        before = contents(specimen.live)
        corruption = choose(seed, files_by_kind(specimen.home))
        corruption.apply()
        after = contents(specimen.live)
        changed = {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)}
        assert changed == set(corruption.paths)
        assert contents(specimen.kept).values(), "the specimen itself must stay whole"
    specimen.fresh()
    assert verify(specimen.home).sound


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("seed", range(40))
def test_a_repair_makes_it_sound_and_exact(bench: campaign.Bench, seed: int) -> None:
    state = campaign.state_of(seed)
    specimen = bench.specimens[state]
    specimen.fresh()
    corruption: Corruption = choose(seed, bench.files[state])
    corruption.apply()
    plan = plan_repair(specimen.home)
    if plan.impossible:
        assert corruption.kind == "sources", plan.impossible
        with pytest.raises(CheckpointError):
            carry_out(plan)
        return
    if plan.needed:
        with naming("r"):
            carry_out(plan)
    assert verify(specimen.home).sound
    lost, duplicated, differing = campaign.differences(specimen.go_on(), bench.clean[state])
    assert not duplicated
    assert not differing
    assert not lost or any("lost; the epoch cannot" in note for note in plan.notes)
