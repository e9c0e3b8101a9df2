"""Histories pass on the driver as it is, and catch drivers that are broken on purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.campaigns import histories
from penstock.testing.faults.broken import FORGETFUL
from penstock.testing.faults.histories import STEPS, History, live
from penstock.testing.faults.machine import SOUND, Store

SEEDS = range(40)


def history(seed: int, folder: Path, store: Store = SOUND) -> History:
    place = folder / str(seed)
    place.mkdir()
    return live(seed, place, store)


@pytest.mark.parametrize("store", FORGETFUL, ids=lambda store: store.name)
def test_a_forgetful_driver_is_noticed(store: Store, tmp_path: Path) -> None:
    assert any(history(seed, tmp_path, store).odd for seed in SEEDS)


def test_the_driver_as_it_is_passes(tmp_path: Path) -> None:
    found = [history(seed, tmp_path) for seed in range(8)]
    assert [h.odd.notes for h in found if h.odd] == []
    assert all(h.steps == STEPS for h in found)
    assert sum(h.crashes for h in found) > 5
    assert sum(h.refused for h in found) > 5
    assert len({step for h in found for step in h.told}) > 9, "some steps were never taken"


def test_a_history_is_a_value_of_its_seed(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    once, twice = history(3, tmp_path), history(3, tmp_path / "again")
    assert (once.told, once.crashes, once.refused) == (twice.told, twice.crashes, twice.refused)


def test_the_campaign_counts_what_it_does() -> None:
    lines: list[str] = []
    result = histories.run(2, 5, lines.append)
    assert result.passed, (result.as_dict(), lines)
    assert (result.trials, result.detected > 0) == (2, True)
