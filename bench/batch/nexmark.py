"""Nexmark's queries as DuckDB says them over all rows at once: the judge of what engines give.

Beside their columns the tables have `n`, the place of a row in the order of arrival, by which rows
of the same time are told apart. `{within}` is the bound of joins in seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import duckdb
import polars as pl

from penstock.workloads.auctions import Market, side_input

_RANKS = """
    count(*) total_bids,
    count(*) filter (price < 10000) rank1_bids,
    count(*) filter (price >= 10000 and price < 1000000) rank2_bids,
    count(*) filter (price >= 1000000) rank3_bids"""
_DISTINCT_RANKS = """
    count(distinct bidder) total_bidders,
    count(distinct bidder) filter (price < 10000) rank1_bidders,
    count(distinct bidder) filter (price >= 10000 and price < 1000000) rank2_bidders,
    count(distinct bidder) filter (price >= 1000000) rank3_bidders,
    count(distinct auction) total_auctions,
    count(distinct auction) filter (price < 10000) rank1_auctions,
    count(distinct auction) filter (price >= 10000 and price < 1000000) rank2_auctions,
    count(distinct auction) filter (price >= 1000000) rank3_auctions"""
_DAY = "date_trunc('day', ts)::timestamp window_start, window_start + interval 1 day window_end"
_TEN = "time_bucket(interval 10 seconds, ts)"
_WON = """
    won as (
      select a.*, b.bidder, b.price, b.ts bid_ts, b.extra bid_extra
      from auction a join bid b on a.id = b.auction and b.ts between a.ts and a.expires
      qualify row_number() over (partition by a.id order by b.price desc, b.ts, b.n) = 1)"""

QUERIES = {
    "q0": "select auction, bidder, price, ts, extra from bid",
    "q1": "select auction, bidder, price * 0.908 price, ts, extra from bid",
    "q2": "select auction, price from bid where auction % 123 = 0",
    "q3": """
        select name, city, state, a.id from auction a join person p on a.seller = p.id
        where category = 10 and state in ('OR', 'ID', 'CA')
          and abs(epoch_us(a.ts) - epoch_us(p.ts)) < {within}::bigint * 1000000""",
    "q4": """
        with closed as (
          select category, max(price) price, max(b.ts) + interval {within} seconds closed_at
          from auction a join bid b on a.id = b.auction and b.ts between a.ts and a.expires
          group by a.id, category)
        select category, date_trunc('day', closed_at)::timestamp window_start,
               window_start + interval 1 day window_end, avg(price) mean_price
        from closed group by all""",
    "q5": """
        with shifts as (select unnest(range(5)) * interval 2 seconds shift),
             counts as (
               select auction, time_bucket(interval 2 seconds, ts) - shift + interval 10 seconds
                      window_end, count(*) num
               from bid, shifts group by all)
        select auction, num, window_end from counts
        qualify num = max(num) over (partition by window_end)""",
    "q6": f"""
        with {_WON}
        select seller, id auction, expires, avg(price) over (
          partition by seller order by expires, id rows between 9 preceding and current row
        ) mean_price from won""",
    "q7": f"""
        with most as (select {_TEN} + interval 10 seconds window_end, max(price) price
                      from bid group by all)
        select auction, b.price, bidder, ts, extra from bid b join most m
        on b.price = m.price and ts between window_end - interval 10 seconds and window_end""",
    "q8": f"""
        select distinct p.id, p.name, p.w since
        from (select *, {_TEN} w from person) p join (select seller, {_TEN} w from auction) a
        on p.id = a.seller and p.w = a.w""",
    "q9": f"with {_WON} select * exclude (id, n), id auction from won",
    "q10": """
        select auction, bidder, price, ts, extra, strftime(ts, '%Y-%m-%d') dt,
               strftime(ts, '%H:%M') hm from bid""",
    "q11": """
        with gaps as (
          select bidder, ts, ts - lag(ts) over w > interval 10 seconds pause from bid
          window w as (partition by bidder order by ts)),
        islands as (
          select bidder, ts, count(*) filter (pause is null or pause) over (
            partition by bidder order by ts range unbounded preceding) island from gaps)
        select bidder, min(ts) window_start, max(ts) + interval 10 seconds window_end,
               count(*) bid_count
        from islands group by bidder, island""",
    "q12": f"""
        select bidder, {_TEN} window_start, window_start + interval 10 seconds window_end,
               count(*) bid_count from bid group by all""",
    "q13": """
        select auction, bidder, price, ts, value
        from bid join side_input on auction % 10000 = key""",
    "q14": """
        select auction, bidder, price * 0.908 price, ts, extra,
               case when hour(ts) >= 8 and hour(ts) <= 18 then 'dayTime'
                    when hour(ts) <= 6 or hour(ts) >= 20 then 'nightTime'
                    else 'otherTime' end bid_time_type,
               len(list_filter(string_split(extra, ''), lambda x: x = 'c')) c_counts
        from bid where price * 0.908 > 1000000 and price * 0.908 < 50000000""",
    "q15": f"select {_DAY}, {_RANKS}, {_DISTINCT_RANKS} from bid group by all",
    "q16": f"""
        select channel, {_DAY}, max(strftime(ts, '%H:%M')) last_minute, {_RANKS}, {_DISTINCT_RANKS}
        from bid group by all""",
    "q17": f"""
        select auction, {_DAY}, {_RANKS}, min(price) min_price, max(price) max_price,
               avg(price) avg_price, sum(price)::bigint sum_price
        from bid group by all""",
    "q18": f"""
        select * exclude n, {_DAY} from bid
        qualify row_number() over (
          partition by bidder, auction, ts::date order by ts desc, n desc) = 1""",
    "q19": f"""
        select * exclude n, {_DAY}, row_number() over (
          partition by auction, ts::date order by price desc, ts, n) rank from bid
        qualify rank <= 10""",
    "q20": """
        select b.* exclude n, item, description, initial_bid, reserve, a.ts ts_of_auction, expires,
               seller, category, a.extra extra_of_auction
        from bid b join auction a on b.auction = a.id and category = 10
        where abs(epoch_us(a.ts) - epoch_us(b.ts)) < {within}::bigint * 1000000""",
    "q21": """
        select auction, bidder, price, channel, channel_id from (
          select *, case lower(channel) when 'apple' then '0' when 'google' then '1'
            when 'facebook' then '2' when 'baidu' then '3'
            else nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') end channel_id
          from bid) where channel_id is not null""",
    "q22": """
        select auction, bidder, price, channel, string_split(url, '/')[4] dir1,
               string_split(url, '/')[5] dir2, string_split(url, '/')[6] dir3 from bid""",
}
"""What DuckDB is asked, by query."""


def batch(name: str) -> Callable[[Mapping[str, pl.LazyFrame], Market], dict[str, pl.DataFrame]]:
    """Return the job of one query: from the tables' rows, in order of arrival, to its results."""
    return lambda tables, market: {name: answer(name, tables, market.reach)}


