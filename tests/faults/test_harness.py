"""The harness notices every broken store, and finds nothing wrong with the sound one."""

from __future__ import annotations

import random

import pytest

from penstock.base.errors import CheckpointError
from penstock.files.place import LocalFiles
from penstock.testing.faults.broken import BROKEN, UNCHECKED
from penstock.testing.faults.machine import SOUND, Life, Store
from penstock.testing.faults.oracle import compare, outcome_of
from penstock.testing.faults.scenario import scenario_of
from penstock.testing.faults.shapes import SHAPES
from penstock.testing.faults.simulate import Clean, clean_run, simulate

SEEDS = range(1000, 1030)
TWO_DRIVERS = ("the commit overwrites", "the sweep ignores epochs")


def racing(store: Store) -> float:
    """Return how often two drivers run; some faults can only be seen by the second."""
    return 1.0 if store.name in TWO_DRIVERS else 0.0


@pytest.mark.parametrize("store", BROKEN, ids=lambda store: store.name)
def test_a_broken_store_is_noticed(store: Store) -> None:
    assert any(simulate(seed, store, racing=racing(store)).odd for seed in SEEDS)


@pytest.mark.parametrize("share", [0.0, 1.0], ids=["one driver", "two drivers"])
def test_the_sound_store_passes_the_same_seeds(share: float) -> None:
    for seed in SEEDS:
        odd = simulate(seed, racing=share).odd
        assert not odd, (seed, odd.notes)


@pytest.mark.parametrize(("store", "noticed"), [(SOUND, True), (UNCHECKED, False)])
def test_only_a_checked_manifest_shows_its_damage(store: Store, noticed: bool) -> None:
    clean = clean_run(50)
    epoch = clean.scenario.epochs - 1
    disk = clean.snapshots[epoch].disk.copy()
    path = f"{clean.machine.checkpoint}/penstock/manifests/{epoch:012d}.json"
    data = disk.read(path)
    disk.unlink(path)
    damaged = data.replace(b'"read":', b'"read":1')
    assert damaged != data
    disk.create(path, damaged, sync=True)
    machine = clean.snapshots[epoch].machine(clean.scenario, store, epoch)
    with machine.in_use():
        if noticed:
            with pytest.raises(CheckpointError, match="damaged"):
                Life(machine, disk)
        else:
            Life(machine, disk)
            assert compare(clean.outcome(epoch), outcome_of(machine, LocalFiles(disk)))


@pytest.mark.parametrize("kind", SHAPES)
def test_a_clean_run_is_what_the_raw_rows_say(kind: str) -> None:
    clean = Clean(scenario_of(7, kind=kind))
    assert not clean.odd, clean.odd.notes
    outcome = clean.outcome(clean.scenario.epochs - 1)
    assert outcome.written > 5
    assert {"late 0", "dead 0"} <= set(outcome.rows)
    assert outcome.facts["totals"]["refused"] > 1
    assert any(clean.outcome(epoch).state[name] for epoch in (3, 5) for name in outcome.state)


def test_a_trial_is_a_value_of_its_seed() -> None:
    once, twice = simulate(1007, racing=1.0), simulate(1007, racing=1.0)
    assert (once.crashes, once.fenced) == (twice.crashes, twice.fenced)
    assert len(once.recovery_ms) == len(twice.recovery_ms)


def test_lost_doubled_and_differing_rows_are_told_apart() -> None:
    clean = clean_run(50)
    outcome = clean.outcome(clean.scenario.epochs - 1)
    name = next(name for name in outcome.rows if name.startswith("sink"))
    epoch, rows = next((e, r) for e, r in outcome.rows[name].items() if r)

    def with_rows(changed: list[dict[str, object]]) -> object:
        given = {**outcome.rows, name: {**outcome.rows[name], epoch: changed}}
        odd = compare(outcome, type(outcome)(epoch=outcome.epoch, rows=given, facts=outcome.facts,
                                             state=outcome.state))  # fmt: skip
        return odd.lost, odd.duplicated, odd.differing

    assert with_rows(rows) == (0, 0, 0)
    assert with_rows(rows[1:]) == (1, 0, 0)
    assert with_rows([*rows, rows[0]]) == (0, 1, 0)
    assert with_rows([*rows, {"k": random.Random(1).random()}]) == (0, 0, 1)
