"""Pieces: the frames and arrays that a state is made of, and what each weighs.

A state is an immutable value, and the one after it shares most of its pieces. So a state is weighed
piece by piece, and whoever keeps several states counts a piece that they share once. Law: the
weight follows the rows, and to weigh a piece costs a look at its columns, not at its rows (nested
columns and texts that were moved about cost a short walk).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import polars as pl

Piece = pl.DataFrame | np.ndarray[Any, Any] | tuple[int, ...]
"""A frame, an array, or numbers of Python's; it never changes."""
_NUMBER_BYTES = 32
"""What an integer of Python's takes beside its place in a tuple."""


def piece_bytes(piece: Piece) -> int:
    """Return how many bytes a piece takes in memory.

    >>> piece_bytes(pl.DataFrame({"x": [1, 2, 3]})), piece_bytes(np.zeros(4))
    (24, 32)
    """
    if isinstance(piece, pl.DataFrame):
        return int(piece.estimated_size())
    if isinstance(piece, tuple):
        return sys.getsizeof(piece) + _NUMBER_BYTES * len(piece)
    return piece.nbytes


def total_bytes(pieces: Iterable[Piece]) -> int:
    """Return how many bytes some pieces take, each of them once.

    >>> frame = pl.DataFrame({"x": [1, 2, 3]})
    >>> total_bytes([frame, frame])
    24
    """
    return sum(map(piece_bytes, {id(piece): piece for piece in pieces}.values()))
