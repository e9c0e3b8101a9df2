"""Limit orders of a stock exchange: the shape of Elasticutor's data, section 5.4 and figure 18.

The law this module keeps: a row depends on its number and on the fields of `Orders`, and on nothing
else. Prices are whole cents.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl

from penstock.workloads.draws import (
    F64,
    I64,
    SECOND,
    draw,
    micros,
    row_numbers,
    skewed,
    uniform,
)
from penstock.workloads.files import write_stream

ORDER_SCHEMA: dict[str, pl.DataType] = {
    "order": pl.Int64(),
    "stock": pl.Int32(),
    "side": pl.String(),
    "price": pl.Int64(),
    "volume": pl.Int64(),
    "trader": pl.Int32(),
    "ts": pl.Datetime("us"),
}
"""Columns of an order: id, stock, buy or sell, limit in cents, shares, who, when."""

_SIDES = pl.Series(["buy", "sell"], dtype=pl.String)
_LOT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """A made-up stream of limit orders, a pure function of its fields.

    On average `per_second` orders come in a second of event time, but not evenly: once in every
    `burst_minutes` a third of a period's orders come within a twelfth of it. `hot_stocks` at a
    time get `hot_share` of all orders, each for `hot_minutes`; the others are skewed too. A stock's
    middle price drifts around its `base_prices` by up to `drift`; limits lie within `width` of it,
    a bit more of them on the side that trades at once, so that a book stays small.

    >>> orders = Orders(rows=1_000, stocks=100)
    >>> orders.frame(0, 1_000).equals(pl.concat([orders.frame(0, 7), orders.frame(7, 993)]))
    True
    """

    rows: int
    stocks: int = 1_000
    traders: int = 10_000
    per_second: float = 2_000.0
    seed: int = 0
    first: datetime = datetime(2026, 1, 5, 9, 30)
    burst_minutes: float = 5.0
    hot_stocks: int = 20
    hot_share: float = 0.3
    hot_minutes: float = 10.0
    drift: float = 0.05
    width: float = 0.01

    def __post_init__(self) -> None:
        """Refuse fields that no stream could have."""
        if self.rows < 1 or self.stocks < 1 or self.traders < 2:
            raise ValueError(
                f"too small; rows={self.rows!r} (at least 1), stocks={self.stocks!r} "
                f"(at least 1), traders={self.traders!r} (at least 2)"
            )
        if not 0 <= self.hot_stocks <= self.stocks or not 0 <= self.hot_share <= 1:
            raise ValueError(
                f"no such hot set; hot_stocks={self.hot_stocks!r} (0 to stocks), "
                f"hot_share={self.hot_share!r} (0 to 1)"
            )
        if self.per_second <= 0 or self.burst_minutes <= 0 or self.hot_minutes <= 0:
            raise ValueError(
                f"must be above 0; per_second={self.per_second!r}, "
                f"burst_minutes={self.burst_minutes!r}, hot_minutes={self.hot_minutes!r}"
            )
        micros(self.first)

    @property
    def base_prices(self) -> pl.DataFrame:
        """The table of stocks: each one's price, in cents, around which it moves."""
        stock = np.arange(self.stocks, dtype=np.int64)
        columns = {"stock": stock, "base": self._base(stock)}
        return pl.DataFrame(columns, schema_overrides={"stock": pl.Int32(), "base": pl.Int64()})

    def frame(self, offset: int, rows: int) -> pl.DataFrame:
        """Return rows `offset` to `offset + rows`, cut at the end of the stream."""
        number = row_numbers(offset, rows, self.rows)
        since = self._times(number)
        stock = self._stocks(number, since)
        side = draw(number, self.seed, 1, 2)
        columns = {
            "order": number,
            "stock": stock,
            "side": _SIDES.gather(side),
            "price": self._limits(number, since, stock, side),
            "volume": _LOT * (1 + skewed(number, self.seed, 2, 20)),
            "trader": draw(number, self.seed, 3, self.traders),
            "ts": since + micros(self.first),
        }
        return pl.DataFrame(columns).cast(ORDER_SCHEMA)  # type: ignore[arg-type]  # str keys

    def write(self, folder: Path | str, files: int = 20) -> list[Path]:
        """Write the stream as Parquet files in event-time order; skip those already there.

        Raises:
            FileExistsError: the folder holds orders made with other fields.
        """
        return write_stream(self, folder, files, name="orders")

    def _times(self, number: I64) -> I64:
        """Return microseconds since the first row; in a period they are calm, a burst, calm."""
        span = round(self.burst_minutes * 60 * SECOND)
        rows = max(12, round(self.per_second * self.burst_minutes * 60))
        period, inside = number // rows, number % rows
        many, little = rows // 3, span // 12
        before = draw(period, self.seed, 4, rows - many)
        calm = inside - np.clip(inside - before, 0, many)
        burst = inside - calm
        quiet_us = calm * (span - little) // (rows - many)
        since: I64 = period * span + quiet_us + burst * little // many
        return since

    def _stocks(self, number: I64, since: I64) -> I64:
        """Return the stock of each order."""
        # Spread over the numbers, so that which stocks are busy is not their order.
        busy = skewed(number, self.seed, 5, self.stocks)
        stock = busy * _coprime(self.stocks) % self.stocks
        if not self.hot_stocks:
            return stock
        step = max(1, round(self.hot_minutes * 60 * SECOND / self.hot_stocks))
        place = since // step + draw(number, self.seed, 6, self.hot_stocks)
        hot = uniform(number, self.seed, 7) < self.hot_share
        return np.where(hot, draw(place, self.seed, 8, self.stocks), stock)

    def _limits(self, number: I64, since: I64, stock: I64, side: I64) -> I64:
        """Return limits in cents: buyers' a bit above the middle, sellers' a bit below."""
        away = (uniform(number, self.seed, 9) - 0.4) * self.width
        factor = 1.0 + np.where(side == 0, away, -away)
        return np.maximum(1, (self._middle(stock, since) * factor).astype(np.int64))

    def _middle(self, stock: I64, since: I64) -> F64:
        """Return the middle price: straight lines between points drawn every minute."""
        minute, inside = np.divmod(since, 60 * SECOND)
        share = inside / (60.0 * SECOND)
        node = stock * 1_000_003 + minute
        here, there = (uniform(node + i, self.seed, 10) * 2.0 - 1.0 for i in (0, 1))
        moved = here + (there - here) * share
        return self._base(stock) * (1.0 + self.drift * moved)

    def _base(self, stock: I64) -> I64:
        return 500 + draw(stock, self.seed, 11, 19_500)


def _coprime(below: int) -> int:
    """Return a factor that permutes 0 to `below` - 1.

    >>> sorted(i * _coprime(10) % 10 for i in range(10)) == list(range(10))
    True
    """
    return next(
        i for i in range(max(1, round(below * 0.618)), 2 * below + 1) if np.gcd(i, below) == 1
    )
