"""The stock exchange of Elasticutor, section 5.4: a transactor, six statistics and five events.

Orders go into the `Transactor`, which keeps a book for each stock; the trades that it makes feed
all other operators, in one query with a sink for each.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import polars as pl

import penstock as ps
from penstock.workloads.book import BOOK_STATE, TRADE_SCHEMA, match_orders
from penstock.workloads.draws import SECOND
from penstock.workloads.orders import ORDER_SCHEMA, Orders

if TYPE_CHECKING:
    from penstock.query.stream import Sinks, Stream

__all__ = ["ORDER_SCHEMA", "STREAMS", "Orders", "Spike", "Transactor", "exchange", "streams"]

EXPIRY_SECONDS = 60
"""How long an order stays in the book."""


class Transactor(ps.BatchProcess):
    """Executes each order against the outstanding ones of its stock, by price, then time.

    A trade has the price of the order that was there first. What is left of an order stays in the
    book for `EXPIRY_SECONDS`.
    """

    state = BOOK_STATE
    output = TRADE_SCHEMA

    def on_rows(self, rows: pl.DataFrame, state: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Match the orders of many stocks."""
        return match_orders(rows, state, EXPIRY_SECONDS * SECOND)


class Spike(ps.Process):
    """Tells a stock's volumes that are more than `factor` times the mean of those before.

    The mean is exponential, each new volume weighing an eighth; the first eight volumes of a stock
    only make it.
    """

    factor = 3.0
    state = {"mean": pl.Float64, "seen": pl.Int64}  # noqa: RUF012  # read only
    output = {"window_end": pl.Datetime("us"), "shares": pl.Int64, "usual": pl.Float64}  # noqa: RUF012

    def on_row(self, row: dict[str, Any], context: ps.Context) -> Iterable[dict[str, Any]]:
        """Compare one window's volume with the mean, then let it count."""
        known = context.state or {"mean": float(row["shares"]), "seen": 0}
        usual, seen = known["mean"], known["seen"]
        mean = usual + (row["shares"] - usual) / 8
        context.state = {"mean": mean, "seen": seen + 1}
        if seen >= 8 and row["shares"] > self.factor * usual:
            yield {"window_end": row["window_end"], "shares": row["shares"], "usual": usual}


def transactions(orders: "Stream") -> "Stream":
    """Return the trades that the orders make."""
    return orders.process(Transactor(), by="stock")


def moving_averages(trades: "Stream", rows: int = 50, every: int = 10) -> "Stream":
    """Return each stock's mean price over its last trades, and the last one's price and number."""
    return trades.aggregate(
        by="stock",
        window=ps.count_window(rows, every=every),
        mean="avg(price)",
        price="last(price)",
        trade="last(trade)",
    )


def vwap(trades: "Stream") -> "Stream":
    """Return each stock's mean price weighted by volume, per minute."""
    return trades.aggregate(
        by="stock",
        window=ps.tumbling("1 minute"),
        vwap=(pl.col("price") * pl.col("shares")).sum() / pl.col("shares").sum(),
    )


def composite_index(trades: "Stream", bases: pl.DataFrame) -> "Stream":
    """Return the index of all stocks per second: what was paid, over its worth at base prices."""
    paid, worth = (pl.col(price) * pl.col("shares") for price in ("price", "base"))
    return trades.enrich(bases, on="stock", how="inner").aggregate(
        window=ps.tumbling("1 second"), index=1000 * paid.sum() / worth.sum(), trades="count(*)"
    )


def volatility(trades: "Stream") -> "Stream":
    """Return the deviation of each stock's price over its mean, 5 minutes advancing by 1."""
    return trades.aggregate(
        by="stock",
        window=ps.sliding("5 minutes", every="1 minute"),
        volatility=pl.col("price").std() / pl.col("price").mean(),
    )


def volumes(trades: "Stream") -> "Stream":
    """Return shares and cents that changed hands per stock, 1 minute advancing by 10 seconds."""
    return trades.aggregate(
        by="stock",
        window=ps.sliding("1 minute", every="10 seconds"),
        shares="sum(shares)",
        cents="sum(price * shares)",
    )


def spreads(trades: "Stream") -> "Stream":
    """Return the highest and the lowest price of each stock per minute, and what lies between."""
    return trades.aggregate(
        by="stock",
        window=ps.tumbling("1 minute"),
        high="max(price)",
        low="min(price)",
        spread="max(price) - min(price)",
    )


def price_alarms(trades: "Stream", bases: pl.DataFrame, above: float = 1.04) -> "Stream":
    """Return trades above a stock's threshold, at most one a minute for each stock."""
    limits = bases.select("stock", limit=(pl.col("base") * above).cast(pl.Int64))
    return (
        trades.enrich(limits, on="stock", how="inner")
        .filter('price > "limit"')
        .dedup(by="stock", within="1 minute")
    )


def price_jumps(averages: "Stream", share: float = 0.02) -> "Stream":
    """Return moving averages from which the last price is away by more than a share."""
    mean = pl.col("mean")
    return averages.filter((pl.col("price") - mean).abs() > share * mean)


def volume_spikes(trades: "Stream") -> "Stream":
    """Return the minutes in which a stock's volume was far above what is usual."""
    minutes = trades.aggregate(by="stock", window=ps.tumbling("1 minute"), shares="sum(shares)")
    return minutes.process(Spike(), by="stock")


def wash_trades(trades: "Stream") -> "Stream":
    """Return trades of a trader with itself."""
    return trades.filter("buyer = seller")


def big_trades(trades: "Stream", cents: int = 30_000_000) -> "Stream":
    """Return trades of at least so many cents."""
    return trades.filter(f"price * shares >= {cents}")


STREAMS = (
    "transactions", "moving_averages", "vwap", "composite_index", "volatility", "volumes",
    "spreads", "price_alarms", "price_jumps", "volume_spikes", "wash_trades", "big_trades",
)  # fmt: skip
"""The trades, six statistics and five events, by name."""


def streams(orders: "Stream", bases: pl.DataFrame) -> "dict[str, Stream]":
    """Return all streams of the application by name; `bases` has a price for each stock."""
    trades = transactions(orders)
    averages = moving_averages(trades)
    return {
        "transactions": trades,
        "moving_averages": averages,
        "vwap": vwap(trades),
        "composite_index": composite_index(trades, bases),
        "volatility": volatility(trades),
        "volumes": volumes(trades),
        "spreads": spreads(trades),
        "price_alarms": price_alarms(trades, bases),
        "price_jumps": price_jumps(averages),
        "volume_spikes": volume_spikes(trades),
        "wash_trades": wash_trades(trades),
        "big_trades": big_trades(trades),
    }


def exchange(
    orders: "Stream", bases: pl.DataFrame, sink: "Callable[[Stream, str], Sinks]"
) -> "Sinks":
    """Return the whole application as one query; `sink` puts a sink on each named stream."""
    first, *others = (sink(stream, name) for name, stream in streams(orders, bases).items())
    return first.also(*others)
