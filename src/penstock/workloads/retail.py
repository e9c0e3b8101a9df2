"""Clicks of a web shop and sales of its stores: the streams of TPCx-BB in Ordered's Table 1.

The law this module keeps: a row depends on its number and on the fields of its stream, and on
nothing else. Money is whole cents.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl

from penstock.workloads.draws import (
    DAY,
    F64,
    I64,
    SECOND,
    draw,
    evenly,
    micros,
    row_numbers,
    skewed,
    uniform,
)
from penstock.workloads.files import write_stream

CLICK_SCHEMA: dict[str, pl.DataType] = {
    "user": pl.Int64(),
    "item": pl.Int32(),
    "kind": pl.String(),
    "ts": pl.Datetime("us"),
}
"""Columns of a click: who, on what, view or cart or purchase, when."""

SALE_SCHEMA: dict[str, pl.DataType] = {
    "ticket": pl.Int64(),
    "store": pl.Int32(),
    "item": pl.Int32(),
    "quantity": pl.Int32(),
    "price": pl.Int64(),
    "ts": pl.Datetime("us"),
}
"""Columns of a line of a ticket: the ticket, where, what, how many, cents each, when."""

_KINDS = pl.Series(["view", "cart", "purchase"], dtype=pl.String)
_LINES = 6
"""Rows that are cut into two tickets."""


def items(count: int = 500, categories: int = 10) -> pl.DataFrame:
    """Return the table of items: each one's category.

    >>> items(4, 2)["category"].to_list()
    [0, 1, 0, 1]
    """
    item = np.arange(count, dtype=np.int32)
    return pl.DataFrame({"item": item, "category": item % categories})


@dataclass(frozen=True, slots=True, kw_only=True)
class Clicks:
    """A made-up stream of clicks, a pure function of its fields.

    Event time ascends evenly from `first` over `days`. At any time some users are in the shop, for
    `session_minutes` each and on average `per_session` clicks; then others take their places. A
    user comes back after minutes or days. In a session seven clicks of ten stay in one category.
    Of a hundred clicks 84 are views, 10 put an item into the cart, 6 buy one.

    >>> clicks = Clicks(rows=1_000)
    >>> clicks.frame(0, 1_000).equals(pl.concat([clicks.frame(0, 7), clicks.frame(7, 993)]))
    True
    """

    rows: int
    users: int = 20_000
    items: int = 500
    categories: int = 10
    days: float = 30.0
    seed: int = 0
    first: datetime = datetime(2026, 1, 1)
    session_minutes: float = 30.0
    per_session: float = 6.0

    def __post_init__(self) -> None:
        """Refuse fields that no stream could have."""
        if self.rows < 1 or self.users < 1 or not 1 <= self.categories <= self.items:
            raise ValueError(
                f"too small; rows={self.rows!r} and users={self.users!r} (at least 1), "
                f"items={self.items!r} (at least categories={self.categories!r})"
            )
        if min(self.days, self.session_minutes) <= 0 or self.per_session < 1:
            raise ValueError(
                f"must be above 0; days={self.days!r}, session_minutes={self.session_minutes!r}, "
                f"per_session={self.per_session!r} (at least 1)"
            )
        micros(self.first)

    def frame(self, offset: int, rows: int) -> pl.DataFrame:
        """Return rows `offset` to `offset + rows`, cut at the end of the stream."""
        number = row_numbers(offset, rows, self.rows)
        since = evenly(number, round(self.days * DAY), self.rows)
        visit = self._visits(number, since)
        luck = draw(number, self.seed, 4, 100)
        columns = {
            "user": draw(visit, self.seed, 3, self.users),
            "item": _items(number, visit, self.seed, self.items, self.categories),
            "kind": _KINDS.gather(np.where(luck < 84, 0, np.where(luck < 94, 1, 2))),
            "ts": since + micros(self.first),
        }
        return pl.DataFrame(columns).cast(CLICK_SCHEMA)  # type: ignore[arg-type]  # str keys

    def write(self, folder: Path | str, files: int = 20) -> list[Path]:
        """Write the stream as Parquet files in event-time order; skip those already there.

        Raises:
            FileExistsError: the folder holds clicks made with other fields.
        """
        return write_stream(self, folder, files, name="clicks")

    @property
    def _places(self) -> int:
        """How many users are in the shop at a time."""
        a_visit = self.session_minutes / (self.days * 24 * 60)
        return max(1, round(self.rows * a_visit / self.per_session))

    def _visits(self, number: I64, since: I64) -> I64:
        """Return which visit each click is part of; places change hands at different times."""
        place = draw(number, self.seed, 1, self._places)
        length = round(self.session_minutes * 60 * SECOND)
        shifted = since + draw(place, self.seed, 2, length)
        return shifted // length * self._places + place


@dataclass(frozen=True, slots=True, kw_only=True)
class Sales:
    """A made-up stream of store sales, a pure function of its fields.

    Tickets of one to five lines come evenly from `first` over `days`; the lines of a ticket have
    one time, and seven of ten are of one category. Prices of a category rise or fall by up to
    `trend` over the stream.

    >>> sales = Sales(rows=1_000)
    >>> sales.frame(0, 1_000).equals(pl.concat([sales.frame(0, 7), sales.frame(7, 993)]))
    True
    """

    rows: int
    items: int = 500
    categories: int = 10
    stores: int = 50
    days: float = 30.0
    seed: int = 0
    first: datetime = datetime(2026, 1, 1)
    trend: float = 0.3

    def __post_init__(self) -> None:
        """Refuse fields that no stream could have."""
        if self.rows < 1 or self.stores < 1 or not 1 <= self.categories <= self.items:
            raise ValueError(
                f"too small; rows={self.rows!r} and stores={self.stores!r} (at least 1), "
                f"items={self.items!r} (at least categories={self.categories!r})"
            )
        if self.days <= 0 or not 0 <= self.trend < 1:
            raise ValueError(f"days={self.days!r} (above 0), trend={self.trend!r} (0 to 1)")
        micros(self.first)

    def frame(self, offset: int, rows: int) -> pl.DataFrame:
        """Return rows `offset` to `offset + rows`, cut at the end of the stream."""
        number = row_numbers(offset, rows, self.rows)
        block, line = np.divmod(number, _LINES)
        cut = 1 + draw(block, self.seed, 1, _LINES - 1)
        ticket = 2 * block + (line >= cut)
        begun = block * _LINES + np.where(line < cut, 0, cut)
        since = evenly(begun, round(self.days * DAY), self.rows)
        item = _items(number, ticket, self.seed, self.items, self.categories)
        columns = {
            "ticket": ticket,
            "store": draw(ticket, self.seed, 2, self.stores),
            "item": item,
            "quantity": 1 + skewed(number, self.seed, 3, 5),
            "price": self._prices(item, since).astype(np.int64),
            "ts": since + micros(self.first),
        }
        return pl.DataFrame(columns).cast(SALE_SCHEMA)  # type: ignore[arg-type]  # str keys

    def write(self, folder: Path | str, files: int = 20) -> list[Path]:
        """Write the stream as Parquet files in event-time order; skip those already there.

        Raises:
            FileExistsError: the folder holds sales made with other fields.
        """
        return write_stream(self, folder, files, name="sales")

    def _prices(self, item: I64, since: I64) -> F64:
        """Return cents: the item's price, moved along its category's trend."""
        base = 100 + draw(item, self.seed, 4, 9_900)
        slope = self.trend * (2.0 * uniform(item % self.categories, self.seed, 10) - 1.0)
        return base * (1.0 + slope * (since / (self.days * DAY)))


def _items(number: I64, together: I64, seed: int, count: int, categories: int) -> I64:
    """Return items, the first of each category most often; what is together shares a category."""
    theme = draw(together, seed, 6, categories)
    other = draw(number, seed, 7, categories)
    category = np.where(draw(number, seed, 8, 10) < 7, theme, other)
    return category + categories * skewed(number, seed, 9, count // categories)
