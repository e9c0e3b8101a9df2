"""A checkpoint to look into: prepared once for a module, fresh for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.testing.faults.specimens import Specimen


@pytest.fixture(scope="module")
def specimen(tmp_path_factory: pytest.TempPathFactory) -> Specimen:
    found = Specimen(folder=tmp_path_factory.mktemp("specimen"), state="stopped")
    found.prepare()
    return found


@pytest.fixture
def home(specimen: Specimen) -> Path:
    specimen.fresh()
    return specimen.home