def answer(name: str, tables: Mapping[str, pl.LazyFrame], within: str) -> pl.DataFrame:
    """Return what DuckDB answers to a query over the tables and the table of query 13."""
    with _connection() as connection:
        for table, rows in tables.items():
            connection.register(table, rows.with_row_index("n").collect().to_arrow())
        found: pl.DataFrame = connection.sql(_text(name, within)).pl()
        return found


def answer_files(name: str, files: Mapping[str, Sequence[Path]], within: str, target: Path) -> None:
    """Write what DuckDB answers to a query over tables in files, whose names are in order."""
    with _connection() as connection:
        for table, paths in files.items():
            rows = connection.read_parquet(
                [str(path) for path in paths], filename=True, file_row_number=True
            )
            place = "* exclude (filename, file_row_number), row(filename, file_row_number) n"
            rows.select(place).create_view(table)
        connection.sql(_text(name, within)).write_parquet(str(target))


def _text(name: str, within: str) -> str:
    return QUERIES[name].replace("{within}", within.removesuffix(" seconds"))


def _connection() -> duckdb.DuckDBPyConnection:
    """Return a connection that knows the table of query 13."""
    connection = duckdb.connect()
    connection.execute("set TimeZone = 'UTC'; set threads = 2")
    connection.register("side_input", side_input().to_arrow())
    return connection
