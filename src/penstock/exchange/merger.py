"""Input mergers: what an instance knows once all its inputs have sent their headers.

Laws: the watermark that an instance works with is the one that a single instance reading everything
would have, or lower where an operator before it lags behind; it depends on no order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.base.times import FINISHED, NOT_STARTED
from penstock.plan.compiled import CompiledQuery
from penstock.query.nodes import Source

_ENDS = (FINISHED, NOT_STARTED)


def merge_seen(parts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return the highest event time of each source over all senders.

    >>> merge_seen([{0: 5}, {0: 7, 1: 1}])
    {0: 7, 1: 1}
    """
    merged: dict[int, int] = {}
    for part in parts:
        for source, time in part.items():
            merged[source] = max(merged.get(source, NOT_STARTED), time)
    return merged


def merge_marks(parts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Return how far operators are: the lowest mark over all senders.

    >>> merge_marks([{3: 5}, {3: 7, 4: 1}])
    {3: 5, 4: 1}
    """
    merged: dict[int, int] = {}
    for part in parts:
        for operator, mark in part.items():
            merged[operator] = min(merged.get(operator, mark), mark)
    return merged


def watermarks(
    query: CompiledQuery,
    seen: Mapping[int, int],
    *,
    idle: frozenset[int] = frozenset(),
    final: bool = False,
    marks: Mapping[int, int] | None = None,
) -> list[int]:
    """Return the watermark of each operator's output: no row below it can still come.

    Args:
        query: The compiled query.
        seen: The highest event time of each source.
        idle: Sources that hold nothing back.
        final: Whether the input has ended.
        marks: How far operators are that have said so; others are where their input is.

    A source is at its highest time less its delay. An operator is at the lowest of its inputs that
    are not idle, or further, if it has written every result up to there. One that lags behind its
    input has results to come, even if its sources are idle.
    """
    said = marks or {}
    found: list[int] = []
    quiet: list[bool] = []
    for number, node in enumerate(query.nodes):
        if isinstance(node, Source):
            mark = seen[number] - node.delay_us if number in seen else NOT_STARTED
            found.append(FINISHED if final else mark)
            quiet.append(number in idle)
        else:
            inputs = query.inputs[number]
            lowest = min([found[i] for i in inputs if not quiet[i]] or [found[i] for i in inputs])
            reached = min(lowest, said.get(number, lowest))
            found.append(reached if reached in _ENDS else reached + node.after_us)
            quiet.append(reached == lowest and all(quiet[i] for i in inputs))
    return found


def input_watermark(
    query: CompiledQuery,
    seen: Mapping[int, int],
    node: int,
    *,
    idle: frozenset[int] = frozenset(),
    final: bool = False,
    marks: Mapping[int, int] | None = None,
) -> int:
    """Return the watermark of what comes into a stateful operator."""
    mark = watermarks(query, seen, idle=idle, final=final, marks=marks)[node]
    return mark if mark in _ENDS else mark - query.nodes[node].after_us
