"""Open state and repair on Spark: what the checkpoint says, and that the query goes on exactly."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.driver.inspect import StateError
from penstock.files.place import place_of
from penstock.query.stream import Sinks
from penstock.state.care.repair import plan_repair
from penstock.state.care.repair_steps import RepairPlan, carry_out
from penstock.state.care.verify import verify
from penstock.state.manifests import Manifest, ManifestLog
from tests.spark.conftest import write_calls

pytestmark = pytest.mark.spark
FILES, MORE = 12, 15


def add_files(folder: Path, first: int, last: int) -> None:
    folder.mkdir(exist_ok=True)
    for i in range(first, last):
        write_calls(folder / f"{i:02d}.parquet", start=i * 50, rows=50, modified=1_700_000_000 + i)


def query(calls: Path, out: Path) -> Sinks:
    stream = ps.read_parquet(calls, time="ts", max_files_per_epoch=1)
    window = ps.sliding("20 minutes", every="1 minute")
    return stream.aggregate(by="src", window=window, n="count(*)", total="sum(x)").write_parquet(
        str(out)
    )


def run(spark: SparkSession, base: Path, name: str, *, finish: bool = False) -> None:
    """Run a query on all files that are there; ``finish`` ends it."""
    sinks = query(base / "calls", base / name / "out")
    handle = sinks.start(spark, checkpoint=base / name / "c", available_now=True, finish=finish)
    handle.awaitTermination()


def results(base: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(base / name / "out").drop("epoch").sort("src", "window_start")


def newest(base: Path, name: str) -> Manifest:
    found = ManifestLog(place_of(base / name / "c") / "penstock").newest()
    assert found is not None
    return found


def repaired(checkpoint: Path) -> RepairPlan:
    assert not verify(checkpoint).sound
    plan = plan_repair(checkpoint)
    assert not plan.impossible
    carry_out(plan)
    assert verify(checkpoint).findings == []
    return plan


def test_state_while_and_after_the_query_runs(spark: SparkSession, tmp_path: Path) -> None:
    add_files(tmp_path / "calls", 0, 3)
    sinks = query(tmp_path / "calls", tmp_path / "out")
    handle = sinks.start(spark, checkpoint=tmp_path / "c")
    try:
        handle.processAllAvailable()
        frame = handle.state()
        assert frame["p0"].sum() == 150
        assert handle.state("aggregate-0", key="k3").equals(frame.filter(pl.col("src") == "k3"))
        assert handle.state(epoch=0)["p0"].sum() == 50
        with pytest.raises(StateError, match="epochs 0 to 2 can be read"):
            handle.state(epoch=7)
        assert verify(tmp_path / "c").sound
    finally:
        handle.stop()
    assert handle.state().equals(frame)


def merged(base: Path, name: str) -> Path:
    names = [
        (operator, ref.name)
        for operator, refs in newest(base, name).segments.items()
        for ref in refs
        if ref.merged
    ]
    operator, segment = names[-1]
    return base / name / "c" / "penstock" / "state" / operator / segment


def test_after_a_repair_the_query_goes_on_exactly(spark: SparkSession, tmp_path: Path) -> None:
    """Cases a (inputs), b (back by some epochs) and d (the newest manifest), beside a clean run."""
    add_files(tmp_path / "calls", 0, FILES)
    for name in ("clean", "inputs", "back", "manifest"):
        run(spark, tmp_path, name)
        assert verify(tmp_path / name / "c").findings == []

    merged(tmp_path, "inputs").write_bytes(b"damaged")
    plan = repaired(tmp_path / "inputs" / "c")
    assert plan.back_to == plan.newest == FILES - 1
    assert "replaced by its" in newest(tmp_path, "inputs").repaired

    plain = [
        ref.name
        for refs in newest(tmp_path, "back").segments.values()
        for ref in refs
        if not ref.merged
    ]
    segment = tmp_path / "back" / "c" / "penstock" / "state" / "aggregate-0" / min(plain)
    os.truncate(segment, 100)
    plan = repaired(tmp_path / "back" / "c")
    assert plan.back_to == int(min(plain)[:12]) - 1 < FILES - 1
    offsets = tmp_path / "back" / "c" / "spark" / "offsets"
    assert max(int(p.name) for p in offsets.iterdir() if p.name.isdigit()) == plan.back_to + 1

    path = tmp_path / f"manifest/c/penstock/manifests/{FILES - 1:012d}.json"
    path.write_bytes(path.read_bytes()[:-7])
    assert repaired(tmp_path / "manifest" / "c").back_to == FILES - 2

    add_files(tmp_path / "calls", FILES, MORE)
    for name in ("clean", "inputs", "back", "manifest"):
        run(spark, tmp_path, name, finish=True)
    expected = results(tmp_path, "clean")
    totals = newest(tmp_path, "clean").totals
    assert totals["read"] == MORE * 50
    for name in ("inputs", "back", "manifest"):
        assert results(tmp_path, name).equals(expected), name
        assert newest(tmp_path, name).totals == totals
        assert verify(tmp_path / name / "c").findings == []


def test_a_log_of_spark_is_verified(spark: SparkSession, tmp_path: Path) -> None:
    add_files(tmp_path / "calls", 0, 2)
    run(spark, tmp_path, "one")
    checkpoint = tmp_path / "one" / "c"
    path = checkpoint / "spark" / "commits" / "1"
    text = path.read_text()
    assert json.loads(text.split("\n")[1])["nextBatchWatermarkMs"] == 0
    path.write_text(text.replace(":0", ":7"))
    (item,) = verify(checkpoint).findings
    assert item.path == "spark/commits/1"
    assert "checksum" in item.wrong
    repaired(checkpoint)
    add_files(tmp_path / "calls", 2, 3)
    run(spark, tmp_path, "one", finish=True)
    assert newest(tmp_path, "one").totals["read"] == 150
