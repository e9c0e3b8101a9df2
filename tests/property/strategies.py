"""Hypothesis strategies for queries, rows and what happens to a run of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st

from penstock.base.errors import ConfigError
from penstock.compiler import STRATEGIES
from penstock.control import read_speed
from penstock.operators.keyed import process
from penstock.operators.pairs import blocks
from penstock.operators.pairs import results as pairs
from penstock.operators.stores import bands, keyed_rows, numbered_rows, runs
from penstock.operators.stores import keys as operators_keys
from penstock.operators.windows import aggregate, combine, count
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import MoveProtocol
from penstock.task import operator_state, stager, worker
from penstock.testing.streams import TestStream
from tests.property.queries import (
    DEDUPS,
    ENRICHES,
    FILTERS,
    JOINS,
    LISTS,
    MAPS,
    PROCESSES,
    PRODUCTS,
    ROUTES,
    TOPS,
    VALUES,
    WINDOWS,
    QueryText,
    SinkOf,
    Step,
)

Row = dict[str, Any]
INSTANCES = st.integers(1, 7)
TIGHT: tuple[tuple[Any, str, Any], ...] = (
    (combine, "_LONG_RUN", 2),
    (operators_keys, "_FEW", 1),
    (operators_keys, "_TIMES", 10**9),
    (runs, "FANOUT", 2),
    (aggregate, "_LARGE", 0),
    (aggregate, "_SLOTS", 8),
    (worker, "memory_bytes", lambda: 32_000),
    (pairs, "BLOCK", 5),
    (bands, "TIME_BITS", 22),
    (blocks, "ROWS", 3),
    (blocks, "FEW", 0),
    (count, "_MOST", 4),
    (keyed_rows, "_TIMES", 0),
    (keyed_rows, "_FEW", 1),
    (numbered_rows, "_LARGEST", 2),
    (process, "_SLICE", 2),
    (stager, "FILE_ROWS", 4),
    (operator_state, "_MANY", 0),
    (read_speed, "READ_BYTES_PER_SECOND", 1),
)
"""Limits that only large runs would reach, set so low that small ones do."""
ORIGINS = (datetime(1970, 1, 1), datetime(2024, 2, 29, 12))

KEYS = ("k", "g", "y")


def several(items: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[tuple[Any, ...]]:
    """Return lists of up to ``most`` items; long ones are as likely as short ones."""
    least = st.sampled_from([0, most // 2, most - 1, most // 3])
    return least.flatmap(lambda n: st.lists(items, min_size=n, max_size=most)).map(tuple)


values = st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4, unique=True).map(tuple)
keys = st.lists(st.sampled_from(KEYS), max_size=2, unique=True).map(tuple)
inputs = st.sampled_from([0, 0, 0, 0, 1, 2, 3, 4])
_NAMES: dict[str, Iterable[str]] = {
    "map": MAPS,
    "filter": FILTERS,
    "route": ROUTES,
    "union": [""],
    "apply": ["doubled"],
    "spread": [""],
    "aggregate": WINDOWS,
    "join": JOINS,
    "product": PRODUCTS,
    "process": PROCESSES,
    "dedup": DEDUPS,
    "top": TOPS,
    "lookup": ENRICHES,
    "enrich": ENRICHES,
    "explode": LISTS,
}
_KINDS = [*_NAMES, "aggregate", "join", "aggregate", "process"]
_TWO_INPUTS = ("union", "join", "product", "enrich")


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """Draw an operator, most on the newest stream."""
    kind = draw(st.sampled_from(_KINDS))
    which, place = draw(st.sampled_from(list(_NAMES[kind]))), draw(inputs)
    if kind == "aggregate":
        return Step(kind=kind, which=which, input=place, by=draw(keys), values=draw(values))
    other = draw(inputs) if kind in _TWO_INPUTS else 0
    return Step(kind=kind, which=which, input=place, other=other)


sinks = st.builds(
    SinkOf, stream=inputs, ordered=st.booleans(), raw=st.booleans(), parquet=st.booleans()
)
queries = st.builds(
    QueryText,
    delays=st.lists(st.sampled_from([0, 2, 5, 20]), min_size=1, max_size=2).map(tuple),
    steps=several(steps(), 6),
    sinks=st.tuples(
        st.builds(SinkOf, ordered=st.booleans(), raw=st.booleans()), st.lists(sinks, max_size=2)
    ).map(lambda drawn: (drawn[0], *drawn[1])),
)


@st.composite
def arrivals(draw: st.DrawFn, *, max_size: int = 45) -> list[Row]:
    """Draw the rows of a source in order of arrival: a clock that advances, rows behind it."""
    drawn = draw(several(_fields, max_size))
    clock = draw(st.sampled_from(ORIGINS)) - timedelta(seconds=20)
    rows = []
    for advance, behind, k, g, x, y, s, d in drawn:
        clock += timedelta(seconds=advance)
        ts = None if behind is None else clock - timedelta(seconds=behind)
        rows.append({"k": k, "g": g, "x": x, "y": None if y is None else y / 4, "s": s,
                     "d": None if d is None else timedelta(seconds=d), "ts": ts})  # fmt: skip
    return rows


_fields = st.tuples(
    st.sampled_from([0, 1, 2, 0.5, 6, 0, 1, 2, 0.5, 6, 1, 2, 1, 4e8]),
    st.sampled_from([0, 1, 0.5, 3, 5, 9, 30, None]),
    st.sampled_from(["a", "b", "c", None]),
    st.sampled_from([0, 1, 2, None]),
    st.sampled_from([0, 1, 4, -7, 9, 60, None]),
    st.sampled_from([0, 1, -3, 10, 27, None, -0.0]),
    st.sampled_from(["1", "2", "-3", None, "1", "2", "1", "2", "1", "2", "z"]),
    st.sampled_from([0, 1, -7, 3600, None]),
)


@dataclass(frozen=True)
class Add:
    """An epoch on the next rows of each source."""

    sizes: tuple[int, int] = (5, 5)
    splits: int = 1


@dataclass(frozen=True)
class Crash:
    """A crash between two epochs, or in one on the next rows of each source."""

    sizes: tuple[int, int] | None = None
    committed: bool = False
    lose_workers: bool = True


@dataclass(frozen=True)
class Rescale:
    """Other sizes from the next epoch on."""

    subquery: int
    instances: int
    protocol: MoveProtocol = "auto"


@dataclass(frozen=True)
class MoveBuckets:
    """Every ``step``-th bucket, from the first on, goes to another instance, by ``shift``."""

    subquery: int
    first: int = 0
    step: int = 1
    shift: int = 1
    protocol: MoveProtocol = "window"

    def moves(self, owners: BucketMap) -> dict[int, int]:
        """Return the new owner of each bucket that moves."""
        buckets = range(self.first % len(owners.owners), len(owners.owners), self.step)
        further = 1 + self.shift % max(1, owners.instances - 1)
        return {b: (owners.owners[b] + further) % owners.instances for b in buckets}


@dataclass(frozen=True)
class HoldBack:
    """Every ``step``-th bucket of an operator, from the first on, stays behind; no others do."""

    operator: int
    first: int = 0
    step: int = 1

    def buckets(self, count: int) -> range:
        """Return the buckets of so many that stay behind."""
        return range(self.first % count, count, self.step)


@dataclass(frozen=True)
class LetGo:
    """No bucket stays behind any longer."""


@dataclass(frozen=True)
class Restart:
    """A stop and a new start with another strategy and other sizes."""

    strategy: str
    instances: int


Event = Add | Crash | Rescale | MoveBuckets | HoldBack | LetGo | Restart
protocols = st.sampled_from(["auto", "window", "state", "window"])
sizes = st.tuples(st.integers(0, 20), st.integers(0, 20))
events: st.SearchStrategy[Event] = st.one_of(
    st.builds(Add, sizes=sizes, splits=st.integers(1, 4)),
    st.builds(Add, sizes=sizes, splits=st.integers(1, 4)),
    st.builds(Crash, sizes=st.none() | sizes, committed=st.booleans(), lose_workers=st.booleans()),
    st.builds(Rescale, subquery=st.integers(0, 9), instances=INSTANCES, protocol=protocols),
    st.builds(
        MoveBuckets,
        subquery=st.integers(0, 9),
        first=st.integers(0, 3),
        step=st.integers(1, 3),
        shift=st.integers(1, 6),
        protocol=protocols,
    ),
    st.builds(
        HoldBack, operator=st.integers(0, 9), first=st.integers(0, 3), step=st.integers(1, 3)
    ),
    st.just(LetGo()),
    st.builds(Restart, strategy=st.sampled_from(STRATEGIES), instances=INSTANCES),
)


@dataclass(frozen=True)
class Scenario:
    """A query, its rows, and how it is run."""

    query: QueryText
    rows: tuple[list[Row], ...]
    events: tuple[Event, ...] = ()
    finish: bool = False
    instances: int | tuple[int, ...] = 1
    strategy: str = STRATEGIES[0]
    buckets: int = 1024
    tight: bool = False
    workers: int = 1

    def check(self) -> None:
        """Run the scenario and compare it with the reference."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="penstock-test-")))
            if self.tight:
                for module, name, value in TIGHT:
                    stack.enter_context(patch.object(module, name, value))
            self._run(folder)

    def _run(self, folder: Path) -> None:
        sizes = (
            self.instances if isinstance(self.instances, int) else dict(enumerate(self.instances))
        )
        with TestStream(self.query.build(folder), folder / "checkpoint", instances=sizes,
                        strategy=self.strategy, buckets=self.buckets,
                        workers=self.workers) as stream:  # fmt: skip
            _Player(self, stream).play()
            stream.expect_reference()


