"""Which kernel carries out which stateful operator."""

from __future__ import annotations

from penstock.operators.aggregate import AggregateKernel
from penstock.operators.kernel import Kernel
from penstock.operators.order import OrderKernel
from penstock.plan.buckets import BucketSet
from penstock.plan.compiled import CompiledQuery
from penstock.query.nodes import Aggregate, Sink


def kernel_of(query: CompiledQuery, number: int, mine: BucketSet | None = None) -> Kernel:
    """Return the kernel of a stateful operator.

    Args:
        query: The compiled query.
        number: The operator.
        mine: The buckets, or cells of a grid, that the instance owns; all unless given.
    """
    node, ordered = query.nodes[number], number in query.ordered
    if isinstance(node, Aggregate):
        return AggregateKernel(node, number, ordered)
    assert isinstance(node, Sink)
    return OrderKernel(node)
