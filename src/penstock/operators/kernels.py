"""Which kernel carries out which stateful operator."""

from __future__ import annotations

from penstock.operators.kernel import Emit, Kernel
from penstock.operators.keyed.batch_process import BatchProcessKernel
from penstock.operators.keyed.dedup import DedupKernel
from penstock.operators.keyed.enrich import EnrichKernel
from penstock.operators.keyed.process import RowProcessKernel
from penstock.operators.order import OrderKernel
from penstock.operators.pairs.count_join import CountJoinKernel
from penstock.operators.pairs.count_product import CountProductKernel
from penstock.operators.pairs.join import JoinKernel
from penstock.operators.pairs.product import ProductKernel
from penstock.operators.windows.aggregate import AggregateKernel
from penstock.operators.windows.count import CountKernel
from penstock.operators.windows.sessions import SessionKernel
from penstock.operators.windows.spans import Span
from penstock.operators.windows.top import TopKernel
from penstock.plan.buckets import BucketSet
from penstock.plan.compiled import CompiledQuery
from penstock.plan.grid import Grid
from penstock.query.dedup import Dedup
from penstock.query.enrich import Enrich
from penstock.query.joins import Join, Product
from penstock.query.nodes import Aggregate, Sink
from penstock.query.process import Process
from penstock.query.processes import BatchProcess
from penstock.query.top import Top
from penstock.query.windows import CountWindow, SessionWindow


def kernel_of(
    query: CompiledQuery,
    number: int,
    mine: BucketSet | None = None,
    emit: Emit | None = None,
    span: Span | None = None,
) -> Kernel:
    """Return the kernel of a stateful operator.

    Args:
        query: The compiled query.
        number: The operator.
        mine: The buckets, or cells of a grid, that the instance owns; all unless given.
        emit: Takes results before `Kernel.advance` ends, if it finds many; without it they wait.
        span: The windows that are written, for an aggregate over time; all unless given.
    """
    node, ordered = query.nodes[number], number in query.ordered
    if isinstance(node, Aggregate):
        if isinstance(node.window, CountWindow):
            return CountKernel(node, number, ordered)
        if isinstance(node.window, SessionWindow):
            return SessionKernel(node, number, ordered)
        return AggregateKernel(node, number, ordered, span)
    if isinstance(node, Top):
        return TopKernel(node, number, ordered)
    if isinstance(node, Dedup):
        return DedupKernel(node, number, ordered)
    if isinstance(node, Enrich):
        return EnrichKernel(node, number, ordered)
    if isinstance(node, Process):
        batches = isinstance(node.processor, BatchProcess)
        return (BatchProcessKernel if batches else RowProcessKernel)(node, number, ordered)
    if isinstance(node, Join):
        kind = CountJoinKernel if node.by_count else JoinKernel
        return kind(node, number, ordered, query.required[number], emit)
    if isinstance(node, Product):
        grid = Grid.of(query.buckets)
        product = CountProductKernel if node.by_count else ProductKernel
        return product(node, number, ordered, query.required[number], grid, mine, emit)
    assert isinstance(node, Sink)
    return OrderKernel(node)
