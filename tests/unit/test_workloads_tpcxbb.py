"""TPCx-BB's queries against batch jobs that are written another way."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from bench.compare import frame_difference
from bench.local import run_streams
from bench.suites import SUITES
from penstock.workloads.tpcxbb import Clicks, LastViews, Sales

ROWS = 30_000
SIZES: dict[str, tuple[Any, int]] = {
    "Q1": (Sales(rows=ROWS, items=60, days=1.0), 1_000),
    "Q2": (Clicks(rows=ROWS, users=300, items=60, days=5.0), 100),
    "Q3": (Clicks(rows=ROWS, users=300, items=200, days=25.0), 500),
    "Q4": (Clicks(rows=ROWS, users=300, days=5.0), 5),
    "Q15": (Sales(rows=ROWS, days=20.0), 50),
}


@pytest.mark.slow
@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("name", SIZES)
def test_it_gives_what_a_batch_job_gives(name: str, instances: int, tmp_path: Path) -> None:
    made, at_least = SIZES[name]
    question = SUITES["tpcxbb"][name]
    got = run_streams(
        made, lambda rows: question.streams(rows, made), tmp_path, instances=instances
    )
    wanted = question.batch(made.frame(0, ROWS).lazy(), made)
    odd = frame_difference(got[name], wanted[name])
    assert not odd, odd
    assert wanted[name].height >= at_least


def test_the_last_views_are_looked_up_one_purchase_after_the_other() -> None:
    clicks = Clicks(rows=4_000, users=20, items=50, days=60.0).frame(0, 4_000)
    seen: dict[int, list[tuple[Any, int]]] = {}
    wanted = []
    for user, item, kind, ts in clicks.iter_rows():
        views = seen.setdefault(user, [])
        if kind == "view":
            views.append((ts, item))
        elif kind == "purchase":
            recent = [viewed for at, viewed in views[-5:] if ts - at <= timedelta(days=10)]
            wanted += [(user, viewed) for viewed in recent]
    rows = clicks.filter(pl.col("kind") != "cart").sort("user", maintain_order=True)
    state = pl.DataFrame(schema={"user": pl.Int64, **LastViews.state})
    got, left = LastViews().on_rows(rows.with_row_index("__row"), state)
    assert sorted(got.select("user", "viewed").rows()) == sorted(wanted)
    assert left["viewed"].list.len().max() == 5
