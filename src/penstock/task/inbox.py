"""The inbox: rows on their way to the subqueries of an instance.

Rows of other tasks stay packed until the subquery's turn, so that only its own are in memory as
frames.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from penstock.exchange.payload import Payload, to_frame
from penstock.plan.compiled import Edge


class Inbox:
    """Rows by the edge that they came over."""

    def __init__(self, payloads: Sequence[Payload]) -> None:
        """Take what other tasks have sent."""
        self._packed: dict[int, list[bytes]] = {}
        self._frames: dict[int, list[pl.DataFrame]] = {}
        for payload in payloads:
            if payload.kind == "rows" and payload.body:
                self._packed.setdefault(payload.edge, []).append(payload.body)

    def hand_over(self, edge: Edge, rows: pl.DataFrame) -> None:
        """Take rows that come from a subquery of the same task."""
        self._frames.setdefault(edge.id, []).append(rows)

    def take(self, edges: Sequence[Edge]) -> list[tuple[Edge, pl.DataFrame]]:
        """Return what has come over some edges, and forget it."""
        return [
            (edge, frame)
            for edge in edges
            for frame in (
                *self._frames.pop(edge.id, ()),
                *map(to_frame, self._packed.pop(edge.id, ())),
            )
        ]