class _Player:
    """Carries out the events of a scenario."""

    def __init__(self, scenario: Scenario, stream: TestStream) -> None:
        self.scenario, self.stream = scenario, stream
        self.left = [list(rows) for rows in scenario.rows]
        self.held: set[str] = set()

    def play(self) -> None:
        for event in self.scenario.events:
            self._do(event)
        if any(self.left):
            self.stream.add(self._next((10**6, 10**6)))
        if self.scenario.finish:
            self.stream.finish()
        elif self.held:
            self._let_go()
            self.stream.advance()

    def _do(self, event: Event) -> None:
        if isinstance(event, Add):
            self.stream.add(self._next(event.sizes), splits=event.splits)
        elif isinstance(event, Crash):
            rows = None if event.sizes is None else self._next(event.sizes)
            self.stream.crash(rows, committed=event.committed, lose_workers=event.lose_workers)
        elif isinstance(event, Rescale):
            self._rescale(event)
        elif isinstance(event, MoveBuckets):
            self._move(event)
        elif isinstance(event, HoldBack):
            self._hold(event)
        elif isinstance(event, LetGo):
            self._let_go()
        else:
            self.stream.crash(strategy=event.strategy, instances=event.instances)

    def _rescale(self, event: Rescale) -> None:
        subquery = event.subquery % self.stream.subqueries
        _as_asked(
            lambda protocol: self.stream.rescale(subquery, event.instances, protocol=protocol),
            event.protocol,
        )

    def _move(self, event: MoveBuckets) -> None:
        movable = self.stream.movable
        if not movable:
            return
        subquery = movable[event.subquery % len(movable)]
        moves = event.moves(self.stream.owners[subquery])
        _as_asked(
            lambda protocol: self.stream.move(subquery, moves, protocol=protocol), event.protocol
        )

    def _hold(self, event: HoldBack) -> None:
        if self.stream.stateful:
            operator = self.stream.stateful[event.operator % len(self.stream.stateful)]
            self.stream.hold(operator, event.buckets(self.scenario.buckets))
            self.held.add(operator)

    def _let_go(self) -> None:
        for operator in self.held:
            self.stream.hold(operator, ())

    def _next(self, sizes: tuple[int, int]) -> dict[int | str, list[Row]]:
        taken: dict[int | str, list[Row]] = {}
        for number, size in enumerate(sizes[: len(self.left)]):
            if f"s{number}" in self.stream.sources:
                taken[f"s{number}"] = self.left[number][:size]
            self.left[number] = self.left[number][size:]
        return taken


