"""Rows that wait until they are final: until the watermark says that no earlier row can come.

Law: a row leaves in the first epoch whose watermark is above its event time, and no other; rows
that wait cost nothing in the epochs between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from penstock.base.columns import TIME
from penstock.operators.stores.runs import Run, add_run, take_below

Waiting = tuple[Run, ...]
"""Rows at or above the watermark, by event time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a watermark made of waiting and of fresh rows.

    Attributes:
        final: Frames of rows below the watermark, in no order.
        later: Frames of the fresh rows that wait from now on.
        waiting: All rows that wait.
    """

    final: list[pl.DataFrame]
    later: list[pl.DataFrame]
    waiting: Waiting


def take_final(waiting: Waiting, fresh: Iterable[pl.DataFrame], watermark: int) -> Taken:
    """Return the rows that are final at a watermark, and those that wait; no frame is empty.

    >>> taken = take_final((), [pl.DataFrame({TIME: [1, 5]})], 3)
    >>> taken.final[0][TIME].to_list(), taken.waiting[0].low
    ([1], 5)
    """
    final, runs = take_below(waiting, TIME, watermark)
    later = []
    for frame in fresh:
        final += [below] if (below := frame.filter(pl.col(TIME) < watermark)).height else []
        later += [above] if (above := frame.filter(pl.col(TIME) >= watermark)).height else []
    if later:
        runs = add_run(runs, by_time(later), by_time)
    return Taken(final=final, later=later, waiting=runs)


def waiting_of(rows: pl.DataFrame) -> Waiting:
    """Return rows as they wait."""
    return (by_time([rows]),) if rows.height else ()


def by_time(frames: Sequence[pl.DataFrame]) -> Run:
    """Return rows as one run by event time."""
    return Run.of(pl.concat(frames, rechunk=True), TIME)
