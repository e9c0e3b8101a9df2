"""Nexmark's queries in SQL, as far as SQL can say them, over the tables person, auction and bid.

The law this module keeps: a query here gives the rows that `nexmark` gives in Python.
"""

from typing import TYPE_CHECKING

import penstock as ps
from penstock.workloads.nexmark import House

if TYPE_CHECKING:
    from penstock.query.stream import Stream

__all__ = ["TEXTS", "UNSAID", "in_sql"]

_RANKS = ",\n       ".join(
    f"{count} FILTER (WHERE {true}) AS {rank}_{name}"
    for name, count in (
        ("bids", "count(*)"),
        ("bidders", "count(DISTINCT bidder)"),
        ("auctions", "count(DISTINCT auction)"),
    )
    for rank, true in (
        ("total", "price IS NOT NULL"),
        ("rank1", "price < 10000"),
        ("rank2", "price >= 10000 AND price < 1000000"),
        ("rank3", "price >= 1000000"),
    )
)
_BID_RANKS = ",\n       ".join(_RANKS.split(",\n       ")[:4])

TEXTS = {
    "q0": "SELECT auction, bidder, price, ts, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, ts, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """
SELECT p.name, p.city, p.state, a.id
FROM auction a
JOIN person p ON a.seller = p.id AND abs(a.ts - p.ts) < INTERVAL '{within}'
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')
""",
    "q4": """
SELECT category, window_start, window_end, avg(final) AS mean_price
FROM (
  SELECT a.id, a.category, window_end, max(b.price) AS final
  FROM auction a
  JOIN bid b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '{within}'
   AND b.ts <= a.expires
  GROUP BY a.id, a.category, SESSION(GREATEST(a.ts, b.ts), '{within}')
) AS closed
GROUP BY category, TUMBLE(window_end, '1 day')
""",
    "q5": """
WITH counts AS (
  SELECT auction, window_end, count(*) AS num
  FROM bid
  GROUP BY auction, HOP(ts, '10 seconds', '2 seconds')
), most AS (
  SELECT window_start AS of_end, window_end, max(num) AS num
  FROM counts
  GROUP BY TUMBLE(window_end, '2 seconds')
)
SELECT c.auction, c.num, c.window_end
FROM counts c
JOIN most m ON c.window_end = m.of_end AND c.num = m.num
 AND m.window_end BETWEEN c.window_end AND c.window_end + INTERVAL '2 seconds'
""",
    "q7": """
WITH most AS (
  SELECT window_end, max(price) AS price FROM bid GROUP BY TUMBLE(ts, '10 seconds')
)
SELECT b.auction, b.price, b.bidder, b.ts, b.extra
FROM bid b
JOIN most m ON b.price = m.price
 AND b.ts BETWEEN m.window_end - INTERVAL '10 seconds' AND m.window_end
""",
    "q8": """
WITH registered AS (
  SELECT id, name, window_start, window_end FROM person GROUP BY id, name, TUMBLE(ts, '10 seconds')
), opened AS (
  SELECT seller, window_end FROM auction GROUP BY seller, TUMBLE(ts, '10 seconds')
)
SELECT r.id, r.name, r.window_start AS since
FROM registered r
JOIN opened o ON r.id = o.seller AND r.window_end = o.window_end
""",
    "q10": """
SELECT auction, bidder, price, ts, extra,
       strftime(ts, '%Y-%m-%d') AS dt, strftime(ts, '%H:%M') AS hm
FROM bid
""",
    "q11": """
SELECT bidder, window_start, window_end, count(*) AS bid_count
FROM bid
GROUP BY bidder, SESSION(ts, INTERVAL '10' SECOND)
""",
    "q12": """
SELECT bidder, window_start, window_end, count(*) AS bid_count
FROM bid
GROUP BY bidder, TUMBLE(ts, INTERVAL '10' SECOND)
""",
    "q14": """
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN hour(ts) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour(ts) <= 6 OR hour(ts) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bid_time_type,
       ts, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
""",
    "q15": f"""
SELECT window_start, window_end,
       {_RANKS}
FROM bid
GROUP BY TUMBLE(ts, '1 day')
""",
    "q16": f"""
SELECT channel, window_start, window_end, max(strftime(ts, '%H:%M')) AS last_minute,
       {_RANKS}
FROM bid
GROUP BY channel, TUMBLE(ts, '1 day')
""",
    "q17": f"""
SELECT auction, window_start, window_end,
       {_BID_RANKS},
       min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price,
       sum(price) AS sum_price
FROM bid
GROUP BY auction, TUMBLE(ts, '1 day')
""",
    "q18": """
SELECT bidder, auction, window_start, window_end, last(price) AS price, last(channel) AS channel,
       last(url) AS url, last(ts) AS ts, last(extra) AS extra
FROM bid
GROUP BY bidder, auction, TUMBLE(ts, '1 day')
""",
    "q20": """
SELECT b.*, a.item, a.description, a.initial_bid, a.reserve, a.ts AS ts_of_auction, a.expires,
       a.seller, a.category, a.extra AS extra_of_auction
FROM bid b
JOIN auction a ON b.auction = a.id AND abs(b.ts - a.ts) < INTERVAL '{within}'
WHERE a.category = 10
""",
    "q21": """
SELECT * FROM (
  SELECT auction, bidder, price, channel,
         CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
              WHEN 'baidu' THEN '3'
              ELSE CASE WHEN strpos(url, '&channel_id=') > 0
                        THEN split_part(split_part(url, '&channel_id=', 2), '&', 1) END
              END AS channel_id
  FROM bid
) AS identified
WHERE channel_id IS NOT NULL
""",
    "q22": """
SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1,
       split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bid
""",
}
"""The text of each query; `{within}` stands for the bound of a join."""

UNSAID = {
    "q6": "a mean over the last ten rows of a key needs OVER, and closing an auction a timer",
    "q9": "the winning bid when an auction expires needs a timer",
    "q13": "SQL has no table that stands still; `Stream.enrich` takes one",
    "q19": "the first rows of each key need OVER; `Stream.top` takes `by`",
}
"""Why a query has no text."""


def in_sql(name: str, house: House) -> "Stream":
    """Return a query that is written in SQL.

    Raises:
        KeyError: SQL can't say it; `UNSAID` tells why.
    """
    text = TEXTS[name].replace("{within}", house.within)
    return ps.sql(text, person=house.person, auction=house.auction, bid=house.bid)
