"""Nexmark's queries 0 to 22 over the streams of an online auction house.

Each query is a function from a `House` to a stream of results. Where the definition has no bound in
time, as an aggregate over all that ever came has none, the query here has one: a day, or `within`.
`nexmark_sql` says the same in SQL, as far as SQL can.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

import penstock as ps
from penstock.workloads.auctions import (
    AUCTION_SCHEMA,
    BID_SCHEMA,
    PERSON_SCHEMA,
    Auctions,
    Bids,
    Market,
    Persons,
    side_input,
)
from penstock.workloads.winners import LastPrices, Winner, winning_bids

if TYPE_CHECKING:
    from penstock.query.stream import Stream

__all__ = [
    "AUCTION_SCHEMA",
    "BID_SCHEMA",
    "PERSON_SCHEMA",
    "QUERIES",
    "Auctions",
    "Bids",
    "House",
    "LastPrices",
    "Market",
    "Persons",
    "Winner",
    "side_input",
]

TEN_SECONDS = "10 seconds"
DAY = "1 day"
EURO = "0.908"
"""Euros for a dollar."""
HOT_CHANNELS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """The three streams, and how far apart in time rows are that a query pairs."""

    person: "Stream"
    auction: "Stream"
    bid: "Stream"
    within: str = "10 minutes"


def q0(house: House) -> "Stream":
    """Return the bids as they are."""
    return house.bid.select("auction", "bidder", "price", "ts", "extra")


def q1(house: House) -> "Stream":
    """Return the bids with prices in euros, exact to a thousandth of a cent."""
    return house.bid.select("auction", "bidder", "ts", "extra", price=f"{EURO} * price")


def q2(house: House) -> "Stream":
    """Return the bids on some auctions."""
    return house.bid.filter("auction % 123 = 0").select("auction", "price")


def q3(house: House) -> "Stream":
    """Return who sells something of category 10 in Oregon, Idaho or California."""
    sold = house.auction.filter("category = 10").select("id", "seller")
    sellers = house.person.filter("state in ('OR', 'ID', 'CA')").select(
        "name", "city", "state", seller="id"
    )
    pairs = sold.join(sellers, on="seller", within=house.within)
    return pairs.select("name", "city", "state", "id")


def q4(house: House) -> "Stream":
    """Return the mean closing price of each category, per day.

    The bids of an auction are a session, because `within` is longer than an auction is open.
    """
    auctions = house.auction.select("id", "category", "expires", "ts")
    bids = house.bid.select("auction", "price", "ts")
    pairs = auctions.join(
        bids,
        left_on="id",
        right_on="auction",
        within=house.within,
        where="ts_right between ts and expires",
    )
    closed = pairs.aggregate(
        by=("id", "category"), window=ps.session(house.within), final="max(price)"
    )
    return closed.aggregate(by="category", window=ps.tumbling(DAY), mean_price="avg(final)")


def q5(house: House) -> "Stream":
    """Return the auctions with the most bids in the last ten seconds, every two seconds."""
    counts = house.bid.aggregate(
        by="auction", window=ps.sliding(TEN_SECONDS, every="2 seconds"), num="count(*)"
    )
    # A count's event time is its window's end, so those of one window are alone in two seconds.
    most = counts.aggregate(window=ps.tumbling("2 seconds"), num="max(num)").select(
        "num", window_end="window_start"
    )
    return counts.join(most, on=("window_end", "num"), within="3 seconds").select(
        "auction", "num", "window_end"
    )


def q6(house: House) -> "Stream":
    """Return the mean price of each seller's last ten auctions, whenever one has closed."""
    sellers = house.auction.select("seller", auction="id")
    closed = winning_bids(house.auction, house.bid).join(sellers, on="auction", within=house.within)
    return closed.select("auction", "seller", "price", "expires").process(LastPrices(), by="seller")


def q7(house: House) -> "Stream":
    """Return the highest bids of every ten seconds."""
    most = house.bid.aggregate(window=ps.tumbling(TEN_SECONDS), price="max(price)")
    pairs = house.bid.join(
        most,
        on="price",
        within="11 seconds",
        where="ts between window_start and window_end",
    )
    return pairs.select("auction", "price", "bidder", "ts", "extra")


def q8(house: House) -> "Stream":
    """Return persons who registered and opened an auction in the same ten seconds."""
    registered = house.person.aggregate(
        by=("id", "name"), window=ps.tumbling(TEN_SECONDS), persons="count(*)"
    )
    opened = house.auction.map(id="seller").aggregate(
        by="id", window=ps.tumbling(TEN_SECONDS), auctions="count(*)"
    )
    both = registered.join(opened, on=("id", "window_end"), within="1 second")
    return both.select("id", "name", since="window_start")


def q9(house: House) -> "Stream":
    """Return each auction with its winning bid, once it has expired."""
    auctions = house.auction.map(auction="id").select(
        "auction", "item", "description", "initial_bid", "reserve", "ts", "seller", "category",
        "extra",
    )  # fmt: skip
    won = winning_bids(house.auction, house.bid)
    return won.join(auctions, on="auction", within=house.within)


def q10(house: House) -> "Stream":
    """Return the bids with the day and the minute that they are filed under."""
    return house.bid.map(dt="strftime(ts, '%Y-%m-%d')", hm="strftime(ts, '%H:%M')").select(
        "auction", "bidder", "price", "ts", "extra", "dt", "hm"
    )


