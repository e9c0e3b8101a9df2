"""Open state: what an operator keeps, as a frame."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from penstock.operators.chunks import PANE
from penstock.operators.kernel import UNTIL
from penstock.operators.panes import NOT_STARTED
from penstock.plan.buckets import BucketSet
from penstock.plan.compiled import CompiledQuery
from penstock.query.nodes import ORDER, Aggregate
from penstock.runtime.task import kernel_of
from penstock.state.manifests import Manifest
from penstock.state.segments import read_segment


def read_state(root: Path, query: CompiledQuery, manifest: Manifest, operator: str) -> pl.DataFrame:
    """Return the state of an operator after an epoch.

    For an aggregate: a row per group and pane, with the pane's start and the partials (or the kept
    rows). For an ordered sink: the rows that wait.

    Raises:
        KeyError: The query has no stateful operator of that name.
    """
    names = {query.operator_name(number): number for number in query.stateful}
    if operator not in names:
        raise KeyError(f"no stateful operator {operator!r}; operators: {sorted(names)}")
    number = names[operator]
    everything = BucketSet(((0, query.buckets),))
    folder, refs = root / "state" / operator, manifest.segments.get(operator, ())
    deltas = [read_segment(folder, ref, everything) for ref in refs]
    if not deltas:
        return pl.DataFrame()
    watermark = manifest.watermarks.get(operator, NOT_STARTED)
    rows = kernel_of(query, number).compact(deltas, watermark).drop(UNTIL)
    node = query.nodes[number]
    if isinstance(node, Aggregate):
        start = (pl.col(PANE) * node.window.pane_us).cast(pl.Datetime("us")).alias("pane_start")
        rows = rows.with_columns(start).select(*node.by, "pane_start", pl.exclude(*node.by, PANE))
    visible = rows.drop([name for name in ORDER if name in rows.columns])
    return visible.rename(lambda name: name.removeprefix("__"))
