"""The stock exchange without Penstock: a book in plain Python, order by order, and statistics.

The book keeps sorted lists and looks at every order on its own, unlike the heaps of
`penstock.workloads.book`.
"""

from bisect import insort
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

import polars as pl

EXPIRY = timedelta(seconds=60)
Resting = tuple[int, datetime, int, list[int], int]
"""Price (negative for buyers), time, order, shares left in a list, trader."""


class Book:
    """The outstanding orders of one stock, best first."""

    def __init__(self) -> None:
        self.sides: dict[str, list[Resting]] = {"buy": [], "sell": []}
        self.trades = 0

    def execute(self, order: dict[str, Any]) -> list[dict[str, Any]]:
        """Trade an order against the book and keep what is left of it."""
        sign = -1 if order["side"] == "buy" else 1
        others = self.sides["sell" if order["side"] == "buy" else "buy"]
        trades, left = [], order["volume"]
        while others and left:
            key, time, number, shares, trader = others[0]
            if time <= order["ts"] - EXPIRY:
                others.pop(0)
                continue
            price = abs(key)
            if sign * price < sign * order["price"]:
                break
            traded = min(left, shares[0])
            left -= traded
            shares[0] -= traded
            if not shares[0]:
                others.pop(0)
            self.trades += 1
            trades.append(_trade(order, price, traded, number, trader) | {"trade": self.trades})
        if left:
            kept = (sign * order["price"], order["ts"], order["order"], [left], order["trader"])
            insort(self.sides[order["side"]], kept)
        return trades


def _trade(
    order: dict[str, Any], price: int, shares: int, number: int, trader: int
) -> dict[str, Any]:
    mine, theirs = (order["trader"], order["order"]), (trader, number)
    buyer, seller = (mine, theirs) if order["side"] == "buy" else (theirs, mine)
    return {
        "stock": order["stock"], "at": order["ts"], "price": price, "shares": shares,
        "buyer": buyer[0], "seller": seller[0], "buy_order": buyer[1], "sell_order": seller[1],
    }  # fmt: skip


def trades(orders: pl.DataFrame) -> pl.DataFrame:
    """Return all trades of the orders, which come in stream order."""
    books: dict[int, Book] = defaultdict(Book)
    rows = [
        trade
        for order in orders.iter_rows(named=True)
        for trade in books[order["stock"]].execute(order)
    ]
    schema: dict[str, pl.DataType] = {
        "stock": pl.Int32(), "trade": pl.Int64(), "at": pl.Datetime("us"), "price": pl.Int64(),
        "shares": pl.Int64(), "buyer": pl.Int32(), "seller": pl.Int32(), "buy_order": pl.Int64(),
        "sell_order": pl.Int64(),
    }  # fmt: skip
    return pl.DataFrame(rows, schema=schema)


