"""Nexmark's queries as Structured Streaming says them: DataFrames in append mode.

The law this module keeps: a query here gives the rows that `penstock.workloads.nexmark` gives, once
its windows are closed. What Structured Streaming can't say without a stateful function of the
user's own is in `UNABLE`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that PySpark's users know

from penstock.workloads.auctions import side_input

UNABLE = {
    "q6": "the last ten rows of a key, and closing an auction, need a stateful function",
    "q9": "the winning bid when an auction expires needs a stateful function",
    "q18": "the last of a key's rows of equal time: rows have no order of arrival",
    "q19": "the first rows of each key need row_number() OVER, which is refused on streams",
}
"""Why a query has no native form."""

_TEN = "10 seconds"
_RANKS = {
    "total": "price is not null",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 and price < 1000000",
    "rank3": "price >= 1000000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The three streams with their watermarks, and how far apart rows are that a query pairs."""

    person: DataFrame
    auction: DataFrame
    bid: DataFrame
    within: str

    def near(self, left: str, right: str) -> str:
        """Return the condition that two times are less than `within` apart."""
        bound = f"interval {self.within}"
        return f"{right} > {left} - {bound} and {right} < {left} + {bound}"


def q0(t: Tables) -> DataFrame:
    """Bids as they are."""
    return t.bid.select("auction", "bidder", "price", "ts", "extra")


def q1(t: Tables) -> DataFrame:
    """Prices in euros."""
    return t.bid.selectExpr("auction", "bidder", "price * 0.908 as price", "ts", "extra")


def q2(t: Tables) -> DataFrame:
    """Bids on some auctions."""
    return t.bid.where("auction % 123 = 0").select("auction", "price")


def q3(t: Tables) -> DataFrame:
    """Sellers of a category in three states: a join of streams."""
    sold = t.auction.where("category = 10").selectExpr("id", "seller", "ts")
    sellers = t.person.where("state in ('OR', 'ID', 'CA')").selectExpr(
        "name", "city", "state", "id as person", "ts as since"
    )
    pairs = sold.join(sellers, F.expr(f"seller = person and {t.near('ts', 'since')}"))
    return pairs.select("name", "city", "state", "id")


def q4(t: Tables) -> DataFrame:
    """Mean closing prices: an aggregate over sessions of the pairs of a join of streams."""
    auctions = t.auction.selectExpr("id", "category", "ts as opened", "expires")
    open_then = f"ts between opened and expires and ts <= opened + interval {t.within}"
    pairs = auctions.join(t.bid, F.expr(f"auction = id and {open_then}"))
    session = F.session_window("ts", t.within).alias("session")
    closed = (
        pairs.select("id", "category", "price", "ts")  # of two event times Spark wants one
        .groupBy("id", "category", session)
        .agg(F.max("price").alias("final"))
    )
    days = closed.groupBy("category", F.window("session", "1 day"))
    return _counted(days, F.avg("final").alias("mean_price"))


def q5(t: Tables) -> DataFrame:
    """Hot auctions: an aggregate over the results of another."""
    counts = t.bid.groupBy("auction", F.window("ts", _TEN, "2 seconds")).agg(
        F.count("*").alias("num")
    )
    most = counts.groupBy(F.window("window", "2 seconds")).agg(
        F.max("num").alias("most"), F.collect_list(F.struct("auction", "num")).alias("all")
    )
    best = F.explode(F.expr("filter(all, x -> x.num = most)")).alias("best")
    return most.select(best, F.col("window.end").alias("window_end")).select(
        "best.auction", "best.num", "window_end"
    )


def q7(t: Tables) -> DataFrame:
    """Highest bids: an aggregate joined with its own input."""
    most = t.bid.groupBy(F.window("ts", _TEN)).agg(F.max("price").alias("most"))
    inside = F.expr("price = most and ts between window.start and window.end")
    return t.bid.join(most, inside).select("auction", "price", "bidder", "ts", "extra")


def q8(t: Tables) -> DataFrame:
    """New sellers: a join of two windowed aggregates."""
    registered = t.person.groupBy("id", "name", F.window("ts", _TEN)).agg(F.count("*").alias("n"))
    opened = t.auction.groupBy("seller", F.window("ts", _TEN).alias("opened")).agg(
        F.count("*").alias("m")
    )
    both = registered.join(opened, F.expr("id = seller and window = opened"))
    return both.selectExpr("id", "name", "window.start as since")


def q10(t: Tables) -> DataFrame:
    """Bids with the day and the minute that they are filed under."""
    day, minute = (F.date_format("ts", form) for form in ("yyyy-MM-dd", "HH:mm"))
    return q0(t).select("*", day.alias("dt"), minute.alias("hm"))


