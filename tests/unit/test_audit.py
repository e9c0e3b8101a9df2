"""The audit agrees with a sound run, and names what parts in any other."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.files.place import place_of
from penstock.sinks.epochs import epoch_name
from penstock.sinks.staged import parquet_bytes
from penstock.state.care.audit import audit
from penstock.state.manifests import Manifest, ManifestLog
from penstock.testing.faults.specimens import Specimen
from tests.unit.test_owners import begin, feed


@pytest.fixture(scope="module")
def specimen(tmp_path_factory: pytest.TempPathFactory) -> Specimen:
    found = Specimen(tmp_path_factory.mktemp("audit"), "stopped")
    found.prepare()
    return found


@pytest.fixture
def live(specimen: Specimen) -> Path:
    specimen.fresh()
    return specimen.live


def home(live: Path) -> Path:
    return live / "checkpoint"


def rewrite(live: Path, change: Callable[[Manifest], Manifest]) -> None:
    """Change the newest manifest, seal and all."""
    log = ManifestLog(place_of(home(live)) / "penstock")
    newest = log.newest()
    assert newest is not None
    log.place(newest.epoch).delete()
    log.place(newest.epoch).write_new(change(newest).to_bytes())


def counted(name: str, rows: int) -> Callable[[Manifest], Manifest]:
    return lambda m: replace(m, totals={**m.totals, name: m.totals[name] + rows})


def test_a_sound_run_agrees_epoch_by_epoch_and_in_all(live: Path, specimen: Specimen) -> None:
    found = audit(home(live))
    assert (found.partings, found.missing) == ([], [])
    assert [e.state for e in found.epochs] == ["published"] * len(found.epochs)
    assert all(e.handed_out == e.read for e in found.epochs[1:])
    assert sum(e.handed_out or 0 for e in found.epochs) > 50
    assert {o.output.rpartition("/")[2] for o in found.outputs} == {"out", "raw", "0", "memory few"}
    assert sum(e.refused or 0 for e in found.epochs) > 0
    assert sum(e.late or 0 for e in found.epochs) > 0
    specimen.go_on()
    assert audit(home(live)).partings == []


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        (counted("read", 1), "input", r"handed out \d+ rows and \d+ were read"),
        (counted("processed", -1), "rows", "rows were read and"),
        (counted("late", 1), "late", "counted as late"),
        (counted("written", 2), "written", "counted as written"),
        (counted("refused", 1), "refused", "refused rows: 2; dead letters: 1"),
    ],
)
def test_counts_that_part_are_named(
    live: Path, change: Callable[[Manifest], Manifest], kind: str, text: str
) -> None:
    rewrite(live, change)
    found = audit(home(live))
    assert not found.agrees
    (parting,) = [p for p in found.partings if p.kind == kind]
    assert parting.epoch == found.newest
    assert re.search(text, parting.text)


def test_rows_that_are_lost_or_doubled_in_a_folder_are_named(live: Path) -> None:
    newest = audit(home(live)).newest
    folder = live / "raw" / epoch_name(newest)
    (part,) = folder.iterdir()
    frame = pl.read_parquet(part, hive_partitioning=False)
    for rows in (frame.head(1), pl.concat([frame, frame])):
        part.unlink()
        part.write_bytes(parquet_bytes(rows))
        found = audit(home(live))
        wrong = [p for p in found.partings if p.where == str(folder)]
        assert [p.kind for p in wrong] == ["output"]
        assert f"{frame.height} rows were written and {rows.height} are" in wrong[0].text
        assert any(p.where == str(live / "raw") for p in found.partings), "the sum disagrees, too"


def test_old_epochs_are_audited_by_their_sum(tmp_path: Path) -> None:
    run = begin(tmp_path)
    run.driver.retention.epochs, run.driver.retention.seconds = 1, -1
    feed(run, *range(8))
    assert len(audit(tmp_path / "ck").epochs) == 2
    old = tmp_path / "out" / epoch_name(1)
    (part,) = old.iterdir()
    part.unlink()
    part.write_bytes(parquet_bytes(pl.DataFrame({"a": [1, 2]})))
    (parting,) = audit(tmp_path / "ck").partings
    assert "8 rows in 8 epochs were written, 0 wait, and 9 in 8 epochs are there" in parting.text
    shutil.rmtree(old)
    found = audit(tmp_path / "ck")
    assert found.agrees
    assert [(p.kind, p.rows) for p in found.missing] == [("missing", 1)]
    shutil.copytree(tmp_path / "out" / epoch_name(2), tmp_path / "out" / epoch_name(99))
    (parting,) = audit(tmp_path / "ck").partings
    assert "the checkpoint's newest epoch is 7" in parting.text


def test_what_waits_to_be_published_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin(tmp_path)
    feed(run, 1)
    with monkeypatch.context() as patch:
        patch.setattr(type(run.driver), "_publish", lambda *_, **__: None)
        feed(run, 2)
    found = audit(tmp_path / "ck")
    assert (found.agrees, found.epochs[-1].state, found.outputs[0].waiting) == (True, "waiting", 1)
    begin(tmp_path)
    assert audit(tmp_path / "ck").outputs[0].rows_there == 2


def test_a_folder_shared_by_append_is_audited_by_owner(tmp_path: Path) -> None:
    feed(begin(tmp_path, "old"), 1, 2)
    feed(begin(tmp_path, "new", mode="append"), 3)
    for name, rows in (("old", 2), ("new", 1)):
        found = audit(tmp_path / name)
        assert found.agrees, found.partings
        assert found.outputs[0].rows_there == rows


def test_the_command_tells_by_its_exit_code(tmp_path: Path) -> None:
    feed(begin(tmp_path), 1, 2)
    arguments = ["audit", str(tmp_path / "ck")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "handed out" in result.stdout
    shutil.rmtree(tmp_path / "out" / epoch_name(0))
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert (result.exit_code, json.loads(result.stdout)["missing"][0]["rows"]) == (0, 1)
    assert CliRunner().invoke(app, [*arguments, "--strict"]).exit_code == 1
    (part,) = (tmp_path / "out" / epoch_name(1)).iterdir()
    part.write_bytes(parquet_bytes(pl.DataFrame({"a": [1, 2]})))
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert (result.exit_code, json.loads(result.stdout)["ok"]) == (1, False)
    assert CliRunner().invoke(app, ["audit", str(tmp_path / "nothing")]).exit_code == 1
