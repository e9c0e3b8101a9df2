"""What every stateful operator offers to the runtime.

A kernel is a frozen configuration. State is an immutable value: `advance` returns a new one and
leaves the old one as it was, so a task that is run again starts from the same state. What an epoch
adds to the state is its delta: rows with ``__until``, the watermark at which they are no longer
needed. Law: restoring from all deltas that are still needed gives the state that was. Results have
the operator's number as their source and the position 0 (`place_results`): they are in stream order
by event time, operator and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import polars as pl

from penstock.base.columns import POSITION, SOURCE, TIME
from penstock.operators.rowwise.blame import Refusal
from penstock.operators.stores.pieces import Piece, total_bytes

UNTIL = "__until"
SIDE = "__side"
"""Which input of a binary operator a row came from: 0 is left, 1 is right."""
FOREVER = (1 << 63) - 1
"""As `UNTIL`: no watermark makes the row superfluous; only `Kernel.compact` can tell."""
Emit = Callable[[pl.DataFrame], None]
"""Takes results that an operator has found before it is done, so that not all of them wait."""
HIDDEN: dict[str, pl.DataType] = {TIME: pl.Int64(), SOURCE: pl.Int32(), POSITION: pl.Int64()}
"""The types of the hidden columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
    """What one epoch did to an operator.

    ``kept`` is what it adds to the state beside `Kernel.delta`: rows that only the work itself
    could tell, such as a key's new state.
    """

    state: Any
    results: pl.DataFrame
    refusals: tuple[Refusal, ...] = ()
    kept: pl.DataFrame = field(default_factory=pl.DataFrame)


class Kernel(Protocol):
    """A stateful operator over frames."""

    def pieces(self, state: Any) -> Iterable[Piece]:
        """Return what a state is made of, so that it can be weighed (`state_bytes`)."""
        ...

    def prepare(self, rows: pl.LazyFrame, port: int) -> pl.LazyFrame:
        """Return what is sent of rows that go to one of the operator's inputs, row by row."""
        ...

    def combine(self, prepared: pl.DataFrame) -> pl.DataFrame:
        """Return fewer rows that mean the same to `advance`, or the rows as they are."""
        ...

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> Any:
        """Return the state at a watermark from the deltas of the past."""
        ...

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return what the rows of an epoch add to the state; no columns if there are none."""
        ...

    def advance(self, state: Any, arrived: Sequence[pl.DataFrame], watermark: int) -> Advanced:
        """Take the rows of an epoch and everything that the new watermark makes final."""
        ...

    def compact(
        self, deltas: Sequence[pl.DataFrame], watermark: int, whole: bool = False
    ) -> pl.DataFrame:
        """Return one delta that stands for several at a watermark.

        Args:
            deltas: The deltas.
            watermark: The operator's watermark.
            whole: Whether no other delta has older rows, so that a note that a key's state is gone
                has nothing left to say.
        """
        ...


@runtime_checkable
class CatchesUp(Protocol):
    """A kernel that can bring an older state up to date."""

    def catch_up(self, state: Any, deltas: Sequence[pl.DataFrame], watermark: int) -> Any:
        """Return the state at a watermark from an older one and the deltas since then.

        Results that became final meanwhile were written by others.
        """
        ...


@runtime_checkable
class Unfolds(Protocol):
    """A kernel that can tell a state as deltas, so that states are cut and joined in memory."""

    def unfold(self, state: Any) -> list[pl.DataFrame]:
        """Return deltas from which `Kernel.restore` makes the state again."""
        ...


def state_bytes(kernel: Kernel, state: Any) -> int:
    """Return how many bytes a state of a kernel takes in memory."""
    return total_bytes(kernel.pieces(state))


def place_results(results: pl.LazyFrame, operator: int, ordered: bool) -> pl.LazyFrame:
    """Return results, which have their event time, with their place in stream order if wanted."""
    if not ordered:
        return results
    return results.with_columns(
        pl.lit(operator, dtype=pl.Int32).alias(SOURCE), pl.lit(0, dtype=pl.Int64).alias(POSITION)
    )


def empty_results(schema: Mapping[str, pl.DataType], ordered: bool) -> pl.DataFrame:
    """Return no results, with the columns that results have."""
    return pl.DataFrame(schema=dict(schema) | (HIDDEN if ordered else {TIME: pl.Int64()}))