def q11(house: House) -> "Stream":
    """Return how many bids a bidder makes with pauses of no more than ten seconds."""
    return house.bid.aggregate(by="bidder", window=ps.session(TEN_SECONDS), bid_count="count(*)")


def q12(house: House) -> "Stream":
    """Return how many bids each bidder makes in ten seconds, of event time."""
    return house.bid.aggregate(by="bidder", window=ps.tumbling(TEN_SECONDS), bid_count="count(*)")


def q13(house: House) -> "Stream":
    """Return the bids with a text from a table that stands still."""
    keyed = house.bid.map(key="auction % 10000").enrich(side_input(), on="key", how="inner")
    return keyed.select("auction", "bidder", "price", "ts", "value")


def q14(house: House) -> "Stream":
    """Return bids of a million cents or more in euros, with the time of day and a count of c's."""
    euros = house.bid.map(euros=f"{EURO} * price")
    dear = euros.filter("euros > 1000000 and euros < 50000000")
    schema = {name: BID_SCHEMA[name] for name in ("auction", "bidder", "ts", "extra")}
    counted = dear.apply(
        count_c, schema={**schema, "euros": dear.schema["euros"], "c_counts": pl.Int64}
    )
    return counted.select(
        "auction",
        "bidder",
        "ts",
        "extra",
        "c_counts",
        price="euros",
        bid_time_type="""
            case when hour(ts) between 8 and 18 then 'dayTime'
                 when hour(ts) <= 6 or hour(ts) >= 20 then 'nightTime'
                 else 'otherTime' end""",
    )


def count_c(bids: pl.DataFrame) -> pl.DataFrame:
    """Return the bids, each with how often the letter c is in its `extra`: a user's function."""
    count = pl.col("extra").str.count_matches("c", literal=True).cast(pl.Int64)
    return bids.select("auction", "bidder", "ts", "extra", "euros", c_counts=count)


def q15(house: House) -> "Stream":
    """Return how many bids, bidders and auctions there were each day, by rank of price."""
    return house.bid.aggregate(window=ps.tumbling(DAY), **_by_rank())


def q16(house: House) -> "Stream":
    """Return the same for each channel, and the last minute with a bid."""
    minute = pl.col("ts").dt.strftime("%H:%M").max()
    return house.bid.aggregate(
        by="channel", window=ps.tumbling(DAY), last_minute=minute, **_by_rank()
    )


def q17(house: House) -> "Stream":
    """Return how many bids each auction had each day, by rank of price, and their prices."""
    counts = {name: value for name, value in _by_rank().items() if name.endswith("_bids")}
    return house.bid.aggregate(
        by="auction",
        window=ps.tumbling(DAY),
        **counts,
        min_price="min(price)",
        max_price="max(price)",
        avg_price="avg(price)",
        sum_price="sum(price)",
    )


def _by_rank() -> dict[str, Any]:
    """Return counts of bids, and of different bidders and auctions, in all and by rank of price."""
    price = pl.col("price")
    ranks = {
        "total": price.is_not_null(),
        "rank1": price < 10_000,
        "rank2": (price >= 10_000) & (price < 1_000_000),
        "rank3": price >= 1_000_000,
    }
    bids = {f"{rank}_bids": true.sum().cast(pl.Int64) for rank, true in ranks.items()}
    different = {
        f"{rank}_{column}s": pl.col(column).filter(true).n_unique().cast(pl.Int64)
        for column in ("bidder", "auction")
        for rank, true in ranks.items()
    }
    return bids | different


def q18(house: House) -> "Stream":
    """Return each bidder's last bid on each auction, per day."""
    return house.bid.aggregate(
        by=("bidder", "auction"),
        window=ps.tumbling(DAY),
        price="last(price)",
        channel="last(channel)",
        url="last(url)",
        ts="last(ts)",
        extra="last(extra)",
    )


def q19(house: House) -> "Stream":
    """Return the ten highest bids on each auction, per day."""
    return house.bid.top(10, "price", by="auction", window=ps.tumbling(DAY))


def q20(house: House) -> "Stream":
    """Return the bids on auctions of category 10, with all that is known of the auction."""
    auctions = house.auction.filter("category = 10").map(auction="id")
    listed = auctions.select(
        "auction", "item", "description", "initial_bid", "reserve", "ts", "expires", "seller",
        "category", "extra",
    )  # fmt: skip
    return house.bid.join(listed, on="auction", within=house.within, suffix="_of_auction")


def q21(house: House) -> "Stream":
    """Return the bids with the id of their channel: a known one's, or that in the address."""
    found = pl.col("url").str.extract("(?:&|^)channel_id=([^&]*)", 1)
    known = pl.col("channel").str.to_lowercase().replace_strict(HOT_CHANNELS, default=None)
    identified = house.bid.map(channel_id=pl.coalesce(known, found))
    return identified.filter("channel_id is not null").select(
        "auction", "bidder", "price", "channel", "channel_id"
    )


def q22(house: House) -> "Stream":
    """Return the bids with the three folders of their page's address."""
    parts = pl.col("url").str.split("/")
    folders = {f"dir{i}": parts.list.get(2 + i, null_on_oob=True) for i in (1, 2, 3)}
    return house.bid.select("auction", "bidder", "price", "channel", **folders)


QUERIES: "dict[str, Callable[[House], Stream]]" = {
    query.__name__: query
    for query in (
        q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11, q12, q13, q14, q15, q16, q17, q18, q19,
        q20, q21, q22,
    )
}  # fmt: skip
"""The queries by name."""
