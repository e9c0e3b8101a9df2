"""Enrich, row by row, for the reference evaluator."""

from __future__ import annotations

from penstock.query.enrich import Enrich, Lookup
from penstock.testing.reference.aggregates import key_of
from penstock.testing.reference.rows import Arriving, Row, Values, flat_columns, in_order


def enrich(node: Enrich, arriving: Arriving) -> list[Row]:
    """Return the left rows below the watermark, each with the newest row of the table."""
    left, right = arriving.ports
    table = in_order(right, flat_columns(node.inputs[1]))
    found = []
    for row in left:
        if row.time >= arriving.mark:
            continue
        versions = [
            version.values
            for version in table
            if version.time <= row.time and _same_key(version.values, row.values, node.on)
        ]
        if versions or node.how == "left":
            newest = versions[-1] if versions else {}
            added = {name: newest.get(column) for column, name in node.renamed}
            own = row.picked(node.inputs[0])
            found.append(arriving.result(row.time, own | added))
    return found


def looked_up(node: Lookup, row: Row) -> list[Values]:
    """Return a row with what a table that stands still says of its key."""
    added = [name for name in node.table.columns if name not in node.on]
    for values in node.table.iter_rows(named=True):
        if _same_key(values, row.values, node.on):
            return [row.values | {name: values[name] for name in added}]
    return [row.values | dict.fromkeys(added)] if node.how == "left" else []


def _same_key(one: Values, other: Values, on: tuple[str, ...]) -> bool:
    if any(values[name] is None for values in (one, other) for name in on):
        return False
    place = {"time": 0, "source": 0, "position": 0}
    return key_of(Row(**place, values=one), on) == key_of(Row(**place, values=other), on)
