"""Run the stateless operators of a subquery and prepare what leaves it.

First all at once, lazily, so that Polars sees the whole chain. If anything in it fails, again one
operator at a time, to find the rows to blame, or the defect
(`penstock.operators.rowwise.blame`). Law: both ways give the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from penstock.base.columns import ORDER, TIME
from penstock.operators.kernel import HIDDEN, Kernel
from penstock.operators.kernels import kernel_of
from penstock.operators.rowwise.blame import FAILURES, Refusal, refuse_failing
from penstock.operators.rowwise.fallible import may_fail
from penstock.operators.rowwise.stateless import CAREFUL, transform
from penstock.plan.compiled import CompiledQuery, Edge, Subquery
from penstock.query.nodes import Node, Sink, Union

Frames = Mapping[int, pl.DataFrame]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What leaves a subquery: rows for its sinks, rows or partials for its edges, and refusals."""

    sinks: dict[int, pl.DataFrame]
    edges: list[pl.DataFrame]
    refusals: list[Refusal]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A subquery with the frames that enter it.

    ``inputs`` are the frames of sources or of the stateful head. ``arrived`` are the frames that
    came over edges to a stateless head, by producer. ``placed`` gives the inputs again with each
    row's place, for counting refused rows. ``kernels`` prepare what goes to stateful heads, by edge
    (`kernels_at_edges`).
    """

    query: CompiledQuery
    subquery: Subquery
    edges: Sequence[Edge]
    kernels: Mapping[int, Kernel]
    inputs: Frames = field(default_factory=dict)
    arrived: Sequence[tuple[int, pl.DataFrame]] = ()
    placed: Callable[[], Frames] | None = None
    limit: int = 10_000


def evaluate(work: Work) -> Outcome:
    """Run the stateless operators of a subquery."""
    try:
        return _all_at_once(work)
    except FAILURES:  # a row, a user's function or a defect; the second way finds out which
        return _one_by_one(work)


def _all_at_once(work: Work) -> Outcome:
    query = work.query
    lazy: dict[int, pl.LazyFrame] = {n: frame.lazy() for n, frame in work.inputs.items()}
    for number in work.subquery.operators:
        if number not in lazy:
            frames = _input_frames(work, number, lazy)
            lazy[number] = transform(query.nodes[number], frames, columns_of(query, number))
    sinks = [n for n in work.subquery.operators if isinstance(query.nodes[n], Sink)]
    plans = [lazy[n].select(list(query.nodes[n].schema)) for n in sinks]
    plans += [_select_leaving(work, edge, lazy[edge.producer]) for edge in work.edges]
    careful = any(may_fail(query.nodes[n]) for n in work.subquery.operators if n not in work.inputs)
    if careful:  # in memory: an error under a union makes threads of the streaming engine panic
        done = pl.collect_all(plans, optimizations=CAREFUL, engine="in-memory")
    else:
        done = pl.collect_all(plans)
    edges = [
        _combine(work, edge, frame)
        for edge, frame in zip(work.edges, done[len(sinks) :], strict=True)
    ]
    return Outcome(sinks=dict(zip(sinks, done, strict=False)), edges=edges, refusals=[])


def _one_by_one(work: Work) -> Outcome:
    search = _Search(work)
    for number in work.subquery.operators:
        search.run_operator(number)
    edges = [search.leave(edge) for edge in work.edges]
    sinks = {
        n: search.done[n].select(list(work.query.nodes[n].schema))
        for n in work.subquery.operators
        if isinstance(work.query.nodes[n], Sink)
    }
    return Outcome(sinks=sinks, edges=edges, refusals=search.refusals)


class _Search:
    """Runs operators one at a time and sets apart the rows that fail."""

    def __init__(self, work: Work) -> None:
        self.work, self.query = work, work.query
        self.done: dict[int, pl.DataFrame] = dict(work.placed() if work.placed else work.inputs)
        self.refusals: list[Refusal] = []

    def run_operator(self, number: int) -> None:
        if number in self.done:
            return
        node = self.query.nodes[number]
        lazy = {n: frame.lazy() for n, frame in self.done.items()}
        frames = [frame.collect() for frame in _input_frames(self.work, number, lazy)]
        columns = columns_of(self.query, number, like=frames)
        rows = frames[0] if len(frames) == 1 else pl.concat(f.select(columns) for f in frames)
        self.done[number] = self._run_carefully(
            lambda part: transform(node, [part], columns), rows, node
        )

    def leave(self, edge: Edge) -> pl.DataFrame:
        head = self.query.subqueries[edge.to_subquery].head
        assert head is not None
        rows = self._run_carefully(
            lambda part: _select_leaving(self.work, edge, part),
            self.done[edge.producer],
            self.query.nodes[head],
        )
        return _combine(self.work, edge, rows)

    def _run_carefully(
        self, plan: Callable[[pl.LazyFrame], pl.LazyFrame], rows: pl.DataFrame, node: Node
    ) -> pl.DataFrame:
        def step(part: pl.DataFrame) -> pl.DataFrame:
            return plan(part.lazy()).collect(optimizations=CAREFUL)

        limit = self.work.limit - len(self.refusals)
        good, bad = refuse_failing(step, rows, node.title, limit, node)
        self.refusals += bad
        return pl.concat(good or [step(rows.clear())])


def _input_frames(work: Work, number: int, lazy: Mapping[int, pl.LazyFrame]) -> list[pl.LazyFrame]:
    query = work.query
    if number != work.subquery.head:
        return [lazy[i] for i in query.inputs[number] if i in lazy]
    frames = [frame for _, frame in work.arrived if frame.height] or [
        _empty(query, query.inputs[number][0])
    ]
    if isinstance(query.nodes[number], Union):
        return [frame.lazy() for frame in frames]
    return [pl.concat(frames).lazy()]


def columns_of(query: CompiledQuery, number: int, like: Sequence[pl.DataFrame] = ()) -> list[str]:
    """Return the columns of an operator's output, hidden ones last.

    Args:
        query: The compiled query.
        number: The operator.
        like: Frames whose hidden columns are all to be kept, where each of them has them.
    """
    hidden = list(ORDER) if number in query.ordered else [TIME]
    if like:
        hidden = [name for name in ORDER if all(name in frame.columns for frame in like)]
    return [c for c in query.nodes[number].schema if c in query.required[number]] + hidden


def _empty(query: CompiledQuery, number: int) -> pl.DataFrame:
    types = dict(query.nodes[number].schema) | HIDDEN
    return pl.DataFrame(schema={name: types[name] for name in columns_of(query, number)})


def _select_leaving(work: Work, edge: Edge, rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return the columns of the rows that go over an edge."""
    kernel = work.kernels.get(edge.id)
    if kernel is None:
        return rows.select(columns_of(work.query, edge.producer))
    return kernel.prepare(rows, edge.port)


def _combine(work: Work, edge: Edge, rows: pl.DataFrame) -> pl.DataFrame:
    """Return what the load balancer sends: partials where it may combine, rows otherwise."""
    kernel = work.kernels.get(edge.id)
    return rows if kernel is None else kernel.combine(rows)


def kernels_at_edges(query: CompiledQuery, edges: Iterable[Edge]) -> dict[int, Kernel]:
    """Return the kernels that prepare what goes over edges to stateful heads, by edge.

    Each head's is built once, so a task makes them when it begins and uses them for all its rows.
    """
    heads = {edge.id: query.subqueries[edge.to_subquery].head for edge in edges}
    kernels = {
        head: kernel_of(query, head)
        for head in set(heads.values())
        if head is not None and query.nodes[head].stateful
    }
    return {edge: kernels[head] for edge, head in heads.items() if head in kernels}
