"""Auctions that close: the operators behind Nexmark's queries 6 and 9.

The law this module keeps: an auction's price is final when the auction expires, and not before.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

import penstock as ps

if TYPE_CHECKING:
    from penstock.query.stream import Stream

_TIME = pl.Datetime("us")
_BID = {"price": pl.Int64, "bidder": pl.Int64, "bid_ts": _TIME, "bid_extra": pl.String}
_AFTER = timedelta(microseconds=1)
"""A bid at the very end still counts, and a timer fires before the rows of its time."""
LAST_AUCTIONS = 10


class Winner(ps.Process):
    """The best bid of each auction, once it has expired: the highest, of equal ones the first.

    It gets the auctions, which have `expires` and no price, and the bids, which have no `expires`.
    Bids before the auction opens or after it has expired do not count.
    """

    state = {"expires": _TIME, **_BID}  # noqa: RUF012  # read only
    output = {"expires": _TIME, **_BID}  # noqa: RUF012

    def on_row(self, row: dict[str, Any], context: ps.Context) -> None:
        """Open an auction, or keep a bid that is better than the best so far."""
        best = context.state
        if row["expires"] is not None:
            context.state = {name: row[name] for name in self.state}
            context.set_timer(row["expires"] + _AFTER)
        elif best is not None and (best["price"] is None or row["price"] > best["price"]):
            context.state = {name: row[name] for name in _BID} | {"expires": best["expires"]}

    def on_timer(self, _: datetime, context: ps.Context) -> Iterable[dict[str, Any]]:
        """Close an auction; one without a bid has no winner."""
        closed, context.state = context.state, None
        if closed is not None and closed["price"] is not None:
            yield closed


class LastPrices(ps.Process):
    """The mean price of a seller's last ten auctions, whenever one more has closed."""

    state = {"prices": pl.List(pl.Int64)}  # noqa: RUF012  # read only
    output = {"auction": pl.Int64, "expires": _TIME, "mean_price": pl.Float64}  # noqa: RUF012

    def on_row(self, row: dict[str, Any], context: ps.Context) -> Iterable[dict[str, Any]]:
        """Let one more price count, and forget the one that is the eleventh."""
        before = context.state["prices"] if context.state else []
        prices = [*before, row["price"]][-LAST_AUCTIONS:]
        context.state = {"prices": prices}
        mean = sum(prices) / len(prices)
        yield {"auction": row["auction"], "expires": row["expires"], "mean_price": mean}


def winning_bids(auction: "Stream", bid: "Stream") -> "Stream":
    """Return the winning bid of each auction that has one; its event time is when it expires."""
    none = {name: pl.lit(None, dtype=dtype) for name, dtype in Winner.state.items()}
    opened = auction.select(auction="id", **none | {"expires": pl.col("expires")})
    offered = {"price": "price", "bidder": "bidder", "bid_ts": "ts", "bid_extra": "extra"}
    made = bid.select("auction", **none | {name: pl.col(old) for name, old in offered.items()})
    return opened.union(made).process(Winner(), by="auction")
