"""User-defined operators: the classes that users derive from.

A process keeps one row of state for each key, in columns that it declares, and sees the rows of a
key in stream order, each once it is final. Laws: what it makes of a row depends on that row and on
the state and timers of its key alone; state and output have the declared types, so state is Arrow
and never pickle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol

import polars as pl

Row = dict[str, Any]
Schema = Mapping[str, Any]
"""Names with Polars types, as classes or as instances."""


class Context(Protocol):
    """What a process knows and may change while it works on a row or a timer.

    Attributes:
        key: The key columns with their values.
        state: The state of the key as a dict, or None. Assign to change it; None forgets it.
    """

    key: Row
    state: Row | None

    @property
    def time(self) -> datetime:
        """The event time of the row or the timer, UTC without a zone."""
        ...

    @property
    def timers(self) -> tuple[datetime, ...]:
        """The timers of the key that have not fired, the earliest first."""
        ...

    def set_timer(self, time: datetime) -> None:
        """Let `Process.on_timer` be called for this key at an event time.

        A timer fires after all rows before its time and before the rows at its time. Setting it
        twice is setting it once. While a row is worked on, a time that has passed means now: the
        timer fires right after the row. While a timer is worked on, the time must be a later one.
        """
        ...

    def clear_timers(self) -> None:
        """Forget the timers of the key."""
        ...


class Process:
    """A keyed, stateful, ordered operator, row by row.

    Derive from it, declare ``state`` and ``output``, define `on_row` and, for timers, `on_timer`.
    The object itself is configuration: it may be copied to several machines, and what a method
    keeps in it is not state. A call for which a method raises, or that leaves rows or a state that
    do not fit what is declared, is undone and goes to the dead letters.

    Attributes:
        state: The columns of a key's state and their types.
        output: The columns of a result, beside the key columns, and their types.

    >>> class Latest(Process):
    ...     state = {"best": pl.Int64}
    ...     output = {"record": pl.Int64}
    ...     def on_row(self, row, context):
    ...         if context.state is None or row["x"] > context.state["best"]:
    ...             context.state = {"best": row["x"]}
    ...             yield {"record": row["x"]}
    """

    state: Schema
    output: Schema

    def on_row(self, row: Row, context: Context) -> Iterable[Row] | None:
        """Return the results of a row; called once for each row, per key in stream order."""
        raise NotImplementedError

    def on_timer(self, time: datetime, context: Context) -> Iterable[Row] | None:
        """Return the results of a timer of the key that ``context`` is about."""
        raise NotImplementedError(f"{type(self).__name__} sets a timer and has no on_timer")


class BatchProcess:
    """A keyed, stateful, ordered operator over all rows of many keys at a time.

    Derive from it, declare ``state`` and ``output``, define `on_rows`. How rows are cut into calls
    is not up to it: two calls with the state carried along must give what one call gives.

    Attributes:
        state: The columns of a key's state and their types.
        output: The columns of a result, beside the key columns, and their types.
    """

    state: Schema
    output: Schema

    def on_rows(self, rows: pl.DataFrame, state: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the results of rows, and the state of their keys after them.

        Args:
            rows: The columns of the stream and ``__row``, a row's number in the frame; by key, the
                rows of a key in stream order.
            state: Key columns and state columns: a row for each of these keys that has a state.

        Returns:
            Results, which have the key columns, the output columns and the ``__row`` that each
            belongs to; and the new state, with columns as before. A key that is left out has no
            state any more.
        """
        raise NotImplementedError
