"""The stateful head of a subquery: an instance advances its shares, one by one.

Law: what a share does depends on its own rows, state and marks alone, so the order of shares does
not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from penstock.exchange.placement import placement_of
from penstock.operators.kernel import Emit
from penstock.operators.kernels import kernel_of
from penstock.plan.compiled import Edge, Subquery
from penstock.task.dead_letters import DeadLetters
from penstock.task.headers import Headers
from penstock.task.instance import Instance
from penstock.task.operator_state import OperatorState
from penstock.task.report import Gathered
from penstock.task.shares import Share, shares_of

Came = Sequence[tuple[Edge, pl.DataFrame]]


class HeadRunner:
    """Runs the stateful heads of an instance's subqueries."""

    def __init__(
        self, here: Instance, headers: Headers, letters: DeadLetters, gathered: Gathered
    ) -> None:
        """Prepare to run heads.

        Args:
            here: The instance.
            headers: Tells the watermark, and is told how far heads are.
            letters: Takes rows that a head could not compute.
            gathered: Takes what shares have done.
        """
        self._here, self._headers = here, headers
        self._letters, self._gathered = letters, gathered

    def advance(self, subquery: Subquery, came: Came, emit: Emit) -> pl.DataFrame:
        """Return the results of a head.

        Args:
            subquery: Its subquery.
            came: The rows that have come to it.
            emit: Takes results before all are found, if there are many.
        """
        here, head = self._here, subquery.head
        assert head is not None
        mark = self._headers.watermark(head)
        shares = shares_of(here.query, here.plan, subquery.id, here.number, mark)
        self._headers.reach(head, min([mark, *[share.until for share in shares]]))
        return pl.concat([self._advance_share(subquery, share, came, emit) for share in shares])

    def _advance_share(
        self, subquery: Subquery, share: Share, came: Came, emit: Emit
    ) -> pl.DataFrame:
        query, plan, head = self._here.query, self._here.plan, subquery.head
        assert head is not None
        state = OperatorState(
            plan=plan,
            operator=share.lineage.name,
            kernel=kernel_of(query, head, share.buckets, emit, share.span(query.buckets)),
            placement=placement_of(query.nodes[head], query.buckets, share.buckets),
            mark=share.mark,
            worker=self._here.worker,
        )
        rows = [share.rows(plan.routes[edge.id], frame) for edge, frame in came]
        results = state.advance(rows, share.until)
        self._letters.add_refusals(state.refusals, sources=len(query.sources))
        self._gathered.take_share(subquery.id, share, state)
        return results
