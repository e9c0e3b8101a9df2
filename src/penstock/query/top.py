"""Top: the k first rows by an expression, per group and window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from penstock.query.keys import Names, key_problems, names_of
from penstock.query.nodes import Keyed, Node
from penstock.query.windows import WINDOW_COLUMNS, TimeWindow, Window

RANK = "rank"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Top(Keyed):
    """The ``k`` first rows by ``order`` of each group in a window, or at one event time."""

    k: int
    order: pl.Expr
    text: str
    window: TimeWindow | None = None
    descending: bool = True

    @property
    def combines(self) -> bool:
        """Whether rows for the operator are combined to fewer before they are shuffled."""
        return True

    @property
    def after_us(self) -> int:
        """How far the watermark of the results is past that of the input, in microseconds."""
        return 0 if self.window is None else 1

    @property
    def note(self) -> str:
        """How the operator works, for plans."""
        return f"keeps at most {self.k} of a group"

    def facts(self) -> dict[str, Any]:
        """Return what the operator's state depends on, as plain values for the checkpoint."""
        return {
            "columns": {name: str(dtype) for name, dtype in self.inputs[0].schema.items()},
            "keys": list(self.by),
            "window": str(self.window),
            "rows": self.k,
            "order": str(self.order),
            "descending": self.descending,
        }

    @property
    def title(self) -> str:
        """What the operator does, in a few words."""
        way = "" if self.descending else ", least first,"
        by = f" per {', '.join(self.by)}" if self.by else ""
        window = "" if self.window is None else f" over {self.window}"
        return f"top {self.k} by {self.text}{way}{by}{window}"


def top_node(
    stream: Node,
    *,
    k: int,
    order: pl.Expr,
    dtype: pl.DataType,
    text: str,
    by: Names,
    window: Window | None,
    descending: bool,
) -> tuple[Node, list[str]]:
    """Return the operator, and what is wrong with it; ``dtype`` is the type of ``order``."""
    keys = names_of(by)
    added: dict[str, pl.DataType] = {RANK: pl.Int64()}
    found = [] if _whole(k) and k > 0 else [f"top: k must be a positive whole number; k={k!r}"]
    found += key_problems("top by", keys, stream.schema)
    if dtype.is_nested():
        found.append(f"top: rows cannot be ordered by a value of type {dtype}")
    if window is not None and not isinstance(window, TimeWindow):
        found.append(f"top: a window by time is needed, tumbling or sliding; window={window!s}")
        window = None
    if window is not None:
        found += [f"top: {problem}" for problem in window.problems()]
        added = dict.fromkeys(WINDOW_COLUMNS, pl.Datetime("us")) | added
    found += [f"top: the stream already has a column {c!r}" for c in added if c in stream.schema]
    node = Top(
        inputs=(stream,),
        schema=dict(stream.schema) | added,
        k=k,
        order=order,
        text=text,
        by=keys,
        window=window,
        descending=descending,
    )
    return node, found


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
