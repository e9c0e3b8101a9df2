"""The call-record queries as batch jobs: joins by caller and time bucket, windows by Polars."""

from datetime import datetime, timedelta

import polars as pl

RADIUS_KM = 6371.0088
MINUTE = 60_000_000


def nearby(calls: pl.LazyFrame, *, above_km: float, within_us: int = MINUTE) -> pl.LazyFrame:
    """Return pairs of calls of one caller less than `within_us` apart and farther than `above_km`.

    A call is paired with those of its caller in its own time bucket and in the one before.
    """
    bucket = pl.col("ts").cast(pl.Int64) // within_us
    places = calls.select("src", "ts", "lat", "lon", bucket=bucket)
    pairs = [
        places.with_columns(pl.col("bucket") + step).join(places, on=["src", "bucket"])
        for step in (0, 1)
    ]
    gap = (pl.col("ts_right") - pl.col("ts")).cast(pl.Int64)
    return (
        pl.concat(pairs)
        .filter((gap > 0) & (gap < within_us))
        .with_columns(km=distance("lat", "lon", "lat_right", "lon_right"))
        .filter(pl.col("km") > above_km)
        .select("src", "ts", "ts_right", "km")
    )


def distance(lat: str, lon: str, lat2: str, lon2: str) -> pl.Expr:
    """Return km by the chord through the earth: another formula than the haversine."""
    one, two = _point(lat, lon), _point(lat2, lon2)
    squares = [(a - b) * (a - b) for a, b in zip(one, two, strict=True)]
    chord = (squares[0] + squares[1] + squares[2]).sqrt()
    return 2 * RADIUS_KM * (chord / 2).clip(0.0, 1.0).arcsin()


def _point(lat: str, lon: str) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Return a place as a unit vector."""
    north, east = pl.col(lat).radians(), pl.col(lon).radians()
    return north.cos() * east.cos(), north.cos() * east.sin(), north.sin()


def overlapping(calls: pl.LazyFrame, *, within_us: int) -> pl.LazyFrame:
    """Return pairs of calls that share a number and overlap, by equality joins on the number."""
    one = calls.select("src", "dst", "start", "end", "ts").with_row_index("n")
    sides = ("src", "dst")
    joined = [
        one.with_columns(number=mine).join(
            one.with_columns(number=theirs), on="number", suffix="_right"
        )
        for mine in sides
        for theirs in sides
    ]
    gap = (pl.col("ts_right") - pl.col("ts")).cast(pl.Int64).abs()
    overlap = (pl.col("start") < pl.col("start_right")) & (pl.col("start_right") < pl.col("end"))
    names = [name for part in ("", "_right") for name in (f"{c}{part}" for c in _PARTIES)]
    return (
        pl.concat([pairs.filter((gap < within_us) & overlap) for pairs in joined])
        .unique(["n", "n_right"])
        .select(names)
        .with_columns(pl.col(r"^(src|dst).*$").cast(pl.Int64))
    )


_PARTIES = ("src", "dst", "start", "end")


def comparisons(calls: pl.LazyFrame, *, within_us: int) -> int:
    """Return how many ordered pairs of two rows are less than `within_us` apart."""
    times = calls.select(pl.col("ts").cast(pl.Int64).sort()).collect().to_series()
    until = times.search_sorted(times + within_us, side="left")
    after = until.cast(pl.Int64) - pl.int_range(1, len(times) + 1, eager=True)
    return 2 * int(after.sum())


def fast_phones(
    calls: pl.LazyFrame, *, districts: int, kmh: float, window: str = "1m"
) -> pl.DataFrame:
    """Return how many moves of phones were faster than `kmh` and by how many phones, per window."""
    here = calls.filter(pl.col("district") < districts).select("src", "ts", "lat", "lon")
    before = [pl.col(name).shift(1).over("src").alias(f"{name}_0") for name in ("ts", "lat", "lon")]
    moved = (
        here.sort("src", "ts")
        .with_columns(before)
        .filter(pl.col("ts_0").is_not_null())
        .with_columns(km=distance("lat_0", "lon_0", "lat", "lon"))
    )
    hours = (pl.col("ts") - pl.col("ts_0")).dt.total_microseconds() / 3_600_000_000
    return (
        moved.filter((pl.col("km") > 0) & (pl.col("km") / hours > kmh))
        .group_by(window_start=pl.col("ts").dt.truncate(window))
        .agg(cases=pl.len().cast(pl.Int64), phones=pl.col("src").n_unique().cast(pl.Int64))
        .sort("window_start")
        .collect()
    )


def by_district(calls: pl.LazyFrame) -> pl.DataFrame:
    """Return calls and mean duration per district, 60 seconds advancing by 10, window by window."""
    length = (pl.col("end") - pl.col("start")).cast(pl.Int64)
    rows = calls.select("district", "ts", length=length).collect()
    starts = rows["ts"].dt.truncate("10s")
    windows = [_shifted(rows, starts, -10 * back) for back in range(6)]
    return (
        pl.concat(windows)
        .group_by("district", "window_start")
        .agg(calls=pl.len().cast(pl.Int64), mean=pl.col("length").mean())
        .sort("district", "window_start")
    )


def _shifted(rows: pl.DataFrame, starts: pl.Series, seconds: int) -> pl.DataFrame:
    return rows.with_columns(window_start=starts + timedelta(seconds=seconds))


def last(calls: pl.LazyFrame) -> datetime:
    """Return the highest event time."""
    highest: datetime = calls.select(pl.col("ts").max()).collect().item()
    return highest
