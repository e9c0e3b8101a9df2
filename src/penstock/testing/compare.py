"""Compare rows: as lists or as multisets, floats up to rounding.

Law: two multisets are the same exactly if their rows can be paired so that every pair is close.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
TOLERANCE = 1e-9
_SHOWN = 5


def difference(found: Sequence[Row], expected: Sequence[Row], *, ordered: bool = False) -> str:
    """Return how two lists of rows differ, as text; empty if they do not.

    >>> difference([{"x": 0.1 + 0.2}, {"x": 1.0}], [{"x": 1.0}, {"x": 0.3}])
    ''
    >>> print(difference([{"x": 1}], [{"x": 2}]))
    1 rows found, 1 expected
      not expected: {'x': 1}
      missing: {'x': 2}
    """
    if ordered:
        return _first_difference(found, expected)
    waiting: dict[Any, list[Row]] = {}
    for row in expected:
        waiting.setdefault(_exact_part(row), []).append(row)
    odd = [row for row in found if not _take(waiting.get(_exact_part(row), []), row)]
    missing = [row for rows in waiting.values() for row in rows]
    if not odd and not missing:
        return ""
    lines = [f"{len(found)} rows found, {len(expected)} expected"]
    lines += [f"  not expected: {dict(row)}" for row in odd[:_SHOWN]]
    lines += [f"  missing: {dict(row)}" for row in missing[:_SHOWN]]
    return "\n".join(lines)


def _first_difference(found: Sequence[Row], expected: Sequence[Row]) -> str:
    for i, (left, right) in enumerate(zip(found, expected, strict=False)):
        if not close(dict(left), dict(right)):
            return f"row {i} differs\n  found: {dict(left)}\n  expected: {dict(right)}"
    if len(found) != len(expected):
        return f"{len(found)} rows found, {len(expected)} expected; the shorter begins the longer"
    return ""


def _take(waiting: list[Row], row: Row) -> bool:
    for i, candidate in enumerate(waiting):
        if close(dict(row), dict(candidate)):
            del waiting[i]
            return True
    return False


def _exact_part(row: Row) -> Any:
    """Return what must be equal in two rows that are close: all but the floats."""
    return tuple(sorted((name, _exact(value)) for name, value in row.items()))


def _exact(value: Any) -> str:
    if isinstance(value, float):
        return "float"
    if isinstance(value, Mapping):
        return repr(_exact_part(value))
    if _is_list(value):
        return repr([_exact(item) for item in value])
    return repr(value)


def close(left: Any, right: Any) -> bool:
    """Return whether two values are equal, floats up to a relative error of 1e-9.

    >>> close({"x": [1.0, None]}, {"x": [1.0 + 1e-12, None]}), close(1.0, None)
    (True, False)
    """
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(close(left[k], right[k]) for k in left)
    if _is_list(left) and _is_list(right):
        return len(left) == len(right) and all(map(close, left, right))
    return type(left) is type(right) and bool(left == right)


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
