"""Admission: which rows of a source are in time, late, or have no time at all.

Law: a row is late exactly if its event time is more than the source's delay below the highest time
of the rows before it. That depends on the source's rows and their order alone: not on how they are
cut into splits, epochs or tasks. A DataFrame of Spark has no order within a micro-batch: its rows
come after those of the micro-batch before, and otherwise all at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from penstock.operators.panes import NOT_STARTED
from penstock.query.nodes import POSITION, SOURCE, TIME, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Carry:
    """What is known of the rows before: their highest time and their number."""

    seen: int = NOT_STARTED
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """Rows by what becomes of them; ``rows`` have the hidden time and, if asked for, the order."""

    rows: pl.DataFrame
    late: pl.DataFrame
    timeless: pl.DataFrame
    carry: Carry


def event_time(source: Source) -> pl.Expr:
    """Return the expression for a source's event time in microseconds."""
    return pl.col(source.time).cast(pl.Datetime("us")).to_physical().alias(TIME)


def admit(
    source: Source,
    number: int,
    frame: pl.DataFrame,
    before: Carry,
    *,
    floor: int = NOT_STARTED,
    ordered: bool = False,
    at_once: int | None = None,
) -> Admitted:
    """Sort out the rows of one split.

    Args:
        source: The source.
        number: Its number, which is part of the order of rows.
        frame: The rows in the order in which they came.
        before: What came before them.
        floor: Rows below this time are late in any case: others have gone on without this source.
        ordered: Whether to give rows their place in stream order.
        at_once: The highest time before the epoch, if its rows have no order among them.
    """
    rows = frame.with_columns(event_time(source))
    if ordered:
        rows = rows.with_columns(
            pl.lit(number, dtype=pl.Int32).alias(SOURCE),
            (pl.int_range(pl.len(), dtype=pl.Int64) + before.rows).alias(POSITION),
        )
    times = rows[TIME]
    highest = times.max()
    seen = max(before.seen, highest) if isinstance(highest, int) else before.seen
    carry = Carry(seen=seen, rows=before.rows + frame.height)
    start = before.seen if at_once is None else at_once
    if _all_in_time(times, max(start - source.delay_us, floor), in_order=at_once is None):
        return Admitted(rows=rows, late=frame.clear(), timeless=frame.clear(), carry=carry)
    reached = pl.repeat(start, times.len(), dtype=pl.Int64, eager=True)
    if at_once is None:
        earlier = times.cum_max().shift(1).fill_null(strategy="forward").fill_null(start)
        reached = earlier.clip(lower_bound=start)
    late = (times < (reached - source.delay_us).clip(lower_bound=floor)).fill_null(False)
    timeless = times.is_null()
    return Admitted(
        rows=rows.filter(~late & ~timeless),
        late=frame.filter(late),
        timeless=rows.filter(timeless),
        carry=carry,
    )


def _all_in_time(times: pl.Series, limit: int, *, in_order: bool) -> bool:
    """Return whether at first sight no row is late: none below the limit, none out of order."""
    if times.is_empty():
        return True
    if times.null_count() or (in_order and not times.is_sorted()):
        return False
    lowest = times[0] if in_order else times.min()
    return isinstance(lowest, int) and lowest >= limit
