"""Scenarios: a query, its rows by epoch and how it is run, all from one seed.

Law: a scenario is a value of its seed; two runs of it differ only in the faults they meet.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any

import polars as pl

from penstock.base.config import Config
from penstock.compiler import STRATEGIES
from penstock.plan.buckets import BucketMap
from penstock.plan.changes import MoveProtocol
from penstock.plan.compiled import CompiledQuery
from penstock.query.stream import Sinks
from penstock.state import compaction, retention
from penstock.task import operator_state
from penstock.testing.faults.shapes import COLUMNS, SHAPES, Layout, Shape, built, compiled
from penstock.testing.runner import Batch

Row = dict[str, Any]
EPOCHS = 10
EPOCH_SECONDS = 7.0
"""How far the clock goes from one epoch to the next."""
_ORIGIN = datetime(2024, 1, 1)
WINDOWED = ("tumbling", "sliding", "kept", "chained", "united", "split", "idle")
"""The shapes with aggregates over windows of time."""
TIGHT: tuple[tuple[Any, str, Any], ...] = (
    (retention, "SWEEP", 4),
    (compaction, "EAGER", 2),
    (compaction, "LAZY", 2),
    (operator_state, "_MANY", 0),
)
"""Limits that only long runs would reach, set so low that short ones do."""


@dataclass(frozen=True, slots=True)
class Moves:
    """Some buckets of every subquery go to other instances.

    Attributes:
        first: The first of the buckets.
        step: How far it is from one to the next.
        shift: How many instances further they go.
        protocol: How their state moves; it is read where windows cannot be finished.
    """

    first: int
    step: int
    shift: int
    protocol: MoveProtocol

    def of(self, owners: BucketMap) -> dict[int, int]:
        """Return the new owner of each bucket that moves."""
        buckets, count = range(self.first, len(owners.owners), self.step), owners.instances
        shift = 1 + self.shift % (count - 1) if count > 1 else 0
        return {b: (owners.owners[b] + shift) % count for b in buckets}


@dataclass(frozen=True)
class Scenario:
    """A query and everything that happens to it but faults.

    Attributes:
        seed: The seed that it comes from.
        kind: The name of the query's shape.
        rows: The rows of each source, by epoch.
        layout: How the query is spread at first.
        rescales: Other numbers of instances, by the epoch before which they come.
        moves: Moves of buckets, by the epoch before which they come.
        retain_epochs: How many epochs back the state can be read.
        retain_seconds: For how many seconds it can be.
        finish: Whether the last epoch ends the input.
    """

    seed: int
    kind: str
    rows: tuple[tuple[tuple[Row, ...], ...], ...]
    layout: Layout
    rescales: Mapping[int, int]
    moves: Mapping[int, Moves]
    retain_epochs: int
    retain_seconds: int
    finish: bool

    @property
    def shape(self) -> Shape:
        """The shape of the query."""
        return SHAPES[self.kind]

    @property
    def epochs(self) -> int:
        """How many epochs there are in all."""
        return len(self.rows) + self.finish

    @property
    def config(self) -> Config:
        """How the query runs."""
        return Config(retainEpochs=self.retain_epochs, retainSeconds=self.retain_seconds)

    def sinks(self, folder: str) -> Sinks:
        """Return the query, with its files below a folder."""
        return built(self.kind, folder)

    def query(self, folder: str, layout: Layout | None = None) -> CompiledQuery:
        """Return the compiled query, with its files below a folder."""
        return compiled(self.kind, folder, layout or self.layout)

    @cached_property
    def batches(self) -> tuple[Batch, ...]:
        """The frames of each epoch; two of each source, so that instances share its rows."""
        return tuple(
            {
                number: [pl.DataFrame(part, schema=COLUMNS) for part in _halves(rows)]
                for number, rows in enumerate(sources)
                if rows
            }
            for sources in self.rows
        )

    def is_final(self, epoch: int) -> bool:
        """Return whether an epoch is the one that ends the input."""
        return epoch == len(self.rows)

    def until(self, epoch: int) -> dict[int, list[Row]]:
        """Return the rows of each source up to an epoch, as the reference takes them."""
        return {
            number: [row for sources in self.rows[: epoch + 1] for row in sources[number]]
            for number in range(self.shape.sources)
        }


def _halves(rows: tuple[Row, ...]) -> list[list[Row]]:
    middle = len(rows) // 2
    return [list(part) for part in (rows[:middle], rows[middle:]) if part]


def any_layout(choice: random.Random) -> Layout:
    """Return a way to spread a query."""
    return Layout(choice.choice(STRATEGIES), choice.choice((1, 1, 1, 2, 2, 3)))


@lru_cache(maxsize=64)
def scenario_of(seed: int, epochs: int = EPOCHS, kind: str | None = None) -> Scenario:
    """Return the scenario of a seed."""
    choice, moving = random.Random(f"scenario {seed}"), random.Random(f"moves {seed}")
    drawn, layout = kind or choice.choice(list(SHAPES)), any_layout(choice)
    busy = moving.random() < 0.3  # windows that are always on their way from one to the other
    kind = moving.choice(WINDOWED) if busy and kind is None else drawn
    layout = replace(layout, instances=moving.choice((2, 3))) if busy else layout
    rescales = {e: choice.choice((1, 1, 2, 3)) for e in range(1, epochs) if choice.random() < 0.15}
    return Scenario(
        seed=seed,
        kind=kind,
        rows=_rows(choice, epochs, SHAPES[kind]),
        layout=layout,
        rescales=rescales,
        moves=_moves(moving, epochs, 0.6 if busy else 0.2),
        retain_epochs=choice.choice((1, 2, 3)),
        retain_seconds=choice.choice((0, 0, 10)),
        finish=choice.random() < 0.3,
    )


def _moves(choice: random.Random, epochs: int, share: float) -> dict[int, Moves]:
    protocols: tuple[MoveProtocol, ...] = ("window", "window", "window", "state", "auto")
    return {
        epoch: Moves(
            choice.randrange(2),
            choice.choice((1, 2)),
            choice.choice((1, 2)),
            choice.choice(protocols),
        )
        for epoch in range(1, epochs)
        if choice.random() < share
    }


def _rows(
    choice: random.Random, epochs: int, shape: Shape
) -> tuple[tuple[tuple[Row, ...], ...], ...]:
    """Return rows whose times go on from epoch to epoch; each source has a late and a bad one."""
    found = []
    for epoch in range(epochs):
        sources = []
        for number in range(shape.sources):
            silent = shape.idle and number == 1 and 3 <= epoch < epochs - 2
            rows = [] if silent else _source_rows(choice, epoch)
            if epoch in (2, 4) and rows:
                rows += [
                    {"k": "late", "g": 0, "x": 1, "s": "1", "ts": _ORIGIN},
                    {"k": "a", "g": 0, "x": 1, "s": "no number", "ts": rows[-1]["ts"]},
                    {"k": "timeless", "g": 0, "x": 1, "s": "1", "ts": None},
                ]
            sources.append(tuple(rows))
        found.append(tuple(sources))
    return tuple(found)


def _source_rows(choice: random.Random, epoch: int) -> list[Row]:
    count = choice.choice((3, 4, 5, 6))
    return [_row(choice, epoch, i / count) for i in range(count)]


def _row(choice: random.Random, epoch: int, share: float) -> Row:
    behind = choice.choice((0, 0, 0.5, 1, 1.5, 6))
    ts = _ORIGIN + timedelta(seconds=4 * (epoch + 3 + share) - behind)
    x = choice.randrange(100)
    return {
        "k": choice.choice("abcdef"),
        "g": choice.randrange(5),
        "x": x,
        "s": str(x) if choice.random() < 0.99 else "z",
        "ts": ts,
    }


@contextmanager
def replaced(changes: tuple[tuple[Any, str, Any], ...]) -> Iterator[None]:
    """Give names in modules and classes other values for a while."""
    with ExitStack() as stack:
        for owner, name, value in changes:
            before = vars(owner)[name]
            setattr(owner, name, value)
            stack.callback(setattr, owner, name, before)
        yield
