"""TPCx-BB queries 1, 2, 3, 4 and 15 as continuous queries, after Ordered's Table 1.

Each is a function from a stream of `Clicks` or `Sales` to a stream of results.
"""

from typing import TYPE_CHECKING

import polars as pl

import penstock as ps
from penstock.workloads.retail import CLICK_SCHEMA, SALE_SCHEMA, Clicks, Sales, items

if TYPE_CHECKING:
    from penstock.query.stream import Stream

__all__ = [
    "CLICK_SCHEMA",
    "SALE_SCHEMA",
    "Clicks",
    "LastViews",
    "Sales",
    "items",
    "q1",
    "q2",
    "q3",
    "q4",
    "q15",
]

PAIR = pl.Struct({"item": pl.Int32, "other": pl.Int32})
LAST_VIEWS = 5
LAST_DAYS = 10


def q1(sales: "Stream", k: int = 100) -> "Stream":
    """Return the pairs of items that stores sold together most often, every hour.

    Counted are pairs of lines of one ticket with two items.
    """
    lines = sales.select("ticket", "item")
    pairs = lines.join(lines, on="ticket", within="1 second", where="item < item_right")
    sold = pairs.aggregate(by=("item", "item_right"), window=ps.tumbling("1 hour"), sold="count(*)")
    return sold.top(k, "sold")


def q2(clicks: "Stream", k: int = 30) -> "Stream":
    """Return the pairs of items that were viewed most often in one session, every day.

    A session of a user ends when there is no view for an hour.
    """
    sessions = clicks.filter("kind = 'view'").aggregate(
        by="user", window=ps.session("60 minutes"), items=pl.col("item").unique().sort().implode()
    )
    pairs = sessions.apply(pairs_of, schema={"pair": pl.List(PAIR)}).explode("pair")
    viewed = pairs.aggregate(by=("item", "other"), window=ps.tumbling("1 day"), viewed="count(*)")
    return viewed.top(k, "viewed")


def pairs_of(sessions: pl.DataFrame) -> pl.DataFrame:
    """Return for each session's sorted items all pairs of two.

    >>> some = pl.DataFrame({"items": [[1, 2, 5], [7]]}, schema={"items": pl.List(pl.Int32)})
    >>> [[tuple(pair.values()) for pair in pairs] for pairs in pairs_of(some)["pair"].to_list()]
    [[(1, 2), (1, 5), (2, 5)], []]
    """
    numbered = sessions.lazy().select("items").with_row_index("session")
    single = numbered.explode("items", empty_as_null=False)
    pairs = (
        single.join(single, on="session", maintain_order="left_right")
        .filter(pl.col("items") < pl.col("items_right"))
        .group_by("session", maintain_order=True)
        .agg(pair=pl.struct(item="items", other="items_right"))
    )
    empty = pl.lit([], dtype=pl.List(PAIR))
    return (
        numbered.select("session")
        .join(pairs, on="session", how="left", maintain_order="left")
        .select(pl.col("pair").fill_null(empty))
        .collect()
    )


class LastViews(ps.BatchProcess):
    """For each purchase of a user: the last five items that the user viewed within ten days."""

    state = {"viewed": pl.List(pl.Int32), "times": pl.List(pl.Datetime("us"))}  # noqa: RUF012
    output = {"viewed": pl.Int32}  # noqa: RUF012

    def on_rows(self, rows: pl.DataFrame, state: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Put the views that are kept before the new rows, and look back from each purchase."""
        lines = _after_kept(rows, state)
        views = lines.filter("view").select("user", "item", "ts")
        purchases = lines.filter(~pl.col("view")).select("user", "ts", "before", "__row")
        found = [_looked_back(purchases, views, back) for back in range(1, LAST_VIEWS + 1)]
        # The last ones are those for which the view five places on is another user's.
        user = pl.col("user")
        last = user.ne_missing(user.shift(-LAST_VIEWS))
        last |= pl.int_range(pl.len()) >= views.height - LAST_VIEWS
        left = views.filter(last).group_by("user", maintain_order=True)
        return pl.concat(found), left.agg(viewed="item", times="ts")


def _after_kept(rows: pl.DataFrame, state: pl.DataFrame) -> pl.DataFrame:
    """Return kept views, then rows, user by user, with how many views are before each."""
    kept = state.explode("viewed", "times").select(
        "user",
        item="viewed",
        ts="times",
        view=pl.lit(True),
        __row=pl.lit(None, dtype=rows.schema["__row"]),
    )
    new = rows.select("user", "item", "ts", view=pl.col("kind") == "view", __row="__row")
    return (
        pl.concat([kept, new])
        .sort("user", maintain_order=True)
        .with_columns(before=pl.col("view").cum_sum().cast(pl.Int64))
    )


def _looked_back(purchases: pl.DataFrame, views: pl.DataFrame, back: int) -> pl.DataFrame:
    """Return the view that is so many places before each purchase, where there is one."""
    enough = purchases.filter(pl.col("before") >= back)
    seen = views[(enough["before"] - back).to_numpy()].rename(lambda name: f"v_{name}")
    near = pl.col("v_ts") >= pl.col("ts") - pl.duration(days=LAST_DAYS)
    return (
        enough.hstack(seen)
        .filter(near & pl.col("v_user").eq_missing(pl.col("user")))
        .select("user", "__row", viewed="v_item")
    )


def q3(clicks: "Stream", k: int = 30) -> "Stream":
    """Return the items that were most often among the last five viewed before a purchase, daily."""
    views = clicks.filter("kind <> 'cart'").process(LastViews(), by="user")
    counts = views.aggregate(by="viewed", window=ps.tumbling("1 day"), views="count(*)")
    return counts.top(k, "views")


def q4(clicks: "Stream") -> "Stream":
    """Return how many pages users saw, on average, in sessions with a cart that was abandoned."""
    sessions = clicks.aggregate(
        by="user",
        window=ps.session("60 minutes"),
        pages="count(*)",
        carts=(pl.col("kind") == "cart").sum(),
        purchases=(pl.col("kind") == "purchase").sum(),
    )
    abandoned = sessions.filter("carts > 0 and purchases = 0")
    return abandoned.aggregate(window=ps.tumbling("1 day"), sessions="count(*)", pages="avg(pages)")


def q15(sales: "Stream", table: pl.DataFrame, days: int = 7) -> "Stream":
    """Return the categories whose daily revenue did not rise over the last days, every day.

    The slope is that of the least-squares line through the revenues, in cents a day. A day counts
    when it is over: its time is the next midnight, so a window that ends on the 10th is the first
    with the 8th, its `last_day`.
    """
    daily = sales.enrich(table, on="item", how="inner").aggregate(
        by="category",
        window=ps.tumbling("1 day"),
        revenue=(pl.col("price") * pl.col("quantity")).sum(),
    )
    x = pl.col("day")
    y = pl.col("revenue")
    n = pl.len().cast(pl.Int64)
    slope = (n * (x * y).sum() - x.sum() * y.sum()) / (n * (x * x).sum() - x.sum() * x.sum())
    date = pl.col("window_start").dt.date()
    lines = daily.map(date=date, day=date.dt.epoch("d").cast(pl.Int64)).aggregate(
        by="category",
        window=ps.sliding(f"{days} days", every="1 day"),
        last_day="max(date)",
        days="count(*)",
        revenue="sum(revenue)",
        slope=slope,
    )
    return lines.filter(f"days = {days} and slope <= 0")
