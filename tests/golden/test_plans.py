"""Golden plans: a query beside what the compiler makes of it.

To write the files anew after a change that you mean: PENSTOCK_GOLDEN=write make test
"""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

import penstock as ps
from penstock.query.stream import Sinks

FOLDER = Path(__file__).parent / "plans"
SCHEMA = {"src": pl.String, "x": pl.Int64, "y": pl.Float64, "ts": pl.Datetime}


def queries() -> dict[str, Sinks]:
    calls = ps.read_parquet("calls", time="ts", schema=SCHEMA)
    other = ps.read_parquet("other", time="ts", schema=SCHEMA, name="other")
    minute = ps.tumbling("1 minute")
    heavy = calls.map(z="x * 2").aggregate(
        by="src", window=ps.sliding("1 hour", every="1 minute"), n="count(*)", mean="avg(z)"
    )
    small, large = calls.route("x < 10", rest=True)
    chain = heavy.aggregate(window=ps.tumbling("1 hour"), top="max(n)", mid="median(mean)")
    pairs = calls.join(other, on="src", within="1 minute", where="x < x_right", how="left")
    diamond = pairs.union(calls.join(calls, on="src", within="1 minute").select(*pairs.schema))
    visits = calls.aggregate(by="src", window=ps.session("1 hour"), n="count(*)", mid="median(x)")
    return {
        "stateless": calls.filter("x > 1").write_parquet("out"),
        "heavy": heavy.filter("n > 3").write_parquet("out", ordered=True),
        "chain": chain.write_parquet("out"),
        "route": small.write_parquet("small").also(
            large.aggregate(by="src", window=minute, d="count(distinct x)").write_parquet("large")
        ),
        "union": calls.union(other)
        .aggregate(by=["src", "x"], window=minute, first="first(y)")
        .write_parquet("out"),
        "diamond": diamond.dedup(by="src", within="1 hour").write_parquet("out"),
        "product": calls.product(other, within="1 minute", where="x < x_right")
        .write_parquet("out")
        .also(
            calls.product(calls, within=ps.count_window(9), where="x < x_right").write_memory("n")
        ),
        "top": visits.top(3, "n").write_parquet("out"),
        "spread": heavy.spread().map(far="sqrt(mean)").filter("n > 3").write_parquet("out"),
    }


@pytest.mark.parametrize("strategy", ["operator-set-cloud", "operator-cloud", "query-cloud"])
@pytest.mark.parametrize("name", queries())
def test_plan(name: str, strategy: str) -> None:
    query = queries()[name]
    text = "\n\n".join(
        query.explain(strategy=strategy, instances=instances) for instances in (1, 2)
    )
    path = FOLDER / f"{name}.{strategy}.txt"
    if os.environ.get("PENSTOCK_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text + "\n")
    assert text + "\n" == path.read_text()


def test_mermaid() -> None:
    chart = queries()["heavy"].explain(instances=2, mermaid=True)
    assert chart.startswith("flowchart LR")
    assert chart.count("subgraph") == 3
    assert "==>|partials|" in chart
