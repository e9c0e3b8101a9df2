"""Open state: the checkpoint alone gives the frame, also while the query runs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import penstock as ps
import penstock.driver.inspect as module
from penstock.base.errors import CheckpointError
from penstock.driver.inspect import StateError, operators, read_state
from penstock.files.place import Place, place_of
from penstock.query.stream import Sinks
from penstock.state.manifests import ManifestLog
from penstock.state.segments import read_segment
from penstock.testing import TestStream

SCHEMA: dict[str, Any] = {"k": pl.String, "g": pl.Int64, "f": pl.Float64, "ts": pl.Datetime}
FIRST = datetime(2024, 1, 1)


def rows(epoch: int) -> list[dict[str, Any]]:
    return [
        {
            "k": [None, "a", "b"][i % 3],
            "g": i % 2,
            "f": [0.0, 1.5, -0.0][i % 3],
            "ts": FIRST + timedelta(seconds=10 * epoch + i),
        }
        for i in range(10)
    ]


def query(by: str | list[str] = "k", **values: Any) -> Sinks:
    stream = ps.from_rows([], schema=SCHEMA, time="ts", delay="1 hour")
    values = values or {
        "n": "count(*)", "most": "max(g)", "mean": "avg(f)", "one": pl.lit(1).sum()
    }  # fmt: skip
    return stream.aggregate(by=by, window=ps.tumbling("1 minute"), **values).write_memory()


def run(sinks: Sinks, epochs: int = 9, **options: Any) -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as folder:
        with TestStream(sinks, Path(folder), **options) as stream:
            for epoch in range(epochs):
                stream.add(rows(epoch))
        yield place_of(folder) / "penstock"


@pytest.fixture
def root() -> Iterator[Place]:
    yield from run(query(), instances=2)


def test_partials_are_merged_per_key_and_pane(root: Place) -> None:
    frame = read_state(root)
    everything = pl.DataFrame([row for e in range(9) for row in rows(e)], schema=SCHEMA)
    expected = everything.group_by("k", pane_start=pl.col("ts").dt.truncate("1m")).agg(
        pl.len().cast(pl.Int64).alias("p0"),
        pl.col("g").max().alias("p1"),
        pl.col("f").sum().alias("p2_sum"),
    )
    by = ["k", "pane_start"]
    assert frame.select(expected.columns).sort(by).equals(expected.sort(by))
    assert frame["p3"].to_list() == [1] * frame.height, "a literal is no column to sum"


def test_one_key(root: Place) -> None:
    everything = read_state(root)
    for key in ("a", ("b",), {"k": "b"}, {"k": None}):
        value = key["k"] if isinstance(key, dict) else key[0] if isinstance(key, tuple) else key
        expected = everything.filter(pl.col("k").eq_missing(value))
        assert expected.height == 2
        assert read_state(root, key=key).sort("pane_start").equals(expected.sort("pane_start"))
    assert read_state(root, key="nobody").height == 0


def test_only_the_bucket_of_a_key_is_looked_at(
    root: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def watched(folder: Place, ref: Any, buckets: Any) -> pl.DataFrame:
        seen.append(len(list(buckets)))
        return read_segment(folder, ref, buckets)

    monkeypatch.setattr(module, "read_segment", watched)
    read_state(root, key="a")
    assert set(seen) == {0, 1}


def test_several_key_columns_keep_their_order() -> None:
    for root in run(query(["k", "g"])):
        assert operators(root)["aggregate-0"].by == ("k", "g")
        assert read_state(root, key=("a", 1))["p0"].sum() == 18
        assert read_state(root, key={"g": "1", "k": "a"})["p0"].sum() == 18


@pytest.mark.parametrize("key", [0.0, -0.0, 0])
def test_zero_has_one_sign(key: float) -> None:
    for root in run(query("f")):
        assert read_state(root, key=key)["p0"].sum() == 63


def test_rows_that_are_kept() -> None:
    for root in run(query("g", middle="median(f)")):
        frame = read_state(root, key=1)
        assert frame.columns == ["g", "pane_start", "f"]
        assert frame.height == 45


def test_an_ordered_sink() -> None:
    stream = ps.from_rows([], schema=SCHEMA, time="ts", delay="1 hour")
    for root in run(stream.select("g").write_memory(ordered=True)):
        assert read_state(root, "sink-0").columns == ["g"]
        with pytest.raises(StateError, match="its key columns: none"):
            read_state(root, key=1)


def test_the_past(root: Place) -> None:
    assert read_state(root, epoch=0)["p0"].sum() == 10
    assert read_state(root, epoch=5)["p0"].sum() == 60
    with pytest.raises(StateError, match=r"epoch 99 is not kept; epochs 0 to 8 can be read"):
        read_state(root, epoch=99)


def test_questions_without_an_answer(root: Place) -> None:
    with pytest.raises(StateError, match="stateful operators: aggregate-0"):
        read_state(root, "aggregate-7")
    with pytest.raises(StateError, match="its key columns: k"):
        read_state(root, key=("a", "b"))
    with pytest.raises(CheckpointError, match="no query has run on it"):
        read_state(root / "elsewhere")
    for other in run(query("g")):
        with pytest.raises(StateError, match="key g='x' is no Int64"):
            read_state(other, key="x")


def test_several_operators_are_named() -> None:
    stream = ps.from_rows([], schema=SCHEMA, time="ts")
    counted = stream.aggregate(by="k", window=ps.tumbling("1 minute"), n="count(*)")
    for root in run(counted.write_memory(ordered=True), epochs=2):
        with pytest.raises(StateError, match="name an operator; stateful operators: aggregate-0"):
            read_state(root)


class Retiring(ManifestLog):
    """Manifests of a query that runs: once an epoch was read, it is retired and another comes."""

    def read(self, epoch: int) -> Any:
        manifest = super().read(epoch)
        if manifest is not None and epoch == 7:
            for operator, name in manifest.segment_names():
                (self.folder.parent / "state" / operator / name).delete()
            self.place(7).delete()
        return manifest


def test_files_that_are_retired_while_they_are_read(
    root: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for the newest, the next newest will do; asked for an epoch, it has to be said."""
    monkeypatch.setattr(module, "ManifestLog", Retiring)
    with pytest.raises(CheckpointError, match=r"epoch 7 was retired.*retainSeconds"):
        read_state(root, epoch=7)


def test_the_newest_is_read_again(root: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = ManifestLog(root).read(8)
    calls: list[int] = []

    class Moving(ManifestLog):
        def newest(self) -> Any:
            calls.append(1)
            return self.read(3) if len(calls) == 1 else newest

    for operator, name in ManifestLog(root).read(3).segment_names() - newest.segment_names():  # type: ignore[union-attr]
        (root / "state" / operator / name).delete()
    monkeypatch.setattr(module, "ManifestLog", Moving)
    assert read_state(root)["p0"].sum() == 90
    assert len(calls) == 2


def test_damage_is_not_taken_for_retirement(root: Place) -> None:
    (_, name), *_ = sorted(ManifestLog(root).newest().segment_names())  # type: ignore[union-attr]
    (root / "state" / "aggregate-0" / name).delete()
    with pytest.raises(CheckpointError, match="missing"):
        read_state(root)
