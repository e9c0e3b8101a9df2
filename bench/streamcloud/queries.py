"""The queries of StreamCloud's evaluation (sections VI and X)."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import polars as pl

import penstock as ps
from penstock.query.processes import Context, Row
from penstock.workloads.geography import great_circle_km

if TYPE_CHECKING:
    from penstock.query.stream import Stream


def three_stateful(calls: "Stream") -> "Stream":
    """Return, for each district, the callers who seem to travel: a query as in figure 13.

    Three of its operators are stateful: a join of a caller's calls, and two aggregates.
    """
    real = calls.map(duration='"end" - start').filter("duration > interval '1 second'")
    return (
        real.join(real, on="src", within="5 seconds", where="ts < ts_right")
        .map(km=great_circle_km("lat", "lon", "lat_right", "lon_right"))
        .filter("km > 1")
        .aggregate(
            by=["src", "district"],
            window=ps.tumbling("10 seconds"),
            pairs="count(*)",
            km="max(km)",
        )
        .aggregate(
            by="district",
            window=ps.tumbling("10 seconds"),
            callers="count(*)",
            farthest="max(km)",
        )
    )


class HeavyCaller(ps.Process):
    """Tells when a caller's mean call duration rises above a bound: figure 2's query, row by row.

    The mean fades, so that no window has to be kept. What a row costs does not depend on how many
    rows its key has, and rows cannot be combined before they are sent, as in the paper.
    """

    state = {"mean": pl.Float64, "heavy": pl.Boolean}  # noqa: RUF012  # read only
    output = {"ts": pl.Datetime("us"), "mean": pl.Float64}  # noqa: RUF012

    def __init__(self, seconds: float = 60.0) -> None:
        """Tell of callers above so many seconds."""
        self.seconds = seconds

    def on_row(self, row: Row, context: Context) -> Iterable[Row] | None:
        """Fade the mean towards the row's duration; tell when it crosses the bound."""
        known = context.state or {"mean": row["seconds"], "heavy": False}
        mean = known["mean"] + (row["seconds"] - known["mean"]) / 16
        heavy = mean > self.seconds
        context.state = {"mean": mean, "heavy": heavy}
        return [{"ts": row["ts"], "mean": mean}] if heavy and not known["heavy"] else None


def heavy_callers(calls: "Stream") -> "Stream":
    """Return the callers whose mean call has become long, by an operator of the user's own."""
    seconds = (pl.col("end") - pl.col("start")).dt.total_seconds()
    return calls.select("src", "ts", seconds=seconds).process(HeavyCaller(), by="src")


def mean_by_caller(calls: "Stream", window_seconds: float) -> "Stream":
    """Return figure 2's query: calls and mean duration of each caller over a window."""
    return calls.map(duration='"end" - start').aggregate(
        by="src",
        window=ps.tumbling(f"{window_seconds} seconds"),
        calls="count(*)",
        mean="avg(duration)",
    )
