"""Dedup, row by row, for the reference evaluator."""

from __future__ import annotations

from typing import Any

from penstock.query.dedup import Dedup
from penstock.testing.reference.aggregates import key_of
from penstock.testing.reference.rows import Arriving, Row, flat_columns, in_order


def dedup(node: Dedup, arriving: Arriving) -> list[Row]:
    """Return the rows below the watermark that stay."""
    last: dict[tuple[Any, ...], int] = {}
    found = []
    for row in in_order(arriving.rows, flat_columns(node)):
        if row.time >= arriving.mark:
            break
        key = key_of(row, node.by)
        if key in last and (node.within_us is None or row.time - last[key] < node.within_us):
            continue
        last[key] = row.time
        found.append(arriving.result(row.time, row.picked(node)))
    return found
