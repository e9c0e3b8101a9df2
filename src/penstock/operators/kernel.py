"""What every stateful operator offers to the runtime.

A kernel is a frozen configuration. State is an immutable value: `advance` returns a new one and
leaves the old one as it was, so a task that is run again starts from the same state. What an epoch
adds to the state is its delta: rows with ``__until``, the watermark at which they are no longer
needed. Law: restoring from all deltas that are still needed gives the state that was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from penstock.operators.stateless import Refusal

UNTIL = "__until"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advanced:
    """What one epoch did to an operator."""

    state: Any
    results: pl.DataFrame
    refusals: tuple[Refusal, ...] = ()


class Kernel(Protocol):
    """A stateful operator over frames."""

    def restore(self, deltas: Sequence[pl.DataFrame], watermark: int) -> Any:
        """Return the state at a watermark from the deltas of the past."""
        ...

    def delta(self, arrived: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Return what the rows of an epoch add to the state; no columns if there are none."""
        ...

    def advance(self, state: Any, arrived: Sequence[pl.DataFrame], watermark: int) -> Advanced:
        """Take the rows of an epoch and everything that the new watermark makes final."""
        ...

    def compact(self, deltas: Sequence[pl.DataFrame], watermark: int) -> pl.DataFrame:
        """Return one delta that stands for several at a watermark."""
        ...
