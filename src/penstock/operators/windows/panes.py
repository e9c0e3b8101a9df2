"""The arithmetic of panes and windows.

A window covers ``per_window`` panes and begins every ``step`` panes. Panes are grouped into nodes
of 2, 4, 8, … panes; a window is the union of at most ``2 log2(per_window)`` nodes. All of this is
arithmetic on their numbers; only where a pane begins depends on the window's offset and zone. Law:
the nodes of a window are disjoint and cover exactly its panes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from penstock.operators.windows.clocks import pane_at, pane_start, pane_starts, panes_at
from penstock.query.windows import TimeWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class Panes:
    """How a time window is cut into panes."""

    width_us: int
    per_window: int
    step: int
    offset_us: int = 0
    zone: str | None = None

    @classmethod
    def of(cls, window: TimeWindow) -> Panes:
        """Return the panes of a window.

        >>> from penstock.query.windows import sliding
        >>> Panes.of(sliding("1 minute", every="10 seconds"))
        Panes(width_us=10000000, per_window=6, step=1, offset_us=0, zone=None)
        """
        width = window.pane_us
        return cls(
            width_us=width,
            per_window=window.size_us // width,
            step=window.every_us // width,
            offset_us=window.offset_us,
            zone=window.zone,
        )

    def pane_of(self, time: pl.Expr) -> pl.Expr:
        """Return the pane of a time in microseconds.

        >>> panes = Panes(width_us=10, per_window=1, step=1, offset_us=3)
        >>> pl.select(panes.pane_of(pl.lit(12)), at=panes.start_of(pl.lit(1))).row(0)
        (0, 13)
        """
        if self.zone is not None:
            clock = (self.width_us, self.offset_us, self.zone)
            return time.map_batches(lambda some: panes_at(some, *clock), return_dtype=pl.Int64)
        return (time - self.offset_us if self.offset_us else time).floordiv(self.width_us)

    def start_of(self, pane: pl.Expr) -> pl.Expr:
        """Return the time at which a pane begins, in microseconds."""
        if self.zone is not None:
            clock = (self.width_us, self.offset_us, self.zone)
            return pane.map_batches(lambda some: pane_starts(some, *clock), return_dtype=pl.Int64)
        start = pane * self.width_us
        return start + self.offset_us if self.offset_us else start

    def start_at(self, pane: int) -> int:
        """Return the time at which one pane begins."""
        if self.zone is not None:
            return pane_start(pane, self.width_us, self.offset_us, self.zone)
        return pane * self.width_us + self.offset_us

    def window_start(self, window: pl.Expr) -> pl.Expr:
        """Return the time at which a window begins."""
        return self.start_of(window * self.step)

    def window_end(self, window: pl.Expr) -> pl.Expr:
        """Return the time at which a window ends."""
        return self.start_of(window * self.step + self.per_window)

    def until(self, pane: pl.Expr) -> pl.Expr:
        """Return the time at which the last window of a pane ends."""
        return self.window_end(pane.floordiv(self.step))

    def sealed_before(self, watermark: int) -> int:
        """Return the first pane that may still get rows."""
        if self.zone is not None:
            return pane_at(watermark, self.width_us, self.offset_us, self.zone)
        return (watermark - self.offset_us) // self.width_us

    def last_window(self, pane: int) -> int:
        """Return the last window that a pane is in."""
        return pane // self.step

    def first_window(self, pane: int) -> int:
        """Return the first window that a pane is in."""
        return -((self.per_window - 1 - pane) // self.step)

    def last_closed(self, watermark: int) -> int:
        """Return the last window that ends at or before a watermark."""
        return (self.sealed_before(watermark) - self.per_window) // self.step

    def closing(self, panes: Iterable[int], before: int, now: int) -> list[int]:
        """Return the windows that hold one of the panes and close between two watermarks.

        Args:
            panes: Sorted panes with rows.
            before: The watermark up to which windows have closed.
            now: The watermark that closes windows now.

        >>> Panes(width_us=10, per_window=2, step=1).closing([0, 5], 0, 50)
        [-1, 0]
        """
        windows: list[int] = []
        following = self.last_closed(before) + 1
        last = self.last_closed(now)
        for pane in panes:
            first = max(following, self.first_window(pane))
            stop = min(last, self.last_window(pane)) + 1
            windows.extend(range(first, stop))
            following = max(following, stop)
        return windows

    def nodes_of(self, window: int, max_level: int) -> list[tuple[int, int]]:
        """Return the (level, node) pairs that make up a window.

        >>> Panes(width_us=1, per_window=6, step=1).nodes_of(3, max_level=2)
        [(0, 3), (0, 8), (2, 1)]
        """
        low = window * self.step
        high = low + self.per_window
        found = []
        for level in range(max_level):
            if low >= high:
                break
            if low & 1:
                found.append((level, low))
                low += 1
            if high & 1:
                high -= 1
                found.append((level, high))
            low, high = low >> 1, high >> 1
        found.extend((max_level, node) for node in range(low, high))
        return found
