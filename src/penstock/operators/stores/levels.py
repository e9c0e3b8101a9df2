"""Sealed panes by level: nodes of 1, 2, 4, 8, … panes, from which windows are merged.

Laws: sealing costs as much as was sealed, and closing a window as much as its nodes have rows;
panes and windows that nothing happens to cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import polars as pl

from penstock.operators.stores.chunks import PANE, Chunk, add_rows, has_rows, rows_between, rows_of
from penstock.operators.stores.pieces import Piece
from penstock.operators.windows.panes import Panes

WINDOW = "__window"
_MEMBERS = {"level": pl.Int64, PANE: pl.Int64, WINDOW: pl.Int64}
Levels = tuple[tuple[Chunk, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """How the panes of a window are grouped; ``merge`` makes one row of a group's in a node."""

    panes: Panes
    depth: int
    merge: Callable[[pl.DataFrame, str], pl.DataFrame]

    def seal(self, levels: Levels, sealed: pl.DataFrame | None, before: int, now: int) -> Levels:
        """Add sealed panes to level 0, and to each level above the nodes that became whole."""
        grown = list(levels) or [()] * (self.depth + 1)
        if sealed is not None and sealed.height:
            grown[0] = add_rows(grown[0], sealed)
        old, new = self.panes.sealed_before(before), self.panes.sealed_before(now)
        for level in range(1, self.depth + 1):
            low, high = old >> level, new >> level
            if low >= high:
                break
            below = rows_between(grown[level - 1], low << 1, high << 1)
            if below is not None:
                halved = below.with_columns(pl.col(PANE).floordiv(2))
                grown[level] = add_rows(grown[level], self.merge(halved, PANE))
        return tuple(grown)

    def closed(self, levels: Levels, before: int, now: int) -> pl.DataFrame | None:
        """Return the merged rows of the windows that close between two watermarks."""
        windows = self._find_closing(levels[0], before, now)
        if not windows:
            return None
        members = [
            (level, node, window)
            for window in windows
            for level, node in self.panes.nodes_of(window, self.depth)
        ]
        table = pl.DataFrame(members, schema=_MEMBERS, orient="row")
        found = []
        for level, chunks in enumerate(levels):
            wanted = table.filter(pl.col("level") == level).drop("level")
            rows = rows_of(chunks, wanted[PANE].to_list()) if wanted.height else None
            if rows is not None:
                found.append(rows.join(wanted, on=PANE).drop(PANE))
        return self.merge(pl.concat(found), WINDOW)

    def _find_closing(self, chunks: tuple[Chunk, ...], before: int, now: int) -> list[int]:
        """Return the windows with rows that close, by a look at all windows or all panes."""
        panes = self.panes
        first, last = panes.last_closed(before) + 1, panes.last_closed(now)
        if last - first < sum(len(chunk.nodes) for chunk in chunks):
            starts = ((window, window * panes.step) for window in range(first, last + 1))
            return [w for w, low in starts if has_rows(chunks, low, low + panes.per_window)]
        return panes.closing([pane for chunk in chunks for pane in chunk.nodes], before, now)

    def drop_closed(self, levels: Levels, watermark: int) -> Levels:
        """Drop the chunks that no open window needs."""
        oldest = (self.panes.last_closed(watermark) + 1) * self.panes.step
        return tuple(
            tuple(chunk for chunk in chunks if (chunk.nodes[-1] + 1) << level > oldest)
            for level, chunks in enumerate(levels)
        )


def rows_in(levels: Levels) -> int:
    """Return how many rows all chunks hold."""
    return sum(chunk.rows.height for chunks in levels for chunk in chunks)


def level_pieces(levels: Levels) -> Iterator[Piece]:
    """Yield what all chunks are made of."""
    for chunks in levels:
        for chunk in chunks:
            yield from (chunk.rows, chunk.nodes, chunk.offsets)