def q11(t: Tables) -> DataFrame:
    """Bids in sessions."""
    window = F.session_window("ts", _TEN).alias("window")
    return _counted(t.bid.groupBy("bidder", window), F.count("*").alias("bid_count"))


def q12(t: Tables) -> DataFrame:
    """Bids in windows."""
    return _counted(t.bid.groupBy("bidder", F.window("ts", _TEN)), F.count("*").alias("bid_count"))


def q13(t: Tables) -> DataFrame:
    """Bids with a text from a table that stands still."""
    table = t.bid.sparkSession.createDataFrame(side_input().to_arrow())
    joined = t.bid.join(F.broadcast(table), F.expr("auction % 10000 = key"))
    return joined.select("auction", "bidder", "price", "ts", "value")


def q14(t: Tables) -> DataFrame:
    """Dear bids, with the time of day and a count of c's."""
    kind = """case when hour(ts) between 8 and 18 then 'dayTime'
                   when hour(ts) <= 6 or hour(ts) >= 20 then 'nightTime'
                   else 'otherTime' end as bid_time_type"""
    count = "cast(length(extra) - length(replace(extra, 'c', '')) as bigint) as c_counts"
    dear = q1(t).where("price > 1000000 and price < 50000000")
    return dear.selectExpr("*", kind, count)


def q15(t: Tables) -> DataFrame:
    """Bids, bidders and auctions by day and rank; streams have no count(DISTINCT)."""
    return _counted(t.bid.groupBy(F.window("ts", "1 day")), *_bids(), *_different())


def q16(t: Tables) -> DataFrame:
    """The same by channel."""
    minute = F.max(F.date_format("ts", "HH:mm")).alias("last_minute")
    groups = t.bid.groupBy("channel", F.window("ts", "1 day"))
    return _counted(groups, minute, *_bids(), *_different())


def q17(t: Tables) -> DataFrame:
    """Bids and prices by auction and day."""
    prices = [getattr(F, f)("price").alias(f"{f}_price") for f in ("min", "max", "avg", "sum")]
    return _counted(t.bid.groupBy("auction", F.window("ts", "1 day")), *_bids(), *prices)


def q20(t: Tables) -> DataFrame:
    """Bids with their auctions: a join of streams."""
    names = ["item", "description", "initial_bid", "reserve", "expires", "seller", "category"]
    auctions = t.auction.where("category = 10").selectExpr(
        *names, "id", "ts as ts_of_auction", "extra as extra_of_auction"
    )
    near = t.near("ts", "ts_of_auction")
    return t.bid.join(auctions, F.expr(f"auction = id and {near}")).drop("id")


def q21(t: Tables) -> DataFrame:
    """Bids with the id of their channel."""
    found = r"nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')"
    known = f"""case lower(channel) when 'apple' then '0' when 'google' then '1'
                when 'facebook' then '2' when 'baidu' then '3' else {found} end as channel_id"""
    every = t.bid.selectExpr("auction", "bidder", "price", "channel", known)
    return every.where("channel_id is not null")


def q22(t: Tables) -> DataFrame:
    """Bids with the folders of their page's address."""
    folders = [f"split_part(url, '/', {3 + i}) as dir{i}" for i in (1, 2, 3)]
    return t.bid.selectExpr("auction", "bidder", "price", "channel", *folders)


def _counted(groups: "object", *columns: Column) -> DataFrame:
    """Return aggregates with their window's bounds as two columns."""
    found: DataFrame = groups.agg(*columns)  # type: ignore[attr-defined]  # GroupedData is private
    bounds = [F.col(f"window.{end}").alias(f"window_{end}") for end in ("start", "end")]
    return found.select("*", *bounds).drop("window")


def _bids() -> list[Column]:
    """Return counts of bids by rank of price."""
    return [F.expr(f"count_if({true})").alias(f"{rank}_bids") for rank, true in _RANKS.items()]


def _different() -> list[Column]:
    """Return counts of different bidders and auctions by rank of price."""
    return [
        F.expr(f"cast(size(collect_set(case when {true} then {name} end)) as bigint)").alias(
            f"{rank}_{name}s"
        )
        for name in ("bidder", "auction")
        for rank, true in _RANKS.items()
    ]


STATELESS: Mapping[str, Callable[[Tables], DataFrame]] = {
    query.__name__: query for query in (q0, q1, q2, q10, q13, q14, q21, q22)
}
"""The queries that keep nothing."""
QUERIES: Mapping[str, Callable[[Tables], DataFrame]] = {
    **STATELESS,
    **{query.__name__: query for query in (q3, q4, q5, q7, q8, q11, q12, q15, q16, q17, q20)},
}
"""The queries by name."""
