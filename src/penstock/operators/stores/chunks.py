"""Sealed panes in memory: rows sorted by node, with an index from node to rows.

Law: reading some nodes costs as much as those nodes have rows, however many rows there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

PANE = "__pane"
_MANY = 16
"""A frame in more pieces than this is copied into one: to slice it costs a look at each piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows sorted by node; those of ``nodes[i]`` are at ``offsets[i]`` to ``offsets[i + 1]``."""

    rows: pl.DataFrame
    nodes: tuple[int, ...]
    offsets: tuple[int, ...]

    @classmethod
    def of(cls, rows: pl.DataFrame) -> Chunk:
        """Return the chunk of rows in any order."""
        sorted_rows = rows.sort(PANE)
        counts = sorted_rows[PANE].rle()
        offsets = [0, *counts.struct.field("len").cast(pl.Int64).cum_sum().to_list()]
        return cls(
            rows=sorted_rows,
            nodes=tuple(counts.struct.field("value").to_list()),
            offsets=tuple(offsets),
        )

    def followed_by(self, other: Chunk) -> Chunk:
        """Return one chunk of two; the other's nodes are all higher."""
        height = self.rows.height
        rows = pl.concat([self.rows, other.rows])
        return Chunk(
            rows=rows.rechunk() if rows.n_chunks() > _MANY else rows,
            nodes=self.nodes + other.nodes,
            offsets=self.offsets + tuple(height + o for o in other.offsets[1:]),
        )

    def slice(self, first: int, last: int) -> pl.DataFrame:
        """Return the rows of ``nodes[first:last]``."""
        start = self.offsets[first]
        return self.rows.slice(start, self.offsets[last] - start)


def add_rows(chunks: tuple[Chunk, ...], rows: pl.DataFrame) -> tuple[Chunk, ...]:
    """Add rows of higher nodes; neighbours of like size are joined, so chunks stay few."""
    chunk, earlier = Chunk.of(rows), list(chunks)
    while earlier and earlier[-1].rows.height <= chunk.rows.height:
        chunk = earlier.pop().followed_by(chunk)
    return (*earlier, chunk)


def rows_between(chunks: Iterable[Chunk], low: int, high: int) -> pl.DataFrame | None:
    """Return the rows of nodes ``low`` to ``high``, the latter not included."""
    found = []
    for chunk in chunks:
        first, last = bisect_left(chunk.nodes, low), bisect_left(chunk.nodes, high)
        if first < last:
            found.append(chunk.slice(first, last))
    return pl.concat(found) if found else None


def rows_of(chunks: Iterable[Chunk], nodes: Iterable[int]) -> pl.DataFrame | None:
    """Return the rows of some nodes; runs of neighbouring nodes are read as one slice."""
    wanted = sorted(set(nodes))
    found = []
    for chunk in chunks:
        places = _places_of(chunk, wanted)
        start = 0
        for i in range(1, len(places) + 1):
            if i == len(places) or places[i] != places[i - 1] + 1:
                found.append(chunk.slice(places[start], places[i - 1] + 1))
                start = i
    return pl.concat(found) if found else None


def _places_of(chunk: Chunk, wanted: list[int]) -> list[int]:
    """Return where sorted nodes are in a chunk, as far as it has them."""
    some = wanted[bisect_left(wanted, chunk.nodes[0]) : bisect_right(wanted, chunk.nodes[-1])]
    places = [bisect_left(chunk.nodes, node) for node in some]
    return [i for i, node in zip(places, some, strict=True) if chunk.nodes[i] == node]


def has_rows(chunks: Iterable[Chunk], low: int, high: int) -> bool:
    """Return whether a node from ``low`` to ``high``, the latter not included, has rows."""
    return any(
        (first := bisect_left(chunk.nodes, low)) < len(chunk.nodes) and chunk.nodes[first] < high
        for chunk in chunks
    )
