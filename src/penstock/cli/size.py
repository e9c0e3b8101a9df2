"""``penstock size``: how many instances a query needs, from what its rows cost."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import typer

from penstock.base.words import pluralise
from penstock.cli.output import give, say
from penstock.control.sizing import instances_for_rate, share_instances
from penstock.driver.sizing.sample import take_sample
from penstock.driver.sizing.sizes import Sizes
from penstock.query.stream import Sinks


def run_size(
    query: Sinks,
    *,
    instances: int | None,
    rate: float | None,
    target: float,
    rows: int,
    strategy: str,
    as_json: bool,
) -> None:
    """Run a sample of a query and print what it costs and how large it should be.

    Raises:
        SampleError: No sample could be taken.
    """
    sample = take_sample(query.sinks, strategy=strategy, rows=rows)
    total = instances or os.cpu_count() or 1
    sizes = (
        share_instances(sample.costs, total)
        if rate is None
        else instances_for_rate(sample.costs, rate, target=target)
    )
    if as_json:
        costs = [asdict(c) | {"load": c.load, "instances": sizes[c.subquery]} for c in sample.costs]
        give({"ok": True, "rows": sample.rows, "subqueries": costs, "rate": rate})
        return
    found = Sizes(instances=sizes, rows=sample.rows, costs=sample.costs)
    typer.echo(found.describe())
    say(_bottleneck(found, total if rate is None else None, rate, target))


def _bottleneck(found: Sizes, total: int | None, rate: float | None, target: float) -> str:
    slowest: Any = max(found.costs, key=lambda c: c.load / found.instances[c.subquery])
    most = found.instances[slowest.subquery] / slowest.load if slowest.load else float("inf")
    if rate is not None:
        return f"for {rate:,.0f} rows/s, with instances {target:.0%} busy"
    sizes = "" if total is None else f"with {pluralise(total, 'instance')} "
    return f"{sizes}{slowest.name} reaches its limit first, at about {most:,.0f} rows/s"
