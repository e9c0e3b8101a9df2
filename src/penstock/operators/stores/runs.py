"""Waiting rows: a few frames, each sorted by one number, until a frontier passes them.

Frames are put into tiers, each four times the size of the one below; four of a tier become one.
Laws: n rows wait in O(log n) frames, and a row is merged O(log n) times; to take the rows below a
frontier costs as much as they are many, and for the rest a look at each frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from penstock.operators.stores.pieces import Piece

FANOUT = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """Rows sorted by a column whose values go from ``low`` to ``high``."""

    rows: pl.DataFrame
    low: int
    high: int

    @classmethod
    def of(cls, rows: pl.DataFrame, column: str) -> Run:
        """Return the run of rows in any order; there must be one at least.

        >>> run = Run.of(pl.DataFrame({"t": [3, 1, 2]}), "t")
        >>> run.low, run.high, run.rows["t"].to_list()
        (1, 3, [1, 2, 3])
        """
        ordered = rows if rows[column].is_sorted() else rows.sort(column)
        return cls._of_sorted(ordered, column)

    @classmethod
    def _of_sorted(cls, rows: pl.DataFrame, column: str) -> Run:
        return cls(rows=rows, low=rows[column][0], high=rows[column][-1])

    def cut(self, column: str, frontier: int) -> tuple[pl.DataFrame, Run]:
        """Return the rows below a frontier that lies inside the run, and the run of the rest."""
        place = int(self.rows[column].search_sorted(frontier))
        rest = self.rows[place:]
        if 2 * rest.height < self.rows.height:  # a slice would keep the memory of all
            rest = rest.select(pl.all().gather(pl.int_range(pl.len())))
        return self.rows[:place], Run._of_sorted(rest, column)


def run_pieces(runs: Iterable[Run]) -> Iterator[Piece]:
    """Yield what runs are made of."""
    return (run.rows for run in runs)


def take_below(
    runs: Iterable[Run], column: str, frontier: int
) -> tuple[list[pl.DataFrame], tuple[Run, ...]]:
    """Return the rows below a frontier, frame by frame, and the runs that wait on."""
    taken: list[pl.DataFrame] = []
    waiting: list[Run] = []
    for run in runs:
        if run.high < frontier:
            taken.append(run.rows)
        elif run.low >= frontier:
            waiting.append(run)
        else:
            below, rest = run.cut(column, frontier)
            taken.append(below)
            waiting.append(rest)
    return taken, tuple(waiting)


def add_run(
    runs: Sequence[Run], run: Run, merge: Callable[[Sequence[pl.DataFrame]], Run]
) -> tuple[Run, ...]:
    """Add a run; where a tier is full, its runs become one by ``merge``."""
    grown = [*runs, run]
    while full := _full_tier(grown):
        grown = [r for r in grown if r not in full]
        grown.append(merge([r.rows for r in full]))
    return tuple(grown)


def _full_tier(runs: Sequence[Run]) -> list[Run]:
    tiers: dict[int, list[Run]] = {}
    for run in runs:
        tiers.setdefault((run.rows.height.bit_length() - 1) // 2, []).append(run)
    full = [tier for tier, members in tiers.items() if len(members) >= FANOUT]
    return tiers[min(full)] if full else []
