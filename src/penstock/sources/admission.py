"""Admission: which rows of a source are in time, late, or have no time at all.

Law: a row is late exactly if its event time is more than the source's delay below the highest time
of the rows before it. That depends on the source's rows and their order alone: not on how they are
cut into splits, epochs or tasks. A DataFrame of Spark has no order within a micro-batch: its rows
come after those of the micro-batch before, and otherwise all at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from penstock.base.columns import POSITION, SOURCE, TIME
from penstock.base.times import NOT_STARTED
from penstock.operators.rowwise.blame import refuse_failing
from penstock.query.nodes import Source

_ROW = "__row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carry:
    """What is known of the rows before: their highest time and their number."""

    seen: int = NOT_STARTED
    rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """Rows by what becomes of them; ``rows`` have the hidden time and, if asked for, the order.

    Each of the ``timeless`` rows has one of the ``reasons``. ``late_at`` and ``timeless_at`` are
    the places of such rows among all of them.
    """

    rows: pl.DataFrame
    late: pl.DataFrame
    timeless: pl.DataFrame
    carry: Carry
    reasons: tuple[str, ...] = ()
    late_at: tuple[int, ...] = ()
    timeless_at: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimes:
    """The event times of rows in microseconds, null for those that have none.

    ``failed`` says by row number why a time could not be computed.
    """

    values: pl.Series
    failed: Mapping[int, str] = field(default_factory=dict)

    @property
    def highest(self) -> int | None:
        """The highest time; None if there is none."""
        found = self.values.max()
        assert found is None or isinstance(found, int)
        return found


def event_times(source: Source, frame: pl.DataFrame, limit: int | None = None) -> EventTimes:
    """Return the event times of rows.

    Args:
        source: Their source.
        frame: The rows.
        limit: How many rows to look for that have no time because its expression fails; one more
            is too many for the query. All unless given.
    """
    moment = pl.col(source.time) if source.moment is None else source.moment
    time = moment.cast(pl.Datetime("us")).to_physical().alias(TIME)
    try:
        return EventTimes(values=frame.select(time).to_series())
    except Exception:  # the search below finds the rows to blame
        if source.moment is None:
            raise
    numbered = frame.with_row_index(_ROW)
    most = frame.height if limit is None else limit
    good, bad = refuse_failing(
        lambda f: f.select(_ROW, time), numbered, source.time, most, source.moment
    )
    known = pl.concat([pl.DataFrame(schema={_ROW: pl.UInt32, TIME: pl.Int64}), *good])
    found = numbered.select(_ROW).join(known, on=_ROW, how="left", maintain_order="left")
    return EventTimes(
        values=found[TIME], failed={refusal.row[_ROW][0]: refusal.reason for refusal in bad}
    )


def admit(
    source: Source,
    number: int,
    frame: pl.DataFrame,
    before: Carry,
    *,
    floor: int = NOT_STARTED,
    ordered: bool = False,
    at_once: int | None = None,
    limit: int | None = None,
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
        limit: How many rows whose time cannot be computed to look for; all unless given.
    """
    found = event_times(source, frame, limit)
    rows = frame.with_columns(found.values)
    if ordered:
        rows = rows.with_columns(
            pl.lit(number, dtype=pl.Int32).alias(SOURCE),
            (pl.int_range(pl.len(), dtype=pl.Int64) + before.rows).alias(POSITION),
        )
    times, highest = found.values, found.highest
    seen = before.seen if highest is None else max(before.seen, highest)
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
        reasons=_reasons(source, found.failed, timeless),
        late_at=tuple(late.arg_true()),
        timeless_at=tuple(timeless.arg_true()),
    )


def _reasons(source: Source, failed: Mapping[int, str], timeless: pl.Series) -> tuple[str, ...]:
    what = "the time column" if source.moment is None else "the event time"
    null = f"{what} {source.time!r} is null"
    wrong = {
        row: f"{what} {source.time!r} cannot be computed: {why}" for row, why in failed.items()
    }
    return tuple(wrong.get(row, null) for row in timeless.arg_true().to_list())


def _all_in_time(times: pl.Series, limit: int, *, in_order: bool) -> bool:
    """Return whether at first sight no row is late: none below the limit, none out of order."""
    if times.is_empty():
        return True
    if times.null_count() or (in_order and not times.is_sorted()):
        return False
    lowest = times[0] if in_order else times.min()
    return isinstance(lowest, int) and lowest >= limit
