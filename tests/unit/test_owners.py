"""A sink's folder belongs to one checkpoint: what is refused, appended, overwritten, restored."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import penstock as ps
from penstock.base.errors import OutputError, QueryError
from penstock.compiler import compile_query
from penstock.files.place import place_of
from penstock.sinks import owners
from penstock.sinks.epochs import epochs_in
from penstock.sinks.owners import Claimant, claim_folder, claims_folder, newest_claim
from penstock.sinks.publish import publish_folder
from penstock.testing.runner import LocalRun

SCHEMA: dict[str, Any] = {"a": pl.Int64, "ts": pl.Datetime("us")}


def begin(
    folder: Path, checkpoint: str = "ck", *, mode: str = "error", out: str = "out", **options: Any
) -> LocalRun:
    stream = ps.from_rows([], schema=SCHEMA, time="ts").select("a", "ts")
    sinks = stream.write_parquet(folder / out, mode=mode, **options).sinks
    return LocalRun(compile_query(sinks), folder / checkpoint)


def feed(run: LocalRun, *numbers: int) -> None:
    """Run an epoch of one row for each number."""
    for number in numbers:
        row = {"a": number, "ts": ps.at(f"2024-01-01 00:{number:02d}:00")}
        run.epoch({0: [pl.DataFrame([row], schema=SCHEMA)]})


def held(folder: Path) -> list[int]:
    """Return what a plain reader of the folder gets."""
    return pl.scan_parquet(folder).collect()["a"].to_list()


def numbers(folder: Path) -> list[int]:
    return list(epochs_in(place_of(folder)))


def test_a_new_checkpoint_is_refused_an_old_folder_by_name(tmp_path: Path) -> None:
    feed(begin(tmp_path), 1, 2)
    shutil.rmtree(tmp_path / "ck")
    with pytest.raises(OutputError) as caught:
        begin(tmp_path)
    for word in (str(tmp_path / "out"), "epochs (0 to 1)", "mode='append'", "mode='overwrite'"):
        assert word in str(caught.value)
    assert held(tmp_path / "out") == [1, 2]


def test_epochs_without_a_claim_are_refused_too(tmp_path: Path) -> None:
    feed(begin(tmp_path), 1)
    shutil.rmtree(tmp_path / "ck")
    shutil.rmtree(tmp_path / ".out.owners")
    with pytest.raises(OutputError, match="another query"):
        begin(tmp_path)


def test_a_folder_without_epochs_is_free_once_its_checkpoint_is_gone(tmp_path: Path) -> None:
    begin(tmp_path, "first")
    with pytest.raises(OutputError, match=r"belongs to the query of checkpoint .*first"):
        begin(tmp_path, "second")
    shutil.rmtree(tmp_path / "first")
    feed(begin(tmp_path, "second"), 3)
    assert held(tmp_path / "out") == [3]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_new_checkpoint_goes_on_after_the_old_epochs_or_in_their_place(
    tmp_path: Path, mode: str
) -> None:
    feed(begin(tmp_path), 1, 2)
    shutil.rmtree(tmp_path / "ck")
    feed(begin(tmp_path, mode=mode), 3)
    before = [1, 2] if mode == "append" else []
    assert held(tmp_path / "out") == [*before, 3]
    feed(begin(tmp_path, mode=mode), 4)
    assert held(tmp_path / "out") == [*before, 3, 4], "a start that goes on removes nothing"
    feed(begin(tmp_path), 5)
    assert held(tmp_path / "out") == [*before, 3, 4, 5], "nor does it need the mode again"


def test_a_folder_that_was_taken_over_is_not_written_by_the_old_query(tmp_path: Path) -> None:
    old = begin(tmp_path, "old")
    feed(old, 1)
    new = begin(tmp_path, "new", mode="append")
    with pytest.raises(OutputError, match="has taken it over"):
        feed(old, 2)
    feed(new, 3)
    assert held(tmp_path / "out") == [1, 3]
    for mode in ("error", "append", "overwrite"):  # its epoch has no place there any more
        with pytest.raises(OutputError, match="can no longer be published"):
            begin(tmp_path, "old", mode=mode)
    feed(new, *range(4, 40))
    assert list(tmp_path.glob(".out.staging-*/*.parquet")), "another's sweep took what waits"


def test_an_epoch_that_the_old_query_was_about_to_publish_meets_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.sinks import folder

    old = begin(tmp_path, "old")
    feed(old, 1)
    new = begin(tmp_path, "new", mode="append")
    monkeypatch.setattr(folder, "check_owner", lambda *_: None)  # it looked just before
    feed(old, 2)
    feed(new, 3)
    assert held(tmp_path / "out") == [1, 2, 3]


def test_restoring_and_moving_keep_the_folder(tmp_path: Path) -> None:
    feed(begin(tmp_path), 1)
    shutil.move(tmp_path / "ck", tmp_path / "moved")
    feed(begin(tmp_path, "moved"), 2)
    shutil.rmtree(tmp_path / ".out.owners")  # a copy of the folder alone was put back
    feed(begin(tmp_path, "moved"), 3)
    assert held(tmp_path / "out") == [1, 2, 3]


def test_a_sink_that_comes_later_appends_without_a_gap(tmp_path: Path) -> None:
    feed(begin(tmp_path), 1, 2)
    shutil.move(tmp_path / "out", tmp_path / "kept")
    with pytest.raises(OutputError, match="another query"):
        begin(tmp_path, out="kept")
    feed(begin(tmp_path, out="kept", mode="append"), 3)
    assert (held(tmp_path / "kept"), numbers(tmp_path / "kept")) == ([1, 2, 3], [0, 1, 2])


def test_a_crash_while_clearing_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(begin(tmp_path), 1, 2, 3)
    shutil.rmtree(tmp_path / "ck")
    with monkeypatch.context() as patch:
        patch.setattr(owners, "_remove", lambda folder: (_ for _ in ()).throw(OSError("died")))
        with pytest.raises(OutputError, match="died"):
            begin(tmp_path, mode="overwrite")
    run = begin(tmp_path)  # the claim remembers what was begun
    feed(run, 4)
    assert held(tmp_path / "out") == [4]
    assert sorted(p.suffix for p in (tmp_path / ".out.owners").iterdir()) == [".json"] * 3
    shutil.copytree(tmp_path / "out/epoch=0000000004", tmp_path / "out/epoch=0000000000")
    begin(tmp_path, mode="overwrite")
    assert numbers(tmp_path / "out") == [0, 4], "it is removed once, not at every start"


def test_claims_are_few_and_the_newest_counts(tmp_path: Path) -> None:
    target = place_of(tmp_path / "out")
    for i in range(30):
        claim_folder(target, Claimant(owner=f"q{i}", checkpoint=f"/gone/{i}", mode="append"))
    newest = newest_claim(target)
    assert newest is not None
    assert newest.owner == "q29"
    assert len(claims_folder(target).list()) == owners._KEPT


def test_readers_get_the_epochs_of_an_ordered_output_in_order(tmp_path: Path) -> None:
    run = begin(tmp_path, ordered=True)
    feed(run, *range(12))
    run.finish()
    out = tmp_path / "out"
    assert held(out) == list(range(12))
    found = pl.scan_parquet(out).filter(pl.col("epoch") == 11).collect()
    assert (found["a"].to_list(), found.schema["epoch"]) == ([10], pl.Int64())
    query = f"SELECT a FROM read_parquet('{out}/*/*.parquet', hive_types={{'epoch': BIGINT}})"
    rows = duckdb.execute(query).fetchall()
    assert [a for (a,) in rows] == list(range(12))
    assert duckdb.execute(f"{query} WHERE epoch = 11").fetchall() == [(10,)]


def test_two_sinks_of_a_query_have_two_folders(tmp_path: Path) -> None:
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    both = stream.write_parquet(tmp_path / "out").also(stream.write_parquet(f"{tmp_path}/out/"))
    with pytest.raises(QueryError, match="two sinks write to the same parquet"):
        compile_query(both.sinks)
    with pytest.raises(QueryError, match="mode='replace'; allowed: error, append, overwrite"):
        stream.write_parquet(tmp_path / "out", mode="replace")


def test_a_folder_that_is_moved_away_is_made_again(tmp_path: Path) -> None:
    run = begin(tmp_path)
    feed(run, 1, 2)
    shutil.move(tmp_path / "out", tmp_path / "moved")
    feed(run, 3)
    shutil.move(tmp_path / "out", tmp_path / "again")
    feed(begin(tmp_path), 4)
    found = [held(tmp_path / name) for name in ("moved", "again", "out")]
    assert found == [[1, 2], [3], [4]]


def test_files_that_vanish_before_they_are_published_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.sinks import folder

    run, publish = begin(tmp_path), publish_folder
    feed(run, 1)
    (staging,) = tmp_path.glob(".out.staging-*")

    def moved_before(*arguments: Any) -> None:
        shutil.move(staging, tmp_path / "elsewhere")
        publish(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(folder, "publish_folder", moved_before)
        with pytest.raises(OutputError, match=r"out'.*moved or removed while the query ran"):
            feed(run, 2)
    shutil.move(tmp_path / "elsewhere", staging)
    feed(begin(tmp_path), 3)
    assert held(tmp_path / "out") == [1, 2, 3]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OutputError, match="cannot be written") as caught:
        begin(tmp_path, out="file/out")
    assert str(tmp_path / "file/out") in str(caught.value)
