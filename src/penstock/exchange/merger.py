"""Input mergers: what an instance knows once all its inputs have sent their headers.

Law: the watermark that an instance works with is the one that a single instance reading everything
would have; it depends on no order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.operators.panes import FINISHED, NOT_STARTED
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


def watermarks(
    query: CompiledQuery,
    seen: Mapping[int, int],
    *,
    idle: frozenset[int] = frozenset(),
    final: bool = False,
) -> list[int]:
    """Return the watermark of each operator's output: no row below it can still come.

    Args:
        query: The compiled query.
        seen: The highest event time of each source.
        idle: Sources that hold nothing back.
        final: Whether the input has ended.

    A source is at its highest time less its delay. An operator is at the lowest of its inputs that
    are not idle, or further, if it has written every result up to there.
    """
    marks: list[int] = []
    quiet: list[bool] = []
    for number, node in enumerate(query.nodes):
        if isinstance(node, Source):
            mark = seen[number] - node.delay_us if number in seen else NOT_STARTED
            marks.append(FINISHED if final else mark)
            quiet.append(number in idle)
        else:
            inputs = query.inputs[number]
            lowest = min([marks[i] for i in inputs if not quiet[i]] or [marks[i] for i in inputs])
            marks.append(lowest if lowest in _ENDS else lowest + node.after_us)
            quiet.append(all(quiet[i] for i in inputs))
    return marks


def input_watermark(
    query: CompiledQuery,
    seen: Mapping[int, int],
    node: int,
    *,
    idle: frozenset[int] = frozenset(),
    final: bool = False,
) -> int:
    """Return the watermark of what comes into a stateful operator."""
    mark = watermarks(query, seen, idle=idle, final=final)[node]
    return mark if mark in _ENDS else mark - query.nodes[node].after_us
