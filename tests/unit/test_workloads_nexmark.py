"""Nexmark's queries, in Python and in SQL, against what DuckDB says over all rows at once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import polars as pl
import pytest

import penstock as ps
from bench.batch import nexmark as judge
from bench.compare import frame_difference
from bench.local import run_streams
from penstock.workloads.nexmark import QUERIES, House, Market
from penstock.workloads.nexmark_sql import TEXTS, UNSAID, in_sql

SHAPES = {
    "seconds": Market(rows=6_000, per_second=60.0),
    "days": Market(rows=6_000, per_second=0.04, disorder_seconds=40_000.0),
}
"""A hundred seconds around midnight, and almost two days with rows that come hours late."""
LEAST = {"q2": 10, "q3": 20, "q4": 5, "q7": 10, "q8": 20, "q15": 2}
"""How many rows there are at least, if fewer than fifty."""


def wanted(name: str, market: Market, within: str | None = None) -> pl.DataFrame:
    tables = {name: part.frame(0, part.rows).lazy() for name, part in market.parts.items()}
    return judge.answer(name, tables, within or market.reach)


def house(streams: dict[str, ps.Stream], market: Market) -> House:
    return House(**streams, within=market.reach)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", QUERIES)
def test_python_gives_what_duckdb_gives(name: str, shape: str, tmp_path: Path) -> None:
    market = SHAPES[shape]
    got = run_streams(
        market, lambda by_name: {name: QUERIES[name](house(by_name, market))}, tmp_path, instances=2
    )[name]
    expected = wanted(name, market)
    odd = frame_difference(got, expected)
    assert not odd, odd
    if (name, shape) != ("q8", "days"):  # nobody opens an auction within seconds there
        assert expected.height >= LEAST.get(name, 40)


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_sql_gives_what_duckdb_gives(name: str, tmp_path: Path) -> None:
    market = SHAPES["seconds"]
    got = run_streams(
        market, lambda by_name: {name: in_sql(name, house(by_name, market))}, tmp_path
    )[name]
    odd = frame_difference(got, wanted(name, market))
    assert not odd, odd


@pytest.mark.slow
@pytest.mark.parametrize("name", ["q4", "q5", "q6", "q7", "q9", "q11", "q16", "q18", "q19"])
def test_epochs_and_sizes_change_nothing(name: str, tmp_path: Path) -> None:
    market, seed = SHAPES["seconds"], int(name[1:])
    dice = Random(seed)
    cuts = (0.0, *sorted(dice.random() for _ in range(7)), 1.0)
    sizes = [dice.randint(1, 4) for _ in cuts[1:]]
    got = run_streams(
        market,
        lambda by_name: {name: QUERIES[name](house(by_name, market))},
        tmp_path,
        cuts=cuts,
        sizes=sizes,
    )[name]
    odd = frame_difference(got, wanted(name, market))
    assert not odd, (odd, cuts, sizes)


@pytest.mark.parametrize("name", ["q3", "q20"])
def test_a_join_pairs_only_what_is_near(name: str, tmp_path: Path) -> None:
    market, within = SHAPES["seconds"], "5 seconds"
    got = run_streams(
        market,
        lambda by_name: {name: QUERIES[name](House(**by_name, within=within))},
        tmp_path,
        instances=3,
    )[name]
    near, all_of_them = wanted(name, market, within), wanted(name, market)
    assert not frame_difference(got, near)
    assert 0 < near.height < all_of_them.height


@pytest.mark.parametrize("per_second", [20.0, 60.0, 10_000.0])
@pytest.mark.parametrize("name", ["q3", "q20"])
def test_no_pair_is_farther_apart_than_the_reach(name: str, per_second: float) -> None:
    """So the joins, which have a bound here, give what the definition without one gives."""
    market = Market(rows=30_000, per_second=per_second, active=50)
    everything = wanted(name, market, "100000000 seconds")
    assert not frame_difference(wanted(name, market), everything)
    assert everything.height > 100


def test_each_query_is_in_sql_or_says_why_not() -> None:
    assert list(QUERIES) == [f"q{i}" for i in range(23)]
    assert set(judge.QUERIES) == set(QUERIES)
    assert sorted([*TEXTS, *UNSAID]) == sorted(QUERIES)
