"""An instance in an epoch: what its parts have to know of where they are."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.plan.compiled import CompiledQuery, Edge, Unit
from penstock.plan.epoch import EpochPlan
from penstock.task.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One instance of a unit in one epoch; ``number`` counts the unit's instances.

    ``worker`` is what its process keeps from one task to the next.
    """

    query: CompiledQuery
    plan: EpochPlan
    unit: Unit
    number: int
    worker: Worker

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The edges that begin here."""
        return tuple(e for n in self.unit.subqueries for e in self.query.edges_from(n))

    def here(self, edge: Edge) -> bool:
        """Return whether an edge ends in the same task, so that its rows are handed over."""
        return edge.to_subquery in self.unit.subqueries
