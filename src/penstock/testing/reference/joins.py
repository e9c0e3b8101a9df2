"""Joins and products, pair by pair, for the reference evaluator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from penstock.query.joins import Join, Pairing, Product
from penstock.query.windows import CountWindow
from penstock.testing.reference.folds import rank
from penstock.testing.reference.rows import Arriving, Row, Values, flat_columns

Sided = tuple[int, Row]


def join(node: Join, arriving: Arriving) -> list[Row]:
    """Return the pairs with equal keys, and of an outer join the rows that stay alone."""

    def equal(left: Row, right: Row) -> bool:
        return _key(left, node.left_on) == _key(right, node.right_on) is not None

    lefts, rights = arriving.ports[0], arriving.ports[-1]
    results, matched = [], set()
    for left, right in _close(node, arriving, equal):
        row = arriving.result(max(left.time, right.time), _values(node, left, right))
        if _holds(node, arriving, row):
            results.append(row)
            matched |= {(0, id(left)), (1, id(right))}
    if node.how != "inner":
        results += _alone(node, arriving, lefts, matched, 0)
    if node.how == "full":
        results += _alone(node, arriving, rights, matched, 1)
    return results


def product(node: Product, arriving: Arriving) -> list[Row]:
    """Return the pairs for which the predicate is true."""
    pairs = [
        arriving.result(max(left.time, right.time), _values(node, left, right))
        for left, right in _close(node, arriving, lambda left, right: True)
    ]
    return [row for row in pairs if _holds(node, arriving, row)]


def _close(node: Pairing, arriving: Arriving, equal: Any) -> Iterator[tuple[Row, Row]]:
    if isinstance(node.within, CountWindow):
        yield from _close_by_count(node, arriving, equal, node.within.size)
        return
    for left in arriving.ports[0]:
        for right in arriving.ports[-1]:
            may = node.self_pairs or left is not right
            if may and abs(left.time - right.time) < node.within and equal(left, right):
                yield left, right


def _close_by_count(
    node: Pairing, arriving: Arriving, equal: Any, size: int
) -> Iterator[tuple[Row, Row]]:
    """Yield each row with the last rows of the other side before it, if its turn has come."""
    turns = _turns(node, arriving)
    for place, (side, row) in enumerate(turns):
        for role in (0, 1) if node.itself else (side,):
            before = [
                other
                for other_side, other in turns[:place]
                if (node.itself or other_side != role)
                and (equal(row, other) if role == 0 else equal(other, row))
            ]
            for other in before[-size:]:
                yield (row, other) if role == 0 else (other, row)


def _turns(node: Pairing, arriving: Arriving) -> list[Sided]:
    """Return the rows that are final in stream order; of rows that tie, left ones come first."""
    sides = (0,) if node.itself else (0, 1)
    final = [
        (side, row) for side in sides for row in arriving.ports[side] if row.time < arriving.mark
    ]

    def turn(sided: Sided) -> Any:
        side, row = sided
        columns = flat_columns(node.inputs[side])
        return row.place, side, [rank(row.values[name]) for name in columns]

    return sorted(final, key=turn)


def _alone(
    node: Join, arriving: Arriving, rows: list[Row], matched: set[tuple[int, int]], side: int
) -> list[Row]:
    assert isinstance(node.within, int)
    return [
        arriving.result(row.time + node.within, _values(node, *((row, None), (None, row))[side]))
        for row in rows
        if (side, id(row)) not in matched and row.time + node.within <= arriving.mark
    ]


def _key(row: Row, names: tuple[str, ...]) -> tuple[Any, ...] | None:
    """Return the key of a row; none if a part of it is null."""
    values = [row.values[name] for name in names]
    return None if None in values else tuple(rank(value) for value in values)


def _values(node: Pairing, left: Row | None, right: Row | None) -> Values:
    """Return the columns of a pair, or of a row that stays alone."""
    values: Values = {
        name: left.values[name] if left else None for name in node.inputs[0].schema
    } | {name: right.values[column] if right else None for column, name in node.renamed}
    if left is None and right is not None and isinstance(node, Join) and node.shared:
        values |= {key: right.values[key] for key in node.right_on}
    return values


def _holds(node: Pairing, arriving: Arriving, row: Row) -> bool:
    """Return whether a pair's predicate is true; a pair for which it fails is refused."""
    if node.where is None:
        return True
    return bool(arriving.attempt(row, _predicate, node, row))


def _predicate(node: Pairing, row: Row) -> bool:
    assert node.where is not None
    frame = pl.DataFrame([row.picked(node)], schema=dict(node.schema))
    return bool(frame.with_columns(node.where.alias("__holds"))["__holds"].item())
