"""The compiler's laws."""

from __future__ import annotations

import polars as pl
import pytest

import penstock as ps
from penstock.compiler import STRATEGIES, compile_query, strategy_cost
from penstock.query.stream import Sinks
from tests.golden.test_plans import queries


@pytest.mark.parametrize("name", queries())
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("instances", [1, 3])
def test_payloads_go_to_later_stages_and_heads_are_in_one_subquery(
    name: str, strategy: str, instances: int
) -> None:
    query = compile_query(queries()[name].sinks, strategy=strategy, instances=instances)
    for edge in query.edges:
        start, end = query.unit_of(edge.from_subquery), query.unit_of(edge.to_subquery)
        assert start == end or start.stage < end.stage
        if start == end:
            assert start.instances == 1
    heads = [s.head for s in query.subqueries if s.head is not None]
    assert set(query.stateful) <= set(heads)
    assert len(heads) == len(set(heads))
    covered = {number for s in query.subqueries for number in s.operators}
    assert covered == set(range(len(query.nodes)))


def test_one_instance_is_one_stage() -> None:
    for query in queries().values():
        assert compile_query(query.sinks).stage_sizes == (1,)


def test_sources_read_only_what_is_needed() -> None:
    query = compile_query(queries()["heavy"].sinks)
    assert query.required[0] == {"src", "x"}


def test_an_ordered_sink_has_one_instance() -> None:
    query = compile_query(queries()["heavy"].sinks, instances=4)
    assert [s.instances for s in query.subqueries] == [4, 4, 1]


def test_the_cost_model_orders_the_strategies_as_the_paper_claims() -> None:
    """StreamCloud XI: for realistic rates, QC > OC > OS."""
    costs = {s: strategy_cost(s, nodes=90, operators=6, stateful=2) for s in STRATEGIES}
    total = {s: c.total(rate=1e5, alpha=1.0) for s, c in costs.items()}
    assert total["operator-set-cloud"] < total["query-cloud"]
    assert total["operator-set-cloud"] < total["operator-cloud"]
    assert costs["operator-cloud"].hops == 5
    assert costs["query-cloud"].hops == costs["operator-set-cloud"].hops == 2


def test_what_is_not_allowed_is_named() -> None:
    query: Sinks = ps.from_rows(
        pl.DataFrame({"ts": [ps.at("2024-01-01")]}), time="ts"
    ).write_memory()
    with pytest.raises(ps.ConfigError, match="strategy='x' is not allowed; allowed: operator-set"):
        compile_query(query.sinks, strategy="x")
    with pytest.raises(ps.ConfigError, match="buckets=0"):
        compile_query(query.sinks, buckets=0)
    with pytest.raises(ps.ConfigError, match="instances of subquery 0"):
        compile_query(query.sinks, instances=2, buckets=1)