def all_streams(orders: pl.LazyFrame, bases: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return what each operator of the application gives for all orders at once."""
    made = trades(orders.collect())
    averages = moving_averages(made)
    paid = pl.col("price") * pl.col("shares")
    return {
        "transactions": made,
        "moving_averages": averages,
        "vwap": _minutes(made, vwap=paid.sum() / pl.col("shares").sum()),
        "composite_index": composite_index(made, bases),
        "volatility": volatility(made),
        "volumes": volumes(made),
        "spreads": _minutes(
            made,
            high=pl.col("price").max(),
            low=pl.col("price").min(),
            spread=pl.col("price").max() - pl.col("price").min(),
        ),
        "price_alarms": price_alarms(made, bases),
        "price_jumps": averages.filter(
            (pl.col("price") - pl.col("mean")).abs() > 0.02 * pl.col("mean")
        ),
        "volume_spikes": volume_spikes(made),
        "wash_trades": made.filter(pl.col("buyer") == pl.col("seller")),
        "big_trades": made.filter(paid >= 30_000_000),
    }


def moving_averages(made: pl.DataFrame, rows: int = 50, every: int = 10) -> pl.DataFrame:
    """Return means over the last trades of a stock by a rolling sum."""
    number = pl.int_range(pl.len()).over("stock")
    return (
        made.with_columns(
            number=number,
            window_start=pl.col("at").shift(rows - 1).over("stock"),
            mean=pl.col("price").rolling_sum(rows).over("stock") / rows,
        )
        .filter((pl.col("number") >= rows - 1) & ((pl.col("number") - rows + 1) % every == 0))
        .select("stock", "window_start", window_end="at", mean="mean", price="price", trade="trade")
    )


def composite_index(made: pl.DataFrame, bases: pl.DataFrame) -> pl.DataFrame:
    """Return the index per second."""
    start = pl.col("at").dt.truncate("1s")
    return (
        made.join(bases, on="stock")
        .group_by(window_start=start)
        .agg(
            index=1000
            * (pl.col("price") * pl.col("shares")).sum()
            / (pl.col("base") * pl.col("shares")).sum(),
            trades=pl.len().cast(pl.Int64),
        )
        .with_columns(window_end=pl.col("window_start") + timedelta(seconds=1))
    )


def volatility(made: pl.DataFrame) -> pl.DataFrame:
    """Return deviation over mean, 5 minutes advancing by 1."""
    slid = _slid(made, timedelta(minutes=1), 5)
    value = pl.col("price").std() / pl.col("price").mean()
    return slid.group_by("stock", "window_start", "window_end").agg(volatility=value)


def volumes(made: pl.DataFrame) -> pl.DataFrame:
    """Return shares and cents, 1 minute advancing by 10 seconds."""
    slid = _slid(made, timedelta(seconds=10), 6)
    return slid.group_by("stock", "window_start", "window_end").agg(
        shares=pl.col("shares").sum(), cents=(pl.col("price") * pl.col("shares")).sum()
    )


def price_alarms(made: pl.DataFrame, bases: pl.DataFrame) -> pl.DataFrame:
    """Return trades above the threshold, at most one a minute and stock: row by row."""
    limits = bases.select("stock", limit=(pl.col("base") * 1.04).cast(pl.Int64))
    above = made.join(limits, on="stock", maintain_order="left").filter(
        pl.col("price") > pl.col("limit")
    )
    told: dict[int, datetime] = {}
    keep = []
    for stock, at in above.select("stock", "at").iter_rows():
        keep.append(stock not in told or at - told[stock] >= timedelta(minutes=1))
        if keep[-1]:
            told[stock] = at
    return above.filter(pl.Series(keep, dtype=pl.Boolean))


def volume_spikes(made: pl.DataFrame) -> pl.DataFrame:
    """Return minutes with far more than the usual volume: row by row."""
    minutes = _minutes(made, shares=pl.col("shares").sum()).sort("window_end", "stock")
    usual: dict[int, tuple[float, int]] = {}
    found = []
    for stock, end, shares in minutes.select("stock", "window_end", "shares").iter_rows():
        mean, seen = usual.get(stock, (float(shares), 0))
        if seen >= 8 and shares > 3.0 * mean:
            found.append((stock, end, shares, mean))
        usual[stock] = (mean + (shares - mean) / 8, seen + 1)
    schema: dict[str, pl.DataType] = {
        "stock": pl.Int32(), "window_end": pl.Datetime("us"), "shares": pl.Int64(),
        "usual": pl.Float64(),
    }  # fmt: skip
    return pl.DataFrame(found, schema=schema, orient="row")


def _minutes(made: pl.DataFrame, **values: pl.Expr) -> pl.DataFrame:
    start = pl.col("at").dt.truncate("1m")
    grouped = made.group_by("stock", window_start=start).agg(**values)
    return grouped.with_columns(window_end=pl.col("window_start") + timedelta(minutes=1))


def _slid(made: pl.DataFrame, every: timedelta, times: int) -> pl.DataFrame:
    """Return each trade once for every window that it is in."""
    first = pl.col("at").dt.truncate(every)
    return pl.concat(
        [made.with_columns(window_start=first - i * every) for i in range(times)]
    ).with_columns(window_end=pl.col("window_start") + times * every)
