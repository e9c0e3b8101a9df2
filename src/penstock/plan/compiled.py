"""The compiled query: subqueries, edges, units and stages, as the compiler's passes leave them.

Law: a stateful operator belongs to exactly one subquery; a stateless operator belongs to every
subquery that feeds it, and runs on each row once, in the subquery that made the row.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import polars as pl

from penstock.base.errors import ConfigError
from penstock.plan.buckets import BucketMap
from penstock.plan.grid import Grid
from penstock.query.nodes import Aggregate, Node, Sink, Source
from penstock.query.windows import TimeWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class Subquery:
    """Operators that run together in one task, for a part of the buckets.

    ``head`` is the operator that takes shuffled rows; None for the subquery of the sources.
    """

    id: int
    head: int | None
    operators: tuple[int, ...]
    instances: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Rows that go from one subquery to the head of another.

    ``port`` is the place of the rows among the head's inputs. ``keys`` routes by bucket of those
    columns, None spreads rows; ``grid`` says how on a grid (`Node.grid`). Who gets which rows in an
    epoch is said by the route that is made of it (`penstock.plan.route`).
    """

    id: int
    producer: int
    from_subquery: int
    to_subquery: int
    keys: tuple[str, ...] | None
    port: int = 0
    grid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Subqueries fused into one task, at a place in the sequence of stages."""

    id: int
    subqueries: tuple[int, ...]
    instances: int
    stage: int = 0
    first_task: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledQuery:
    """A query after all passes: what each task of an epoch has to do.

    ``heads`` are stateless operators with which subqueries shall begin, beside those that say so.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[tuple[int, ...], ...]
    strategy: str
    buckets: int
    heads: frozenset[int] = frozenset()
    subqueries: tuple[Subquery, ...] = ()
    edges: tuple[Edge, ...] = ()
    units: tuple[Unit, ...] = ()
    required: tuple[frozenset[str], ...] = ()
    ordered: frozenset[int] = frozenset()

    @property
    def sources(self) -> tuple[tuple[int, Source], ...]:
        """The sources with their numbers."""
        return tuple((i, n) for i, n in enumerate(self.nodes) if isinstance(n, Source))

    @property
    def source_names(self) -> dict[int, str]:
        """The name of each source; of several with one name, all but the first get a number."""
        names: dict[int, str] = {}
        for number, source in self.sources:
            name, same = source.name, 1
            while name in names.values():
                same += 1
                name = f"{source.name} #{same}"
            names[number] = name
        return names

    def columns_read(self, number: int) -> dict[str, pl.DataType]:
        """Return the columns of a source that the query reads, its event time among them."""
        source = self.nodes[number]
        assert isinstance(source, Source)
        needed = self.required[number] | source.time_columns
        return {name: dtype for name, dtype in source.schema.items() if name in needed}

    @property
    def sinks(self) -> tuple[tuple[int, Sink], ...]:
        """The sinks with their numbers."""
        return tuple((i, n) for i, n in enumerate(self.nodes) if isinstance(n, Sink))

    @property
    def stateful(self) -> tuple[int, ...]:
        """The numbers of the stateful operators."""
        return tuple(i for i, n in enumerate(self.nodes) if n.stateful)

    @property
    def stage_sizes(self) -> tuple[int, ...]:
        """The number of tasks of each stage."""
        stages = max(unit.stage for unit in self.units) + 1
        return tuple(sum(u.instances for u in self.units if u.stage == s) for s in range(stages))

    @property
    def scattered(self) -> bool:
        """Whether subquery 0 runs where Spark has the rows: in each partition of a DataFrame.

        So it is if the only source is one that Spark reads. Its rows are combined before they
        leave the task that got them from the JVM; there are as many tasks as Spark has partitions.
        """
        sources = self.sources
        return len(sources) == 1 and not sources[0][1].reader.native

    def unit_at(self, stage: int, task: int) -> Unit:
        """Return the unit that a task of a stage runs."""
        if self.scattered and stage == 0:
            return self.units[0]
        return next(
            unit
            for unit in self.units
            if unit.stage == stage and 0 <= task - unit.first_task < unit.instances
        )

    def operator_name(self, node: int) -> str:
        """Return the stable name of an operator; a stateful one keeps its state under it.

        The name comes from the operator's place among its kind, so that a new filter or sink after
        it leaves the name as it was.
        """
        kind, stateful = type(self.nodes[node]), self.nodes[node].stateful
        same = [i for i, n in enumerate(self.nodes) if (type(n), n.stateful) == (kind, stateful)]
        place = same.index(node)
        return f"{kind.__name__.lower()}-{place}"

    def subquery_name(self, subquery: int) -> str:
        """Return the name of a subquery, that of its head; it stays if other subqueries change."""
        head = self.subqueries[subquery].head
        return "sources" if head is None else self.operator_name(head)

    def find_subquery(self, given: int | str) -> int:
        """Return the number of a subquery that is given by its number or its name.

        Raises:
            ConfigError: There is none.
        """
        names = {self.subquery_name(s.id): s.id for s in self.subqueries}
        found = names.get(str(given), given)
        with suppress(ValueError):
            if 0 <= int(found) < len(self.subqueries):
                return int(found)
        known = ", ".join(f"{number} ({name})" for name, number in names.items())
        raise ConfigError(name="subquery", value=given, allowed=known)

    def grid_of(self, subquery: int) -> Grid | None:
        """Return the grid of a subquery whose head is on one."""
        head = self.subqueries[subquery].head
        on_grid = head is not None and self.nodes[head].grid(0)
        return Grid.of(self.buckets) if on_grid else None

    def window_of(self, subquery: int) -> TimeWindow | None:
        """Return the time windows of a subquery's head; None if it has no such windows."""
        head = self.subqueries[subquery].head
        node = None if head is None else self.nodes[head]
        if isinstance(node, Aggregate) and isinstance(node.window, TimeWindow):
            return node.window
        return None

    def owners(self, subquery: int, instances: int | None = None) -> BucketMap:
        """Return the map that spreads the buckets (or cells) of a subquery evenly.

        Args:
            subquery: The subquery.
            instances: Over how many instances; as many as it has unless given.
        """
        grid, instances = self.grid_of(subquery), instances or self.subqueries[subquery].instances
        return grid.owners(instances) if grid else BucketMap.even(self.buckets, instances)

    def is_movable(self, subquery: int) -> bool:
        """Return whether single buckets of a subquery can move: rows go to it by bucket."""
        keyed = any(e.keys is not None for e in self.edges_into(subquery))
        return keyed and self.grid_of(subquery) is None

    def is_fixed(self, subquery: int) -> bool:
        """Return whether a subquery always has one instance."""
        head = self.subqueries[subquery].head
        return head is not None and self.nodes[head].alone

    def edges_into(self, subquery: int) -> tuple[Edge, ...]:
        """Return the edges that end at a subquery."""
        return tuple(e for e in self.edges if e.to_subquery == subquery)

    def edges_from(self, subquery: int) -> tuple[Edge, ...]:
        """Return the edges that begin at a subquery."""
        return tuple(e for e in self.edges if e.from_subquery == subquery)

    def unit_of(self, subquery: int) -> Unit:
        """Return the unit that runs a subquery."""
        return next(u for u in self.units if subquery in u.subqueries)
