"""The outbox: rows that leave an instance along edges.

Laws: every instance of the next subquery gets a payload with a header, with or without rows; rows
for a subquery of the same task are handed over as they are, unsplit and unpacked.
"""

from __future__ import annotations

import polars as pl

from penstock.exchange.payload import Payload, to_bytes
from penstock.plan.compiled import Edge
from penstock.task.headers import Headers
from penstock.task.inbox import Inbox
from penstock.task.instance import Instance
from penstock.task.phases import Phases


class Outbox:
    """What an instance sends on."""

    def __init__(self, here: Instance, inbox: Inbox, headers: Headers, phases: Phases) -> None:
        """Begin with nothing.

        Args:
            here: The instance.
            inbox: Takes what stays in the task.
            headers: What is said with every payload.
            phases: Counts the time that splitting and packing take.
        """
        self._here, self._inbox = here, inbox
        self._headers, self._phases = headers, phases
        self.payloads: list[Payload] = []

    def send(self, edge: Edge, rows: pl.DataFrame) -> None:
        """Send rows along an edge, each to the instances that its route names."""
        if self._here.here(edge):
            self._inbox.hand_over(edge, rows)
            return
        with self._phases.measure("send"):
            parts = self._here.plan.routes[edge.id].split(rows)
            self.payloads += [self._pack(edge, i, part) for i, part in enumerate(parts)]

    def _pack(self, edge: Edge, instance: int, rows: pl.DataFrame) -> Payload:
        target = self._here.query.unit_of(edge.to_subquery)
        return Payload(
            kind="rows",
            stage=target.stage,
            edge=edge.id,
            task=target.first_task + instance,
            seen=self._headers.seen,
            marks=dict(self._headers.marks),
            body=to_bytes(rows) if rows.height else b"",
        )
