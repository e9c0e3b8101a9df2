"""The order book of a stock: price-time priority over many orders at once.

Law: what `match_orders` returns for a run of orders is what one order after the other gives, and
any cut of the run into calls gives the same trades. Orders of a book that have expired never trade,
whenever they are thrown away.

A side of a book is a heap of tuples (rank, time, order, volume, trader) with the best order first;
the rank is the price, negative for buyers. Orders are read as columns, with no dict for each.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

import numpy as np
import polars as pl

Entry = tuple[int, int, int, int, int]
Side = list[Entry]
Order = tuple[int, int, int, int, int, int, bool]
Sides = tuple[Side, Side, int]
"""Buyers, sellers, and how many trades there were."""

FIELDS = ("rank", "time", "order", "volume", "trader")
BOOK_STATE: dict[str, pl.DataType] = {
    "trades": pl.Int64(),
    **{f"{side}_{field}": pl.List(pl.Int64()) for side in ("bid", "ask") for field in FIELDS},
}
"""How many trades a stock had, and its outstanding orders: two heaps, each as five lists."""

TRADE_SCHEMA: dict[str, pl.DataType] = {
    "trade": pl.Int64(),
    "at": pl.Datetime("us"),
    "price": pl.Int64(),
    "shares": pl.Int64(),
    "buyer": pl.Int32(),
    "seller": pl.Int32(),
    "buy_order": pl.Int64(),
    "sell_order": pl.Int64(),
}
"""A transaction beside its stock: its number there, when, cents a share, how many, who, orders."""

_ROW, _KEY = "__row", "stock"


def match_orders(
    orders: pl.DataFrame, books: pl.DataFrame, expiry_us: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Execute orders against the books and return the trades and the new books.

    Args:
        orders: Sorted by stock, then stream order, with `__row`.
        books: One row for each stock that has outstanding orders: `stock` and `BOOK_STATE`.
        expiry_us: How long an order stays in the book.
    """
    sides = _open(books)
    trades: list[int] = []
    closed: dict[int, Sides] = {}
    for stock, run in _runs(orders):
        bids, asks, before = sides.get(stock, ([], [], 0))
        count, last = _match(run, bids, asks, expiry_us, trades, before)
        since = last - expiry_us
        closed[stock] = (_fresh(bids, since), _fresh(asks, since), count)
    return _trades(trades, orders), _books(closed, books)


def _match(
    run: Iterable[Order],
    bids: Side,
    asks: Side,
    expiry_us: int,
    trades: list[int],
    count: int,
) -> tuple[int, int]:
    """Execute one stock's orders in turn; return its number of trades and the last order's time.

    The values of a trade are added one after the other to those of others: a list of tuples would
    be looked through by the garbage collector, again and again, for a third of the time.
    """
    now = 0
    for row, now, order, price, volume, trader, buys in run:
        own, other, rank = (bids, asks, -price) if buys else (asks, bids, price)
        since = now - expiry_us
        while other and volume:
            best, time, theirs, offered, who = other[0]
            if time <= since:
                heappop(other)
                continue
            if best > -rank:  # the other side's rank has the other sign
                break
            shares = offered if offered < volume else volume
            volume -= shares
            if shares == offered:
                heappop(other)
            else:
                other[0] = (best, time, theirs, offered - shares, who)
            count += 1
            trades += (
                (row, count, now, best, shares, trader, who, order, theirs)
                if buys
                else (row, count, now, -best, shares, who, trader, theirs, order)
            )
        if volume:
            heappush(own, (rank, now, order, volume, trader))
    return count, now


def _runs(orders: pl.DataFrame) -> Iterable[tuple[int, Iterable[Order]]]:
    """Give each stock with its orders, in turn."""
    columns = [
        column.to_list()
        for column in orders.select(
            _ROW,
            pl.col("ts").cast(pl.Int64),
            "order",
            "price",
            "volume",
            "trader",
            pl.col("side") == "buy",
        )
    ]
    stocks = orders[_KEY].rle()
    first = 0
    for stock, length in zip(stocks.struct["value"], stocks.struct["len"], strict=True):
        yield stock, zip(*(column[first : first + length] for column in columns), strict=True)
        first += length


def _open(books: pl.DataFrame) -> dict[int, Sides]:
    """Return the two heaps of each stock, and how many trades it had."""
    bids, asks = (
        [
            list(zip(*fields, strict=True))
            for fields in zip(
                *(books[f"{side}_{field}"].to_list() for field in FIELDS), strict=True
            )
        ]
        for side in ("bid", "ask")
    )
    sides = zip(bids, asks, books["trades"].to_list(), strict=True)
    return dict(zip(books[_KEY].to_list(), sides, strict=True))


def _fresh(side: Side, since: int) -> Side:
    """Return the heap without the orders that have expired."""
    kept = [entry for entry in side if entry[1] > since]
    if len(kept) < len(side):
        heapify(kept)
    return kept


def _trades(trades: Sequence[int], orders: pl.DataFrame) -> pl.DataFrame:
    """Return the trades as a frame: stock, `TRADE_SCHEMA`, `__row`."""
    types = {_ROW: orders.schema[_ROW], **TRADE_SCHEMA}
    table = np.array(trades, dtype=np.int64).reshape(-1, len(types)).T
    made = pl.DataFrame(
        [
            pl.Series(name, np.ascontiguousarray(column)).cast(types[name])
            for name, column in zip(types, table, strict=True)
        ]
    )
    stocks = orders[_KEY].gather(made[_ROW])
    return made.insert_column(0, stocks)


def _books(closed: dict[int, Sides], before: pl.DataFrame) -> pl.DataFrame:
    """Return one row for each stock."""
    columns: dict[str, pl.Series] = {
        _KEY: pl.Series(list(closed), dtype=before.schema[_KEY]),
        "trades": pl.Series([sides[2] for sides in closed.values()], dtype=pl.Int64),
    }
    for i, side in enumerate(("bid", "ask")):
        heaps = [sides[:2][i] for sides in closed.values()]
        for j, field in enumerate(FIELDS):
            lists = [[entry[j] for entry in heap] for heap in heaps]
            columns[f"{side}_{field}"] = pl.Series(lists, dtype=pl.List(pl.Int64))
    return pl.DataFrame(columns)
