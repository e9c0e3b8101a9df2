"""Call records: StreamCloud's operators (section X) and Ordered's fraud query (figure 1).

Each query is a function from a stream of `CallRecords` to a stream of results.
"""

from typing import TYPE_CHECKING

import polars as pl

import penstock as ps
from penstock.workloads.calls import CALL_SCHEMA, CallRecords, live
from penstock.workloads.geography import Speed, great_circle_km

if TYPE_CHECKING:
    from penstock.query.stream import Stream

__all__ = [
    "CALL_SCHEMA",
    "CallRecords",
    "calls_by_district",
    "durations",
    "heavy_customers",
    "high_mobility",
    "live",
    "nearby_calls",
    "overlapping_calls",
]

_DURATION = '"end" - start'


def calls_by_district(calls: "Stream") -> "Stream":
    """Return calls and their mean duration per district, 60 seconds advancing by 10."""
    return durations(calls).aggregate(
        by="district",
        window=ps.sliding("60 seconds", every="10 seconds"),
        calls="count(*)",
        mean="avg(duration)",
    )


def durations(calls: "Stream") -> "Stream":
    """Return the calls, each with its duration."""
    return calls.map(duration=_DURATION)


def nearby_calls(calls: "Stream", within: str = "60 seconds") -> "Stream":
    """Return pairs of calls of one caller, with how far apart they are in time and space.

    Each pair comes once, the earlier call first; a caller has no two calls at one time.
    """
    places = calls.select("src", "ts", "lat", "lon")
    return places.join(places, on="src", within=within, where="ts < ts_right").map(
        apart="ts_right - ts", km=great_circle_km("lat", "lon", "lat_right", "lon_right")
    )


def overlapping_calls(calls: "Stream", within: str = "60 seconds") -> "Stream":
    """Return pairs of calls that share a number and overlap in time.

    Each pair comes once, the call that began first on the left; calls that begin together are not
    said to overlap. Only calls whose records came less than `within` apart are compared. Numbers
    are compared as integers, which takes a quarter of the time that text takes.
    """
    numbers = {name: pl.col(name).cast(pl.Int64) for name in ("src", "dst")}
    parties = calls.select("start", "end", **numbers)
    shared = pl.any_horizontal(
        pl.col(mine) == pl.col(theirs) for mine in numbers for theirs in ("src_right", "dst_right")
    )
    # Two comparisons instead of `is_between` would let Polars make an inequality join of the
    # overlaps alone, which are many, and look for shared numbers afterwards.
    overlap = pl.col("start_right").is_between("start", "end", closed="none")
    return parties.product(parties, within=within, where=shared & overlap)


def heavy_customers(calls: "Stream", mean: str = "10 minutes") -> "Stream":
    """Return the callers whose mean call over an hour is longer than `mean`."""
    return (
        durations(calls)
        .aggregate(
            by="src",
            window=ps.sliding("1 hour", every="1 minute"),
            calls="count(*)",
            mean="avg(duration)",
        )
        .filter(f"mean > interval '{mean}'")
    )


def high_mobility(
    calls: "Stream", *, districts: int = 25, kmh: float = 500.0, window: str = "1 minute"
) -> "Stream":
    """Return how often phones seem to have travelled faster than `kmh`, per window.

    Only calls from the first `districts` count. The five operators are those of the paper's figure:
    filter, project, speed per phone, filter, count.
    """
    return (
        calls.filter(f"district < {districts}")
        .select("ts", "lat", "lon", phone="src")
        .process(Speed(), by="phone")
        .filter(f"kmh > {kmh}")
        .aggregate(window=ps.tumbling(window), cases="count(*)", phones="count(distinct phone)")
    )
