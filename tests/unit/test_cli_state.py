"""``penstock state``: data on stdout, messages on stderr, exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import penstock.state.care.repair_steps as steps
from penstock.cli.app import app


def penstock(*arguments: Any) -> Result:
    return CliRunner().invoke(app, ["state", *map(str, arguments)])


def as_json(*arguments: Any, code: int = 0) -> Any:
    done = penstock(*arguments, "--json")
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def damage(path: Path) -> None:
    path.unlink()
    path.write_bytes(b"damaged")


def test_ls(home: Path) -> None:
    found = as_json("ls", home)
    assert found["newest_epoch"] == 10
    assert found["committed_at"] == "1970-01-01 00:18:20"
    assert found["totals"]["late"] == 5
    assert {sink["state"] for sink in found["sinks"]} == {"published"}
    assert [operator["operator"] for operator in found["operators"]] == ["aggregate-0", "sink-0"]
    assert found["operators"][0]["segments"] > 2
    shown = penstock("ls", home)
    assert "newest epoch   10" in shown.stdout
    assert shown.stderr == ""


def test_show(home: Path, tmp_path: Path) -> None:
    found = as_json("show", home, "--operator", "aggregate-0", "--rows", 3)
    assert found["columns"] == ["k", "pane_start", "p0", "p1", "p2_low", "p2_high"]
    assert len(found["data"]) == 3 < found["rows"]
    one = as_json("show", home, "--operator", "aggregate-0", "--key", "a")
    same = as_json("show", home, "--operator", "aggregate-0", "--key", "k=a")
    assert one == same
    assert {row["k"] for row in one["data"]} == {"a"}
    past = as_json("show", home, "--operator", "aggregate-0", "--key", "a", "--epoch", 6)
    assert past != one
    shown = penstock("show", home, "--operator", "aggregate-0", "--rows", 3)
    assert "pane_start" in shown.stdout
    assert "--rows shows more" in shown.stderr
    for ending, read in (
        (".parquet", pl.read_parquet),
        (".csv", pl.read_csv),
        (".arrow", pl.read_ipc),
    ):
        path = tmp_path / f"state{ending}"
        done = penstock("show", home, "--operator", "aggregate-0", "--output", path)
        assert done.stdout == ""
        assert read(path).height == found["rows"]


def test_show_says_what_is_wrong(home: Path, tmp_path: Path) -> None:
    for arguments, text in (
        ((home,), "name an operator; stateful operators: aggregate-0, sink-0"),
        ((home, "--operator", "x"), "no stateful operator 'x'"),
        ((home, "--operator", "aggregate-0", "--epoch", 1), "epoch 1 is not kept"),
        ((home, "--operator", "aggregate-0", "--output", "x.txt"), "unknown format"),
        ((tmp_path,), "no checkpoint of Penstock"),
    ):
        done = penstock("show", *arguments)
        assert done.exit_code == 1
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert text in done.stderr.replace("\n", " ")
        assert as_json("show", *arguments, code=1)["ok"] is False


def test_history(home: Path) -> None:
    past = as_json("history", home)
    assert [row["epoch"] for row in past] == [5, 6, 7, 8, 9, 10]
    assert past[0]["read"] is None, "what epoch 5 added is not known without epoch 4"
    assert past[1]["read"] == 12
    assert past[-1]["watermark"].startswith("2026-01-01")
    damage(home / "penstock" / "manifests" / "000000000007.json")
    assert as_json("history", home)[2] == {"epoch": 7, "manifest_bytes": 7, "damaged": True}
    assert "committed at" in penstock("history", home).stdout


def test_verify_and_repair(home: Path) -> None:
    assert penstock("verify", home).exit_code == 0
    assert as_json("verify", home)["ok"]
    path = next((home.parent / "raw" / "epoch=0000000010").iterdir())
    damage(path)
    done = penstock("verify", home)
    assert done.exit_code == 1
    assert path.name in done.stdout
    assert "means: " in done.stdout
    assert "hint: " in done.stderr
    assert as_json("verify", home, code=1)["findings"][0]["kind"] == "published"
    planned = penstock("repair", home, "--dry-run")
    assert planned.exit_code == 0
    assert "set aside: penstock/manifests/000000000010.json" in planned.stdout
    assert "foreach_batch" in planned.stdout
    assert path.exists()
    found = as_json("repair", home)
    assert found["back_to"] == 9
    assert not path.exists()
    kept = Path(found["quarantine"])
    assert (kept / "penstock" / "manifests" / "000000000010.json").exists()
    assert [p.name for p in kept.rglob("part-*")] == [path.name]
    assert penstock("verify", home).exit_code == 0
    assert "nothing to repair" in penstock("repair", home).stderr


def test_repair_says_what_is_impossible(home: Path) -> None:
    for path in (home / "penstock" / "state").rglob("*.arrow"):
        damage(path)
    done = penstock("repair", home)
    assert done.exit_code == 1
    assert "none is whole" in done.stderr
    assert not (home / "penstock" / "quarantine").exists()


def test_repair_refuses_while_the_query_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "seems_to_run", lambda checkpoint: True)
    damage(home / "penstock" / "pinned" / "000000000001.json")
    done = penstock("repair", home)
    assert done.exit_code == 1
    assert "seems to be running" in done.stderr
    assert penstock("repair", home, "--force").exit_code == 0
