"""TPCx-BB queries 1, 2, 3, 4 and 15 as batch jobs in Polars."""

from datetime import timedelta

import polars as pl

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def q1(sales: pl.LazyFrame, k: int = 100) -> pl.DataFrame:
    """Return the k pairs of items sold together most often, per hour."""
    lines = sales.select("ticket", "item", window_start=pl.col("ts").dt.truncate("1h"))
    counts = (
        lines.join(lines.drop("window_start"), on="ticket")
        .filter(pl.col("item") < pl.col("item_right"))
        .group_by("item", "item_right", "window_start")
        .agg(sold=pl.len().cast(pl.Int64))
    )
    return _top(counts, "sold", ["item", "item_right"], k, HOUR)


def q2(clicks: pl.LazyFrame, k: int = 30) -> pl.DataFrame:
    """Return the k pairs of items viewed most often in one session, per day."""
    views = _sessions(clicks.filter(pl.col("kind") == "view"))
    ended = views.group_by("user", "session").agg(end=pl.col("ts").max() + HOUR)
    seen = views.select("user", "session", "item").unique()
    counts = (
        seen.join(seen, on=["user", "session"])
        .filter(pl.col("item") < pl.col("item_right"))
        .join(ended, on=["user", "session"])
        .group_by("item", other="item_right", window_start=pl.col("end").dt.truncate("1d"))
        .agg(viewed=pl.len().cast(pl.Int64))
    )
    return _top(counts, "viewed", ["item", "other"], k, DAY)


def q3(clicks: pl.LazyFrame, k: int = 30) -> pl.DataFrame:
    """Return the k items most often among the last five viewed before a purchase, per day."""
    rows = clicks.filter(pl.col("kind") != "cart").with_columns(view=pl.col("kind") == "view")
    ordered = rows.sort("user", "ts", maintain_order=True)
    numbered = ordered.with_columns(place=pl.col("view").cum_sum().over("user").cast(pl.Int64))
    views = numbered.filter("view").select("user", "place", viewed="item", seen="ts")
    back = pl.int_ranges(pl.col("place") - 4, pl.col("place") + 1)
    counts = (
        numbered.filter(~pl.col("view"))
        .select("user", "ts", place=back)
        .explode("place")
        .join(views, on=["user", "place"])
        .filter(pl.col("seen") >= pl.col("ts") - timedelta(days=10))
        .group_by("viewed", window_start=pl.col("ts").dt.truncate("1d"))
        .agg(views=pl.len().cast(pl.Int64))
    )
    return _top(counts, "views", ["viewed"], k, DAY)


def q4(clicks: pl.LazyFrame) -> pl.DataFrame:
    """Return sessions with an abandoned cart and their mean number of pages, per day."""
    abandoned = (
        _sessions(clicks)
        .group_by("user", "session")
        .agg(
            end=pl.col("ts").max() + HOUR,
            pages=pl.len(),
            carts=(pl.col("kind") == "cart").any(),
            bought=(pl.col("kind") == "purchase").any(),
        )
        .filter(pl.col("carts") & ~pl.col("bought"))
    )
    return (
        abandoned.group_by(window_start=pl.col("end").dt.truncate("1d"))
        .agg(sessions=pl.len().cast(pl.Int64), pages=pl.col("pages").mean())
        .select(
            "window_start",
            (pl.col("window_start") + DAY).alias("window_end"),
            "sessions",
            "pages",
        )
        .collect()
    )


def q15(sales: pl.LazyFrame, table: pl.DataFrame, days: int = 7) -> pl.DataFrame:
    """Return categories with no rising revenue: slopes by centred sums over each span of days."""
    daily = (
        sales.join(table.lazy(), on="item")
        .group_by("category", day=pl.col("ts").dt.date())
        .agg(revenue=(pl.col("price") * pl.col("quantity")).sum())
        .collect()
    )
    ends = [daily.with_columns(end=pl.col("day") + (i + 2) * DAY) for i in range(days)]
    x = pl.col("day").to_physical().cast(pl.Float64)
    y = pl.col("revenue").cast(pl.Float64)
    dx = x - x.mean()
    return (
        pl.concat(ends)
        .group_by("category", "end")
        .agg(
            last_day=pl.col("day").max(),
            days=pl.len().cast(pl.Int64),
            total=pl.col("revenue").sum(),
            slope=(dx * (y - y.mean())).sum() / (dx * dx).sum(),
        )
        .filter((pl.col("days") == days) & (pl.col("slope") <= 0))
        .select(
            "category",
            window_start=(pl.col("end") - days * DAY).cast(pl.Datetime("us")),
            window_end=pl.col("end").cast(pl.Datetime("us")),
            last_day="last_day",
            days="days",
            revenue="total",
            slope="slope",
        )
    )


def _sessions(clicks: pl.LazyFrame) -> pl.LazyFrame:
    """Number each user's sessions: a new one begins after a pause of more than an hour."""
    pause = pl.col("ts") - pl.col("ts").shift(1)
    new = (pl.col("user") != pl.col("user").shift(1)) | (pause > HOUR)
    return clicks.sort("user", "ts").with_columns(session=new.fill_null(True).cum_sum())


def _top(
    counts: pl.LazyFrame, value: str, names: list[str], k: int, size: timedelta
) -> pl.DataFrame:
    """Return the k rows with the largest values per window, ties by the names, with their rank."""
    order = [pl.col("window_start"), -pl.col(value), *map(pl.col, names)]
    return (
        counts.sort(order)
        .with_columns(rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("window_start"))
        .filter(pl.col("rank") <= k)
        .select(
            *names,
            "window_start",
            (pl.col("window_start") + size).alias("window_end"),
            value,
            "rank",
        )
        .collect()
    )
