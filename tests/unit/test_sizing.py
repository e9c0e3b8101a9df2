"""The first sizes of a query: pure division by cost, and sample runs that leave no trace."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.base.config import Config
from penstock.base.errors import ConfigError
from penstock.compiler import compile_query, find_candidates, heads
from penstock.control.elastic import elastic
from penstock.control.sizing import SubqueryCost, instances_for_rate, share_instances, within
from penstock.driver.sizing.sample import take_sample
from penstock.driver.sizing.sizes import (
    choose_sizes,
    first_sizes,
    heads_kept,
    is_new,
    keep_first,
    read_first,
    sizes_to_begin_with,
)
from penstock.files.place import place_of
from penstock.sources.reader import SampleError


def cost(subquery: int, load: float, *, alone: bool = False) -> SubqueryCost:
    return SubqueryCost(
        subquery=subquery, name=f"s{subquery}", rows=0.5, seconds=2 * load, alone=alone
    )


loads = st.lists(st.integers(0, 20), min_size=1, max_size=4)


@given(loads, st.integers(1, 9))
def test_no_other_division_has_a_smaller_greatest_load(found: list[int], total: int) -> None:
    costs = [cost(i, load / 10) for i, load in enumerate(found)]
    sizes = share_instances(costs, total)
    assert min(sizes.values()) >= 1
    assert sum(sizes.values()) <= max(total, len(costs))
    least = min(
        (
            max(load / 10 / n for load, n in zip(found, division, strict=True))
            for division in itertools.product(range(1, total + 1), repeat=len(found))
            if sum(division) <= max(total, len(found))
        ),
    )
    assert max(c.load / sizes[c.subquery] for c in costs) == pytest.approx(least)


def test_one_that_is_alone_stays_alone() -> None:
    costs = [cost(0, 0.1), cost(1, 5.0, alone=True)]
    assert share_instances(costs, 6) == {0: 5, 1: 1}
    assert instances_for_rate(costs, 100.0) == {0: 17, 1: 1}
    assert within({0: 5, 1: 1}, costs, 2, 4) == {0: 4, 1: 1}
    assert within({0: 1, 1: 1}, costs, 2, 4) == {0: 2, 1: 1}


def test_a_rate_needs_what_keeps_instances_at_the_target() -> None:
    costs = [cost(0, 1e-6), cost(1, 0.0)]
    assert instances_for_rate(costs, 3e6, target=0.6) == {0: 5, 1: 1}
    assert instances_for_rate(costs, 3e6, target=0.6, cores=0.5) == {0: 10, 1: 1}
    for wrong in ({"rate": 0.0}, {"rate": 1.0, "target": 0.0}, {"rate": 1.0, "target": 1.5}):
        with pytest.raises(ConfigError):
            instances_for_rate(costs, **wrong)
    with pytest.raises(ConfigError):
        share_instances(costs, 0)


def files(folder: Path, form: str, rows: int = 5000) -> Path:
    folder.mkdir(parents=True)
    first = datetime(2024, 1, 1)
    frame = pl.DataFrame(
        {
            "k": [f"k{i % 50}" for i in range(rows)],
            "ts": [first + timedelta(seconds=i) for i in range(rows)],
        },
        schema={"k": pl.String, "ts": pl.Datetime("us")},
    )
    writers: dict[str, Callable[[Path], Any]] = {
        "parquet": frame.write_parquet,
        "csv": frame.write_csv,
        "ndjson": frame.write_ndjson,
        "arrow": frame.write_ipc,
    }
    writers[form](folder / f"a.{form}")
    return folder


def counted(stream: ps.Stream) -> ps.Stream:
    return stream.aggregate(by="k", window=ps.tumbling("1 minute"), n="count(*)")


READ = {
    "parquet": ps.read_parquet,
    "csv": ps.read_csv,
    "ndjson": ps.read_ndjson,
    "arrow": ps.read_arrow,
}


@pytest.mark.parametrize("form", READ)
def test_a_sample_measures_every_subquery_and_leaves_no_trace(tmp_path: Path, form: str) -> None:
    folder = files(tmp_path / "in", form)
    called: list[int] = []
    results = counted(READ[form](str(folder), time="ts"))
    query = results.write_parquet(tmp_path / "out", ordered=True).also(
        results.foreach_batch(lambda frame, epoch: called.append(epoch))
    )
    before = sorted(os.listdir(tmp_path))
    found = take_sample(query.sinks)
    assert sorted(os.listdir(tmp_path)) == before
    assert os.listdir(folder) == [f"a.{form}"]
    assert called == []
    assert found.rows == 4000, "the first of five epochs warms up"
    sources, aggregate, sink = found.costs
    assert (sources.name, aggregate.name, sink.name) == ("sources", "aggregate-0", "sink-0")
    assert sources.rows == 1.0
    assert 0 < aggregate.rows <= 1.0
    assert sink.alone
    assert not sources.alone
    assert all(0 < c.seconds < 1 for c in found.costs)


def test_a_sample_looks_at_the_first_rows_only(tmp_path: Path) -> None:
    folder = files(tmp_path / "in", "parquet", rows=50_000)
    found = take_sample(counted(ps.read_parquet(folder, time="ts")).write_memory().sinks, rows=2000)
    assert found.rows == 1600


def test_two_sources_and_rows_of_the_program(tmp_path: Path) -> None:
    rows = [{"k": "a", "ts": ps.at("2024-01-01")} for _ in range(1500)]
    stream = ps.read_parquet(files(tmp_path / "in", "parquet"), time="ts")
    both = counted(stream.union(ps.from_rows(rows, time="ts"))).write_memory()
    assert take_sample(both.sinks).rows == 4000 + 1200


def test_why_there_is_no_sample_is_said(tmp_path: Path) -> None:
    schema = {"k": pl.String(), "ts": pl.Datetime("us")}
    (tmp_path / "empty").mkdir()
    empty = counted(ps.read_parquet(tmp_path / "empty", time="ts", schema=schema)).write_memory()
    with pytest.raises(SampleError, match="has no file that can be read yet"):
        take_sample(empty.sinks)
    (tmp_path / "empty" / "bad.parquet").write_bytes(b"no")
    with pytest.raises(SampleError, match="has no file that can be read yet"):
        take_sample(empty.sinks)
    few = counted(ps.read_parquet(files(tmp_path / "few", "parquet", rows=10), time="ts"))
    with pytest.raises(SampleError, match="10 rows; 1000 are needed"):
        take_sample(few.write_memory().sinks)

    def broken(frame: pl.DataFrame) -> pl.DataFrame:
        raise KeyError("mine")

    full = ps.read_parquet(files(tmp_path / "full", "parquet"), time="ts")
    bad = counted(full.apply(broken, schema=schema)).write_memory()
    found = first_sizes(bad.sinks, total=8, strategy="operator-set-cloud", buckets=16)
    assert set(found.instances.values()) == {1}
    away = counted(ps.read_parquet("s3://bucket/calls", time="ts", schema=schema)).write_memory()
    with pytest.raises(SampleError, match="not on this machine"):
        take_sample(away.sinks)


def test_first_sizes_keep_to_the_rules_and_the_buckets(tmp_path: Path) -> None:
    stream = ps.read_parquet(files(tmp_path / "in", "parquet"), time="ts")
    sinks = counted(stream).write_memory().sinks
    config = Config(buckets=16)
    assert sizes_to_begin_with(sinks, config, None, 8, auto=False) is None
    assert sizes_to_begin_with(sinks, config, elastic(policy="fixed"), 8, auto=False) is None
    plain = sizes_to_begin_with(sinks, config, None, 8, auto=True)
    assert plain is not None
    assert sum(plain.instances.values()) == 8
    bounded = sizes_to_begin_with(sinks, config, elastic(min=3, max=3), 8, auto=False)
    assert bounded is not None
    assert set(bounded.instances.values()) == {3}
    few = sizes_to_begin_with(sinks, Config(buckets=2), elastic(min=3), 8, auto=False)
    assert few is not None
    assert set(few.instances.values()) == {2}
    text = plain.describe()
    assert "from a sample of 4,000 rows" in text
    assert "subquery 1 (aggregate-0)" in text


def test_sizes_are_kept_to_be_shown(tmp_path: Path) -> None:
    root = place_of(tmp_path) / "penstock"
    assert read_first(root) is None
    assert is_new(tmp_path)
    stream = ps.read_parquet(files(tmp_path / "in", "parquet"), time="ts")
    sinks = counted(stream).write_memory().sinks
    sizes = first_sizes(sinks, total=4, strategy="operator-set-cloud", buckets=16)
    keep_first(root, sizes)
    keep_first(root, first_sizes(sinks, total=1, strategy="operator-set-cloud", buckets=16))
    assert read_first(root) == sizes
    (tmp_path / "penstock" / "sample.json").write_bytes(b"noise")
    assert read_first(root) is None


def slow(frame: pl.DataFrame) -> pl.DataFrame:
    """Take 60 us of the processor for a row."""
    until = time.process_time() + frame.height * 60e-6
    while time.process_time() < until:
        pass
    return frame


def test_a_slow_function_behind_what_cannot_be_divided_gets_instances_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = ps.read_parquet(files(tmp_path / "in", "parquet"), time="ts")
    single = stream.aggregate(window=ps.count_window(1), n="count(*)")
    sinks = single.apply(slow, schema=single.schema).write_memory().sinks
    sizes = first_sizes(sinks, total=8, strategy="operator-set-cloud", buckets=16)
    names = [cost.name for cost in sizes.costs]
    root = place_of(tmp_path) / "penstock"
    keep_first(root, sizes)
    query = compile_query(sinks, buckets=16)
    assert (names, sizes.heads) == (["sources", "aggregate-0", "apply-0"], (2,))
    assert sizes.instances[2] > 2, "most of the work is there"
    assert heads_kept(tmp_path, query) == {2}
    # How long a row takes is measured, and a busy machine takes longer; so the bound moves instead.
    monkeypatch.setattr(heads, "WORTH_SECONDS", 1.0)
    quick = first_sizes(sinks, total=8, strategy="operator-set-cloud", buckets=16)
    assert ([cost.name for cost in quick.costs], quick.heads) == (["sources", "aggregate-0"], ())
    # Another query on the checkpoint: what is number 2 now is no function.
    other = compile_query(single.filter("n > 0").write_memory().sinks)
    assert heads_kept(tmp_path, other) == frozenset()


def test_a_function_that_can_be_divided_where_it_is_stays_there() -> None:
    schema = {"k": pl.String(), "ts": pl.Datetime("us")}
    stream = ps.from_rows([], schema=schema, time="ts")
    fast = stream.apply(slow, schema=schema)
    keyed = counted(fast).apply(slow, schema=counted(fast).schema)
    whole = fast.aggregate(window=ps.tumbling("1 minute"), n="count(*)")
    query = compile_query(
        keyed.write_memory("a").also(whole.apply(slow, schema=whole.schema).write_memory("b")).sinks
    )
    (chosen_one,) = find_candidates(query)
    (subquery,) = [s for s in query.subqueries if chosen_one in s.operators]
    assert query.subquery_name(subquery.id) == "aggregate-1"


def test_what_the_user_says_about_sizes() -> None:
    auto = {"spark.penstock.instances": "auto"}
    assert choose_sizes(None, auto) == "auto"
    assert auto == {}
    assert choose_sizes(None, {"spark.penstock.instances": "3"}) == 3
    assert choose_sizes("auto", {"spark.penstock.instances": "3"}) == "auto"
    assert choose_sizes({1: 2}, {"spark.penstock.instances": "3"}) == {1: 2}
    assert choose_sizes(None, {}) is None
    with pytest.raises(ConfigError, match="'many'"):
        choose_sizes("many", {})


def test_explain_shows_the_measured_cost(tmp_path: Path) -> None:
    stream = ps.read_parquet(files(tmp_path / "in", "parquet"), time="ts")
    text = counted(stream).write_memory().explain(instances="auto")
    assert "== Sizes (from a sample of 4,000 rows) ==" in text
    assert "% of the cost -> " in text
