"""Top: the k first rows by an expression, per group and window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from penstock.query.keys import Names, key_problems, names_of
from penstock.query.nodes import Aggregate, Keyed, Node
from penstock.query.windows import TimeWindow, Window, bounds_of, zone_of

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
    def zone(self) -> str | None:
        """The time zone that the event time is shown in; a window's end has its own."""
        return self.inputs[0].zone if self.window is None else zone_of(self.schema["window_end"])

    @property
    def note(self) -> str:
        """How the operator works, for plans."""
        kept = f"keeps at most {self.k} of a group"
        return f"{kept}; compares only rows of one event time" if self.lonely else kept

    @property
    def lonely(self) -> bool:
        """Whether few rows are compared: those of one event time, which no window has made."""
        return self.window is None and not _of_windows(self.inputs[0])

    def facts(self) -> dict[str, Any]:
        """Return what the operator's state depends on, as plain values for the checkpoint."""
        panes = {} if self.window is None else self.window.facts(self.zone)
        return panes | {
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
    found = [] if _is_whole(k) and k > 0 else [f"top: k must be a positive whole number; k={k!r}"]
    found += key_problems("top by", keys, stream.schema, nested=True)
    if dtype.is_nested():
        found.append(f"top: rows cannot be ordered by a value of type {dtype}")
    if window is not None and not isinstance(window, TimeWindow):
        found.append(f"top: a window by time is needed, tumbling or sliding; window={window!s}")
        window = None
    if window is not None:
        found += [f"top: {problem}" for problem in window.problems()]
        added = bounds_of(window, stream.zone) | added
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


def _of_windows(node: Node) -> bool:
    """Return whether rows are results, whose event times are those of windows."""
    if isinstance(node, Aggregate):
        return True
    if isinstance(node, Top):
        return node.window is not None or _of_windows(node.inputs[0])
    return not node.stateful and bool(node.inputs) and all(map(_of_windows, node.inputs))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