def _as_asked(change: Callable[[MoveProtocol], None], protocol: MoveProtocol) -> None:
    """Ask for a change; by state recreation where the protocol is refused."""
    try:
        change(protocol)
    except ConfigError:
        change("state")


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw a query, rows for its sources, and a run."""
    query = draw(queries)
    return Scenario(
        query=query,
        rows=tuple(draw(arrivals()) for _ in query.delays),
        events=draw(several(events, 7)),
        finish=draw(st.sampled_from([False, True, True])),
        instances=draw(
            st.one_of(INSTANCES, st.lists(INSTANCES, min_size=12, max_size=12).map(tuple))
        ),
        strategy=draw(st.sampled_from(STRATEGIES)),
        buckets=draw(st.sampled_from([1024, 7])),
        tight=draw(st.booleans()),
        workers=draw(st.integers(1, 3)),
    )


@st.composite
def held_scenarios(draw: st.DrawFn) -> Scenario:
    """Draw a run in which buckets stay behind again and again, among all that may happen."""
    scenario = draw(scenarios())
    holds = st.builds(
        HoldBack, operator=st.integers(0, 9), first=st.integers(0, 3), step=st.integers(1, 3)
    )
    rounds = draw(st.lists(st.tuples(holds, events, st.builds(Add, sizes=sizes)), min_size=1,
                           max_size=4))  # fmt: skip
    return replace(scenario, events=tuple(event for one in rounds for event in one))


@st.composite
def spread_scenarios(draw: st.DrawFn) -> Scenario:
    """Draw a run of a query in which subqueries begin again and again, with several instances."""
    scenario = draw(scenarios())
    found: list[Step] = []
    for step in scenario.query.steps:
        found += [step, *[Step(kind="spread", which="")] * draw(st.integers(0, 1))]
    last = Step(kind="spread", which="", input=draw(inputs))
    steps = (*found, last, Step(kind="apply", which="doubled"))
    return replace(
        scenario,
        query=replace(scenario.query, steps=steps),
        instances=draw(st.lists(INSTANCES, min_size=16, max_size=16).map(tuple)),
    )
